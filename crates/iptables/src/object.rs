//! Chains and shared rules as keyed objects.

use std::fmt::{self, Write};
use std::sync::Arc;

use vipline_reconcile::Keyed;

use crate::{ChainName, Policy, TableName};

/// Initial capacity for the rules of a chain, in bytes.
const ROOM: usize = 1024;

/// A chain or a shared rule.
///
/// Exhaustive: the objects of iptables are chains and rules.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Object {
    /// A chain.
    Chain(Chain),
    /// A rule of a shared chain.
    SharedRule(SharedRule),
}

/// A chain, with all of its rules or as the place of shared rules.
///
/// A change of one of its rules replaces all of them, and resets their counters:
/// `iptables-restore --noflush` flushes each chain that a document declares. Rules with a
/// `-c PACKETS BYTES` of the caller start with these values. Declare the rules of a chain as
/// [`SharedRule`]s to keep the counters of those that do not change.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Chain {
    /// Table of the chain.
    pub table: TableName,
    /// Name.
    pub name: ChainName,
    /// Policy of a built-in chain; `None` for a user-defined chain.
    pub policy: Option<Policy>,
    /// Contents.
    pub contents: Contents,
}

/// Contents of a chain.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Contents {
    /// Exactly these rules.
    Rules(Rules),
    /// [Shared rules](SharedRule), each of which is an object.
    SharedRules,
    /// Rules of other programs. Only the existence of the chain is managed.
    Unmanaged,
}

/// An ordered list of rules as text.
///
/// The text of a rule is the part after `-A CHAIN ` of a saved line. Clones share
/// the text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules(Option<Arc<str>>);

/// A rule of a chain whose rules are separate objects, such as a chain that several
/// programs share.
///
/// A change of other rules of the chain keeps its counters.
///
/// Its position is the head or tail of the chain. The order of rules at the same
/// position is unspecified.
///
/// Exhaustive: the fields identify the rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharedRule {
    /// Table of the chain.
    pub table: TableName,
    /// The chain: one with [`Contents::SharedRules`], or a built-in chain.
    pub chain: ChainName,
    /// Position in the chain.
    pub position: Position,
    /// Number of equal rules before this one; 0 unless the rule occurs several times.
    pub occurrence: u32,
    /// The text after `-A CHAIN ` of a saved line.
    pub rule: Arc<str>,
}

/// Position of a shared rule in its chain.
///
/// Exhaustive: a chain has two ends.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Position {
    /// Before all rules that are not at the head.
    Head,
    /// After all rules that are not at the tail.
    Tail,
}

/// The key of an object.
///
/// Exhaustive: each kind of object has one key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Key<'a> {
    /// A chain: its table and name.
    Chain(&'a TableName, &'a ChainName),
    /// A shared rule: all of its fields.
    SharedRule(&'a TableName, &'a ChainName, Position, u32, &'a str),
}

impl Chain {
    /// Creates a user-defined chain without rules.
    pub fn new(table: TableName, name: ChainName) -> Self {
        Self {
            table,
            name,
            policy: None,
            contents: Contents::Rules(Rules::default()),
        }
    }

    /// Sets the policy, which makes it a built-in chain.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sets the contents to exactly these rules.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        self.with_contents(Contents::Rules(rules))
    }

    /// Sets the contents.
    #[must_use]
    pub fn with_contents(mut self, contents: Contents) -> Self {
        self.contents = contents;
        self
    }

    /// Returns the key of the chain.
    pub(crate) fn key(&self) -> Key<'_> {
        Key::Chain(&self.table, &self.name)
    }

    /// Returns the rules of [`Contents::Rules`], otherwise nothing.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        let rules = match &self.contents {
            Contents::Rules(rules) => Some(rules),
            Contents::SharedRules | Contents::Unmanaged => None,
        };
        rules.into_iter().flat_map(Rules::iter)
    }
}

impl SharedRule {
    /// Returns the key of the rule.
    pub(crate) fn key(&self) -> Key<'_> {
        Key::SharedRule(
            &self.table,
            &self.chain,
            self.position,
            self.occurrence,
            &self.rule,
        )
    }
}

impl Rules {
    /// Returns the rules in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.as_deref().into_iter().flat_map(|text| text.lines())
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl<T: fmt::Display> FromIterator<T> for Rules {
    /// Collects typed rules or their text, without line breaks.
    fn from_iter<I: IntoIterator<Item = T>>(rules: I) -> Self {
        let mut rules = rules.into_iter();
        let Some(first) = rules.next() else {
            return Self(None);
        };
        let mut text = String::with_capacity(ROOM);
        write!(text, "{first}").expect("writing to a string cannot fail");
        for rule in rules {
            write!(text, "\n{rule}").expect("writing to a string cannot fail");
        }
        Self(Some(text.into()))
    }
}

impl Keyed for Object {
    type Key<'a> = Key<'a>;

    fn key(&self) -> Key<'_> {
        match self {
            Self::Chain(chain) => chain.key(),
            Self::SharedRule(entry) => entry.key(),
        }
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Chain(one), Self::Chain(other)) => {
                let is_anything = |chain: &Chain| chain.contents == Contents::Unmanaged;
                let are_alike =
                    is_anything(one) || is_anything(other) || one.contents == other.contents;
                are_alike && one.policy == other.policy
            }
            (Self::SharedRule(_), Self::SharedRule(_)) => true,
            _ => false,
        }
    }
}

impl From<Chain> for Object {
    fn from(chain: Chain) -> Self {
        Self::Chain(chain)
    }
}

impl From<SharedRule> for Object {
    fn from(entry: SharedRule) -> Self {
        Self::SharedRule(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(contents: Contents) -> Object {
        let table = TableName::NAT;
        let name = ChainName::new("A").unwrap();
        Chain::new(table, name).with_contents(contents).into()
    }

    #[test]
    fn rules_keep_their_order_and_an_empty_list_has_no_rules() {
        let rules: Rules = ["-j A", "-j B"].into_iter().collect();
        assert_eq!(rules.iter().collect::<Vec<_>>(), ["-j A", "-j B"]);
        assert_eq!(rules.len(), 2);
        let none: Rules = [""; 0].into_iter().collect();
        assert!(none.is_empty() && none.iter().next().is_none());
        assert_eq!(none, Rules::default());
    }

    #[test]
    fn contents_are_compared_unless_the_chain_is_unmanaged() {
        let one = chain(Contents::Rules(["-j A"].into_iter().collect()));
        let other = chain(Contents::Rules(["-j B"].into_iter().collect()));
        let theirs = chain(Contents::Unmanaged);
        assert!(!one.is_equivalent(&other));
        assert!(!one.is_equivalent(&chain(Contents::SharedRules)));
        assert!(one.is_equivalent(&theirs) && theirs.is_equivalent(&one));
    }
}
