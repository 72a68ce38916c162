//! Tables as the result of restored documents.

pub(crate) mod built_in;

mod apply;

mod error;

mod save;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::{Counters, Family, Policy, Tables, Variant};

pub use error::{Problem, RestoreError};

/// The rules of one address family, as documents and commands change them.
///
/// The ruleset predicts the result of `iptables-restore` without a kernel: chains, rules
/// and counters. It checks names and rule numbers like the kernel, but not matches and
/// targets.
///
/// ```
/// use vipline_iptables::{Family, RestoreOptions, Ruleset, Tables, Variant};
///
/// let mut rules = Ruleset::new(Family::V4, Variant::Nft);
/// let document = Tables::parse("*filter\n-P INPUT DROP\n-N ssh\n-A INPUT -p tcp --dport 22 -j ssh\nCOMMIT\n")?;
/// rules.restore(&document, RestoreOptions::new())?;
/// let more = Tables::parse("*filter\n-I INPUT 1 -i lo -j ACCEPT\n-D INPUT 2\n-X ssh\nCOMMIT\n")?;
/// rules.restore(&more, RestoreOptions::new().with_noflush())?;
/// let saved = "*filter
/// :INPUT DROP [0:0]
/// :FORWARD ACCEPT [0:0]
/// :OUTPUT ACCEPT [0:0]
/// -A INPUT -i lo -j ACCEPT
/// COMMIT
/// ";
/// assert_eq!(rules.to_string(), saved);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ruleset {
    family: Family,
    variant: Variant,
    /// Used tables by name.
    tables: BTreeMap<String, TableState>,
}

/// The chains of a table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TableState {
    /// Built-in chains in the order of their hooks, then user-defined ones by name.
    chains: Vec<ChainState>,
}

/// A chain of a [`Ruleset`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ChainState {
    /// Name.
    pub name: String,
    /// Policy of a built-in chain; `None` for a user-defined chain.
    pub policy: Option<Policy>,
    /// Counters of the policy.
    pub counters: Counters,
    /// Rules in order.
    pub rules: Vec<RuleState>,
}

/// A rule of a [`Ruleset`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RuleState {
    /// The rule, as `iptables-save` prints it after `-A CHAIN `.
    ///
    /// Matches and targets that [`Rule`](crate::Rule) does not type remain as they were
    /// written.
    pub rule: String,
    /// Counters.
    pub counters: Counters,
}

/// Options of a restore.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct RestoreOptions {
    /// Whether rules that the document does not name remain: `--noflush`.
    pub noflush: bool,
    /// Whether counters are restored: `--counters`.
    pub counters: bool,
}

impl RestoreOptions {
    /// Returns the options of a program without arguments: each table of the document
    /// is flushed first, and counters start at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps rules that the document does not name.
    #[must_use]
    pub fn with_noflush(mut self) -> Self {
        self.noflush = true;
        self
    }

    /// Restores counters.
    #[must_use]
    pub fn with_counters(mut self) -> Self {
        self.counters = true;
        self
    }
}

impl Ruleset {
    /// Creates a ruleset without rules.
    ///
    /// The variants differ in one result: a restore without `--noflush` that does not
    /// declare a built-in chain keeps its policy (legacy), or sets it to ACCEPT (nft).
    pub fn new(family: Family, variant: Variant) -> Self {
        Self {
            family,
            variant,
            tables: BTreeMap::new(),
        }
    }

    /// Creates the ruleset that a save describes, with its counters.
    ///
    /// # Errors
    ///
    /// The same as [`restore`](Self::restore).
    pub fn from_save(
        save: &Tables<'_>,
        family: Family,
        variant: Variant,
    ) -> Result<Self, RestoreError> {
        let mut ruleset = Self::new(family, variant);
        ruleset.restore(save, RestoreOptions::new().with_counters())?;
        Ok(ruleset)
    }

    /// Returns the address family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns the names of the tables that a document named, in name order.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// Returns the chains of a table: built-in chains first, then user-defined chains by
    /// name.
    pub fn chains(&self, table: &str) -> impl Iterator<Item = &ChainState> {
        let table = self.tables.get(table).into_iter();
        table.flat_map(|table| &table.chains)
    }

    /// Returns a chain.
    pub fn chain(&self, table: &str, name: &str) -> Option<&ChainState> {
        self.tables.get(table)?.chain(name)
    }
}

impl TableState {
    /// Creates a table whose built-in chains are empty. Returns `None` for an unknown
    /// table.
    fn new(name: &str) -> Option<Self> {
        let names = built_in::chains(name);
        let chain = |name: &&str| ChainState {
            name: (*name).to_owned(),
            policy: Some(Policy::Accept),
            counters: Counters::default(),
            rules: Vec::new(),
        };
        let chains = names.iter().map(chain).collect();
        (!names.is_empty()).then_some(Self { chains })
    }

    fn chain(&self, name: &str) -> Option<&ChainState> {
        self.chains.iter().find(|chain| chain.name == name)
    }

    fn chain_mut(&mut self, name: &str) -> Option<&mut ChainState> {
        self.chains.iter_mut().find(|chain| chain.name == name)
    }
}
