//! Search for the objects to remove.

use ipnet::IpNet;

use crate::Error;
use crate::{IptablesBackend, Mode};
use proxy_engine::cleanup::{Found, Removal, plan};

/// The objects to remove.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Scope {
    /// Those of all modes.
    AllModes,
    /// Those that a proxy in this mode, with this backend of iptables, neither writes nor
    /// reads: the objects of all other modes, and chains of its own mode in the other variant
    /// of iptables. The kernel evaluates the rules of both variants, so such chains still
    /// decide about packets.
    ///
    /// With [`IptablesBackend::Auto`], the variant is unknown, and chains of the mode stay
    /// in both.
    AllExcept(Mode, IptablesBackend),
}

impl Scope {
    /// Returns whether objects are in the scope that exactly these modes program.
    ///
    /// `is_in_use` is whether the excepted mode uses the place of the objects: its
    /// variant of iptables. Only chains of iptables can be elsewhere.
    pub(crate) fn includes(self, modes: &[Mode], is_in_use: bool) -> bool {
        match self {
            Self::AllModes => true,
            Self::AllExcept(mode, _) => !is_in_use || !modes.contains(&mode),
        }
    }
}

/// The part of a removal that one mode defines.
pub(crate) struct Leftovers {
    /// Adds the objects of the mode to the search. Mode iptables adds the rules of iptables
    /// of all modes.
    pub(crate) find: fn(&mut Search) -> Result<(), Error>,
}

/// A search for objects.
pub(crate) struct Search {
    scope: Scope,
    found: Vec<Box<dyn Found>>,
    unchecked: Vec<Error>,
}

impl Search {
    pub(super) fn new(scope: Scope) -> Self {
        Self {
            scope,
            found: Vec::new(),
            unchecked: Vec::new(),
        }
    }

    /// Returns the scope.
    #[cfg(feature = "iptables")]
    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns whether objects of a mode are searched outside of iptables.
    #[cfg(any(feature = "ipvs", feature = "nftables"))]
    pub(crate) fn includes(&self, mode: Mode) -> bool {
        self.scope.includes(&[mode], true)
    }

    /// Adds objects.
    pub(crate) fn found(&mut self, found: impl Found + 'static) {
        self.found.push(Box::new(found));
    }

    /// Adds the error of a check.
    #[cfg(feature = "iptables")]
    pub(crate) fn unchecked(&mut self, error: Error) {
        self.unchecked.push(error);
    }

    /// Plans the removal of the objects found. The result is pure: nothing is read.
    pub(super) fn into_removal(self, excluded: &[IpNet]) -> Removal {
        let mut removal = plan(&self.found, excluded);
        removal.unchecked = self.unchecked;
        removal
    }
}
