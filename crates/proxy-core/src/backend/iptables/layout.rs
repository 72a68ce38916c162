//! Which chains are a mode's.

use vipline_nftables::Change;

use super::base;
use super::names::{self, FILTER, Kind, MANGLE, NAT};

/// Which chains are a mode's, and what tells that its rules are there.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend) struct Layout {
    /// The tables that have chains of ours.
    pub(in crate::backend) tables: &'static [&'static str],
    /// Tells what a chain of a table is to us.
    pub(in crate::backend) kind: fn(table: &str, chain: &str) -> Kind,
    /// Returns the place of a jump among all jumps, by where it is and its rule.
    pub(in crate::backend) place_of_jump: fn(table: &str, from: &str, rule: &str) -> Option<usize>,
    /// Tells whether a chain is ours, or one that may have lost a jump to ours.
    pub(in crate::backend) is_about_us: fn(Change<'_>) -> bool,
    /// A table, and a chain of ours in it: when that is gone, somebody flushed
    /// the rules.
    pub(in crate::backend) canary: (&'static str, &'static str),
}

impl Layout {
    /// The layout of mode iptables.
    pub(in crate::backend) const IPTABLES: Self = Self {
        tables: &[FILTER, MANGLE, NAT],
        kind: names::kind,
        place_of_jump: base::place_of_jump,
        is_about_us: |change| is_about(names::kind, change),
        canary: (MANGLE, names::CANARY),
    };
}

/// Tells whether a chain is one of a mode's, or may have lost a jump to one.
pub(in crate::backend) fn is_about(kind: fn(&str, &str) -> Kind, change: Change<'_>) -> bool {
    match kind(change.table.name.as_str(), change.chain) {
        Kind::Whole | Kind::Shared => true,
        Kind::System => change.is_removed,
        Kind::Foreign => false,
    }
}
