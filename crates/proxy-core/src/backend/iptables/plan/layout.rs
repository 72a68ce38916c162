//! Ownership of chains by mode.

use vipline_iptables::Rule;
use vipline_nftables::Change;

use super::base;
use super::cleanup::forms;
use super::names::{self, FILTER, Kind, MANGLE, NAT};
use crate::Mode;
use crate::owned::JUMPS;

/// The chains of a mode, and the canary that shows that its rules are installed.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend) struct Layout {
    /// Tables that contain our chains.
    pub(in crate::backend) tables: &'static [&'static str],
    /// Returns the kind of a chain of a table.
    pub(in crate::backend) kind: fn(table: &str, chain: &str) -> Kind,
    /// Returns whether a rule of a built-in chain is a jump of the mode: planned, or written
    /// by an earlier release.
    pub(in crate::backend) is_jump: fn(table: &str, from: &str, rule: &str) -> bool,
    /// Returns whether a change affects our chain, or a chain that may have lost a jump
    /// to ours.
    pub(in crate::backend) is_about_us: fn(Change<'_>) -> bool,
    /// Table and name of the canary chain. If it is missing, another process flushed the
    /// rules.
    pub(in crate::backend) canary: (&'static str, &'static str),
}

impl Layout {
    /// Layout of mode iptables.
    pub(in crate::backend) const IPTABLES: Self = Self {
        tables: &[FILTER, MANGLE, NAT],
        kind: names::kind,
        is_jump: |table, from, rule| {
            base::place_of_jump(table, from, rule).is_some()
                || is_known_jump(Mode::Iptables, table, from, rule)
        },
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

/// Returns whether a release wrote a jump in a mode.
pub(in crate::backend) fn is_known_jump(mode: Mode, table: &str, from: &str, rule: &str) -> bool {
    let Ok(rule) = Rule::parse(rule) else {
        return false;
    };
    let mut jumps = JUMPS
        .iter()
        .filter(|jump| jump.modes.contains(&mode) && (jump.table, jump.from) == (table, from));
    jumps.any(|jump| forms(jump).contains(&rule))
}
