//! Nodes and zones of endpoints, which many endpoints share.

use std::collections::HashSet;
use std::sync::Arc;

/// Node and zone of an endpoint.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Location {
    pub(crate) node: Option<String>,
    pub(crate) zone: Option<String>,
}

/// One copy of each location in use.
#[derive(Debug, Default)]
pub(crate) struct SharedLocations(HashSet<Arc<Location>>);

impl SharedLocations {
    /// Returns the shared copy of a location, or `None` for an empty one.
    pub(crate) fn share(&mut self, location: Location) -> Option<Arc<Location>> {
        if location == Location::default() {
            return None;
        }
        if let Some(shared) = self.0.get(&location) {
            return Some(Arc::clone(shared));
        }
        // Bounds the unused locations to those in use.
        if self.0.len().is_power_of_two() {
            self.0.retain(|shared| Arc::strong_count(shared) > 1);
        }
        let shared = Arc::new(location);
        self.0.insert(Arc::clone(&shared));
        Some(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(node: &str) -> Location {
        Location {
            node: Some(node.to_owned()),
            zone: Some("a".to_owned()),
        }
    }

    #[test]
    fn equal_locations_share_their_memory_and_unused_ones_are_removed() {
        let mut locations = SharedLocations::default();
        assert_eq!(locations.share(Location::default()), None);
        let kept = locations.share(location("kept")).unwrap();
        for number in 0..1000 {
            locations.share(location(&number.to_string()));
        }
        assert!(locations.0.len() <= 4, "{locations:?}");
        let again = locations.share(location("kept")).unwrap();
        assert!(Arc::ptr_eq(&kept, &again));
    }
}
