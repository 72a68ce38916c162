//! The name of a question in lower case, split into labels.

use crate::Name;
use crate::name::MAX_NAME;

/// Maximum number of labels of a name: each takes 2 bytes, and the root takes 1.
const MAX_LABELS: usize = MAX_NAME / 2;

/// A name in lower case. Takes no memory from the heap.
pub(super) struct Folded {
    wire: [u8; MAX_NAME],
    length: usize,
    /// Position of each label within `wire`.
    starts: [u8; MAX_LABELS],
    count: usize,
}

impl Folded {
    /// Folds a name.
    pub(super) fn new(name: &Name) -> Self {
        let mut folded = Self {
            wire: [0; MAX_NAME],
            length: name.as_wire().len(),
            starts: [0; MAX_LABELS],
            count: 0,
        };
        if let Some(wire) = folded.wire.get_mut(..folded.length) {
            wire.copy_from_slice(name.as_wire());
            wire.make_ascii_lowercase();
        }
        let mut start = 0;
        for (place, label) in folded.starts.iter_mut().zip(name.labels()) {
            *place = start;
            // At most 255 bytes, as the name.
            start = start.saturating_add(u8::try_from(label.len() + 1).unwrap_or(u8::MAX));
            folded.count += 1;
        }
        folded
    }

    /// Returns the number of labels.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of labels in front of `suffix`, which is a name in wire format and
    /// in lower case. `None` if the name does not end with the suffix.
    pub(super) fn depth_below(&self, suffix: &[u8]) -> Option<usize> {
        let wire = self.wire.get(..self.length)?;
        let start = self.length.checked_sub(suffix.len())?;
        if wire.get(start..) != Some(suffix) {
            return None;
        }
        if suffix.len() == 1 {
            return Some(self.count);
        }
        let start = u8::try_from(start).ok()?;
        self.starts.get(..self.count)?.binary_search(&start).ok()
    }

    /// Returns a label, counted from the left. `None` if the label is not UTF-8: such a label
    /// is in no name of a zone.
    pub(super) fn label(&self, position: usize) -> Option<&str> {
        let start = usize::from(*self.starts.get(..self.count)?.get(position)?);
        let length = usize::from(*self.wire.get(start)?);
        let label = self.wire.get(start + 1..)?.get(..length)?;
        std::str::from_utf8(label).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_into_labels_in_lower_case() {
        let folded = Folded::new(&"Web.Default.Cluster.Local".parse().unwrap());
        assert_eq!(folded.count(), 4);
        assert_eq!(folded.label(0), Some("web"));
        assert_eq!(folded.label(3), Some("local"));
        assert_eq!(folded.label(4), None);
        let depth = |suffix: &str| folded.depth_below(suffix.parse::<Name>().unwrap().as_wire());
        assert_eq!(depth("cluster.local"), Some(2));
        assert_eq!(depth("web.default.cluster.local"), Some(0));
        assert_eq!(depth("."), Some(4));
        assert_eq!(depth("a.web.default.cluster.local"), None);
        assert_eq!(depth("example.com"), None);
    }

    #[test]
    fn the_bytes_of_a_label_are_not_a_suffix() {
        let hostile = Name::from_labels([b"a\x05local".as_slice()]).unwrap();
        let folded = Folded::new(&hostile);
        let local: Name = "local".parse().unwrap();
        assert_eq!(folded.depth_below(local.as_wire()), None);
    }

    #[test]
    fn the_longest_names_have_all_their_labels() {
        let labels = vec!["A"; 127];
        let folded = Folded::new(&Name::from_labels(&labels).unwrap());
        assert_eq!(folded.count(), 127);
        assert_eq!(folded.label(126), Some("a"));
        let not_text = Name::from_labels([b"\xff".as_slice(), b"a"]).unwrap();
        assert_eq!(Folded::new(&not_text).label(0), None);
        assert_eq!(Folded::new(&Name::root()).count(), 0);
    }
}
