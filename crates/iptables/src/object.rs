//! What a table holds, as keyed objects: chains, and rules of shared chains.

use std::fmt::{self, Write};
use std::sync::Arc;

use vipline_reconcile::Keyed;

use crate::{ChainName, Policy, TableName};

/// Room for the rules of most chains, in bytes.
const ROOM: usize = 1024;

/// An entry of the state of iptables.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Object {
    /// A chain.
    Chain(Chain),
    /// A rule of a chain whose rules have several owners.
    SharedRule(SharedRule),
}

/// A chain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Chain {
    /// The table that it is in.
    pub table: TableName,
    /// The name.
    pub name: ChainName,
    /// What happens at the end of a built-in chain; `None`: users made it.
    pub policy: Option<Policy>,
    /// What is in it.
    pub contents: Contents,
}

/// What is in a chain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Contents {
    /// These rules and no others.
    Rules(Rules),
    /// Rules that are [entries](SharedRule), each an object for itself.
    SharedRules,
    /// Whatever somebody else puts there; only the chain has to exist.
    Unmanaged,
}

/// Rules in their order, as text.
///
/// The text is what follows `-A CHAIN ` in each line of a save; a clone shares it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules(Option<Arc<str>>);

/// A rule of a chain that it shares with rules of other owners.
///
/// Only the end of the chain where it stands is its own: among the entries at
/// one end any order will do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharedRule {
    /// The table that the chain is in.
    pub table: TableName,
    /// The chain: one with [`Contents::SharedRules`], or a chain of the system.
    pub chain: ChainName,
    /// Where in the chain it stands.
    pub position: Position,
    /// How many entries like it are wanted before it; 0 unless it is there twice.
    pub occurrence: u32,
    /// What follows `-A CHAIN ` in a save.
    pub rule: Arc<str>,
}

/// An end of a chain.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Position {
    /// Before all rules that are not at this end.
    Head,
    /// After all rules that are not at this end.
    Tail,
}

/// What identifies an object.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Key<'a> {
    /// A chain, by table and name.
    Chain(&'a TableName, &'a ChainName),
    /// An entry, by all that it is.
    SharedRule(&'a TableName, &'a ChainName, Position, u32, &'a str),
}

impl Chain {
    /// Returns a chain of users with these rules and no others.
    pub fn new(table: TableName, name: ChainName, rules: Rules) -> Self {
        Self::with(table, name, Contents::Rules(rules))
    }

    /// Returns a chain of users with these contents.
    pub fn with(table: TableName, name: ChainName, contents: Contents) -> Self {
        Self {
            table,
            name,
            policy: None,
            contents,
        }
    }

    /// Returns what identifies the chain.
    pub(crate) fn key(&self) -> Key<'_> {
        Key::Chain(&self.table, &self.name)
    }

    /// Returns the rules that are no objects for themselves.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        let rules = match &self.contents {
            Contents::Rules(rules) => Some(rules),
            Contents::SharedRules | Contents::Unmanaged => None,
        };
        rules.into_iter().flat_map(Rules::iter)
    }
}

impl SharedRule {
    /// Returns what identifies the entry.
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
    /// Returns the rules in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.as_deref().into_iter().flat_map(|text| text.lines())
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl<T: fmt::Display> FromIterator<T> for Rules {
    /// Takes rules, typed ones or their text, each without line breaks.
    fn from_iter<I: IntoIterator<Item = T>>(rules: I) -> Self {
        let mut rules = rules.into_iter();
        let Some(first) = rules.next() else {
            return Self(None);
        };
        let mut text = String::with_capacity(ROOM);
        write!(text, "{first}").expect("a string takes everything");
        for rule in rules {
            write!(text, "\n{rule}").expect("a string takes everything");
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
        let table = TableName::new("nat").unwrap();
        let name = ChainName::new("A").unwrap();
        Chain::with(table, name, contents).into()
    }

    #[test]
    fn rules_keep_their_order_and_none_is_not_one() {
        let rules: Rules = ["-j A", "-j B"].into_iter().collect();
        assert_eq!(rules.iter().collect::<Vec<_>>(), ["-j A", "-j B"]);
        assert_eq!(rules.len(), 2);
        let none: Rules = [""; 0].into_iter().collect();
        assert!(none.is_empty() && none.iter().next().is_none());
        assert_eq!(none, Rules::default());
    }

    #[test]
    fn what_is_in_a_chain_matters_unless_it_is_somebody_elses() {
        let one = chain(Contents::Rules(["-j A"].into_iter().collect()));
        let other = chain(Contents::Rules(["-j B"].into_iter().collect()));
        let theirs = chain(Contents::Unmanaged);
        assert!(!one.is_equivalent(&other));
        assert!(!one.is_equivalent(&chain(Contents::SharedRules)));
        assert!(one.is_equivalent(&theirs) && theirs.is_equivalent(&one));
    }
}
