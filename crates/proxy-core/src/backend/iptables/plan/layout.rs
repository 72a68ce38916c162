//! Ownership of chains by mode.

use vipline_nftables::Change;

use super::base;
use super::names::{self, FILTER, Kind, MANGLE, NAT};

/// The chains of a mode, and the canary that shows that its rules are installed.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend) struct Layout {
    /// Tables that contain our chains.
    pub(in crate::backend) tables: &'static [&'static str],
    /// Returns the kind of a chain of a table.
    pub(in crate::backend) kind: fn(table: &str, chain: &str) -> Kind,
    /// Returns the index of a jump by its table, chain and rule.
    pub(in crate::backend) place_of_jump: fn(table: &str, from: &str, rule: &str) -> Option<usize>,
    /// Returns whether a change affects our chain, or a chain that may have lost a jump
    /// to ours.
    pub(in crate::backend) is_about_us: fn(Change<'_>) -> bool,
    /// Table and name of the canary chain. If it is missing, another process flushed the
    /// rules.
    pub(in crate::backend) canary: (&'static str, &'static str),
}

impl Layout {
    /// Returns whether the mode creates a chain.
    pub(in crate::backend) fn owns(&self, table: &str, chain: &str) -> bool {
        matches!((self.kind)(table, chain), Kind::Whole | Kind::Shared)
    }

    /// Layout of mode iptables.
    pub(in crate::backend) const IPTABLES: Self = Self {
        tables: &[FILTER, MANGLE, NAT],
        kind: names::kind,
        place_of_jump: base::place_of_jump,
        is_about_us: |change| is_about(names::kind, change),
        canary: (MANGLE, names::CANARY),
    };
}

/// Returns whether a change affects a chain of a mode, or removed a rule from a chain
/// that jumps to one.
pub(in crate::backend) fn is_about(kind: fn(&str, &str) -> Kind, change: Change<'_>) -> bool {
    match kind(change.table.name.as_str(), change.chain) {
        Kind::Whole | Kind::Shared => true,
        Kind::System => change.is_removed,
        Kind::Foreign => false,
    }
}
