//! Names that many objects repeat, such as those of namespaces and nodes.

use std::collections::HashSet;
use std::sync::Arc;

/// One copy of each name in use.
#[derive(Debug, Default)]
pub(crate) struct SharedNames(HashSet<Arc<str>>);

impl SharedNames {
    /// Returns the shared copy of a name.
    pub(crate) fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(shared) = self.0.get(name) {
            return Arc::clone(shared);
        }
        // Bounds the unused names to those in use.
        if self.0.len().is_power_of_two() {
            self.0.retain(|shared| Arc::strong_count(shared) > 1);
        }
        let shared: Arc<str> = name.into();
        self.0.insert(Arc::clone(&shared));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_share_their_memory_and_unused_names_are_removed() {
        let mut names = SharedNames::default();
        let kept = names.share("kept");
        for number in 0..1000 {
            names.share(&number.to_string());
        }
        assert!(names.0.len() <= 4, "{names:?}");
        assert!(Arc::ptr_eq(&kept, &names.share("kept")));
    }
}
