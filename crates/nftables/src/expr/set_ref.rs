//! How expressions name the set they use.

use std::sync::Arc;

use crate::{Element, Name, Set};

/// The set an expression uses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SetRef {
    /// A set with a name.
    Named(Name),
    /// A set that belongs to the rule: `{ tcp, udp }`.
    Anonymous(Arc<AnonymousSet>),
}

/// A set that belongs to a rule, with its elements.
#[derive(Clone, Debug)]
pub struct AnonymousSet {
    /// The set; its name is a pattern which the kernel numbers.
    pub set: Set,
    /// Its elements.
    pub elements: Vec<Element>,
}

impl Eq for AnonymousSet {}

impl PartialEq for AnonymousSet {
    /// Compares what the sets hold, not how they are called.
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
    /// Returns the name, which is a pattern for a set that belongs to the rule.
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
