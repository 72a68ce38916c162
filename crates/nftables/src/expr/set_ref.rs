//! References to sets.

use std::sync::Arc;

use crate::{Element, Name, Set};

/// The set that a kernel expression uses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SetRef {
    /// A named set.
    Named(Name),
    /// An anonymous set: `{ tcp, udp }`.
    Anonymous(Arc<AnonymousSet>),
}

/// An anonymous set with its elements.
#[derive(Clone, Debug)]
pub struct AnonymousSet {
    /// Set. The kernel replaces `%d` in its name with a number.
    pub set: Set,
    /// Elements.
    pub elements: Vec<Element>,
}

impl Eq for AnonymousSet {}

impl PartialEq for AnonymousSet {
    /// Compares the elements, not the names.
    fn eq(&self, other: &Self) -> bool {
        fn content(anonymous: &AnonymousSet) -> Vec<impl Ord + '_> {
            let mut content: Vec<_> = anonymous
                .elements
                .iter()
                .map(|element| (element.key_bytes(), element.key_end(), element.data()))
                .collect();
            content.sort();
            content
        }
        self.elements.len() == other.elements.len()
            && self.set.key.len() == other.set.key.len()
            && content(self) == content(other)
    }
}

impl SetRef {
    /// Returns the name. The name of an anonymous set is a pattern.
    pub fn name(&self) -> &Name {
        match self {
            Self::Named(name) => name,
            Self::Anonymous(anonymous) => &anonymous.set.name,
        }
    }
}

impl From<&Set> for SetRef {
    fn from(set: &Set) -> Self {
        Self::Named(set.name.clone())
    }
}
