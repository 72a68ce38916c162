//! Chains and rules that a client reads.

use std::cell::RefCell;

use vipline_nftables as nftables;
use vipline_nftables::expr::{Counter, Expr};
use vipline_nftables::{InstalledRule, RuleHandle};

use super::client::SetReader;
use super::decode_with;
use crate::{Counters, Family, Policy, Rule, TableName};

/// A line of `iptables-nft-save`.
///
/// Exhaustive: a save has chains and rules.
#[derive(Clone, Copy, Debug)]
pub enum Saved<'a> {
    /// A chain: `:INPUT ACCEPT [0:0]`.
    Chain(SavedChain<'a>),
    /// A rule: `-A INPUT -j MINE`.
    Rule(SavedRule<'a>),
}

/// A chain.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SavedChain<'a> {
    /// Table of the chain.
    pub table: TableName,
    /// Name. Other programs may use names that [`ChainName`](crate::ChainName) rejects.
    pub name: &'a str,
    /// Policy of a built-in chain; `None` for a user-defined chain.
    pub policy: Option<Policy>,
    /// Counters of the policy.
    pub counters: Counters,
}

impl<'a> SavedChain<'a> {
    pub(super) fn new(table: TableName, chain: &'a nftables::Chain) -> Self {
        let policy = chain.base.as_ref().map(|base| match base.policy {
            nftables::Policy::Accept => Policy::Accept,
            nftables::Policy::Drop => Policy::Drop,
        });
        let counter = chain.base.as_ref().and_then(|base| base.counter);
        Self {
            table,
            name: chain.name.as_str(),
            policy,
            counters: counter.map(counters).unwrap_or_default(),
        }
    }
}

/// A rule. [`rule`](Self::rule) decodes it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SavedRule<'a> {
    /// Table of the rule.
    pub table: TableName,
    /// Name of the chain.
    pub chain: &'a str,
    /// Handle.
    pub handle: RuleHandle,
    installed: InstalledRule<'a>,
    family: Family,
    sets: &'a RefCell<SetReader>,
}

impl<'a> SavedRule<'a> {
    pub(super) fn new(
        table: TableName,
        installed: InstalledRule<'a>,
        family: Family,
        sets: &'a RefCell<SetReader>,
    ) -> Self {
        Self {
            table,
            chain: installed.chain,
            handle: installed.handle,
            installed,
            family,
            sets,
        }
    }

    /// Decodes the rule.
    ///
    /// Returns `None` for a rule of another program that this crate cannot decode. Commits
    /// leave such a rule as it is.
    pub fn rule(&self) -> Option<Rule<'static>> {
        let rule = self.installed.decode().ok()?;
        let uses_set = |expr: &Expr| match expr {
            Expr::Match(it) => it.name.as_str() == "set",
            Expr::Target(it) => it.name.as_str() == "SET",
            _ => false,
        };
        if rule.exprs.iter().any(uses_set) {
            self.sets.borrow_mut().read().ok()?;
        }
        decode_with(&rule, self.family, &self.sets.borrow().indexes)
    }

    /// Returns the counters of the rule, if it has any.
    pub fn counters(&self) -> Option<Counters> {
        let rule = self.installed.decode().ok()?;
        rule.exprs.iter().find_map(|expr| match expr {
            Expr::Counter(counter) => Some(counters(*counter)),
            _ => None,
        })
    }
}

fn counters(counter: Counter) -> Counters {
    Counters {
        packets: counter.packets,
        bytes: counter.bytes,
    }
}
