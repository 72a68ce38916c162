//! Selection of the chains and jumps of iptables to remove.

use super::Scope;
use crate::owned::{self, JUMPS, Jump};

/// The chains and jumps in a scope, in the tables of one variant of iptables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Selection {
    scope: Scope,
    /// Whether the mode that the scope excepts has its rules in these tables.
    is_in_use: bool,
}

impl Selection {
    /// Selects names for the tables that the excepted mode uses or, with `false`, for
    /// those that it does not use.
    pub(crate) const fn new(scope: Scope, is_in_use: bool) -> Self {
        Self { scope, is_in_use }
    }

    /// Returns whether a chain is to be removed.
    pub(crate) fn has_chain(&self, table: &str, name: &str) -> bool {
        let chain = owned::find(table, name).filter(|chain| !chain.is_kubelets);
        chain.is_some_and(|chain| self.scope.includes(chain.modes, self.is_in_use))
    }

    /// Returns the jumps to be removed.
    pub(crate) fn jumps(self) -> impl Iterator<Item = &'static Jump> {
        JUMPS
            .iter()
            .filter(move |jump| self.scope.includes(jump.modes, self.is_in_use))
    }
}
