//! Names of chains and jumps in iptables.

use crate::Mode;

/// Chains and jumps that exactly these modes create.
#[derive(Debug)]
pub(crate) struct Names {
    /// The modes.
    pub(crate) modes: &'static [Mode],
    /// Chains with constant names.
    pub(crate) chains: &'static [Chain],
    /// Returns whether a chain in table `nat` belongs to a service port or an endpoint.
    pub(crate) is_of_service: fn(&str) -> bool,
    /// The jumps, each with or without a match of state NEW.
    pub(crate) jumps: &'static [Jump],
}

/// A chain of upstream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Chain {
    /// The table.
    pub(crate) table: &'static str,
    /// The name.
    pub(crate) name: &'static str,
}

/// A rule of upstream that jumps to one of its chains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Jump {
    /// The table.
    pub(crate) table: &'static str,
    /// The chain that contains the rule.
    pub(crate) from: &'static str,
    /// The target chain.
    pub(crate) to: &'static str,
    /// The comment of the rule.
    pub(crate) comment: &'static str,
}

pub(crate) const fn chain(table: &'static str, name: &'static str) -> Chain {
    Chain { table, name }
}

pub(crate) const fn jump(
    table: &'static str,
    from: &'static str,
    to: &'static str,
    comment: &'static str,
) -> Jump {
    Jump {
        table,
        from,
        to,
        comment,
    }
}

impl Names {
    /// Returns whether the chains include one of this table and name.
    pub(crate) fn has_chain(&self, table: &str, name: &str) -> bool {
        (table == "nat" && (self.is_of_service)(name))
            || self
                .chains
                .iter()
                .any(|chain| (chain.table, chain.name) == (table, name))
    }
}

/// Returns whether `names` include a chain.
pub(crate) fn is_chain(names: &[&Names], table: &str, name: &str) -> bool {
    names.iter().any(|names| names.has_chain(table, name))
}

/// Returns all jumps in `names`.
pub(crate) fn jumps<'a>(names: &'a [&'static Names]) -> impl Iterator<Item = &'static Jump> + 'a {
    names.iter().flat_map(|names| names.jumps)
}
