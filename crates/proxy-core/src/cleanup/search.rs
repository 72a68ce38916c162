//! Search for the objects to remove.

use ipnet::IpNet;

#[cfg(feature = "iptables")]
use super::names::Names;
use super::removal::{Error, Found, Removal, plan};
use crate::Mode;

/// The modes whose objects are removed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Scope {
    /// All modes.
    AllModes,
    /// All modes except one. Chains that this mode shares with another mode stay, too.
    AllExcept(Mode),
}

impl Scope {
    /// Returns whether objects are in the scope that exactly these modes program.
    fn includes(self, modes: &[Mode]) -> bool {
        match self {
            Self::AllModes => true,
            Self::AllExcept(mode) => !modes.contains(&mode),
        }
    }
}

/// The part of a removal that one mode defines.
pub(crate) struct Leftovers {
    /// Chains and jumps that the mode creates in iptables.
    #[cfg(feature = "iptables")]
    pub(crate) iptables: &'static [Names],
    /// Adds the objects of the mode to the search.
    pub(crate) find: fn(&mut Search) -> Result<(), crate::Error>,
}

/// A search for objects.
pub(crate) struct Search {
    scope: Scope,
    found: Vec<Box<dyn Found>>,
    unchecked: Vec<Error>,
    /// Names of iptables objects of all modes.
    #[cfg(feature = "iptables")]
    iptables: Vec<&'static Names>,
}

impl Search {
    pub(super) fn new(scope: Scope) -> Self {
        Self {
            scope,
            found: Vec::new(),
            unchecked: Vec::new(),
            #[cfg(feature = "iptables")]
            iptables: Vec::new(),
        }
    }

    /// Returns whether objects of a mode are searched.
    #[cfg(any(feature = "ipvs", feature = "nftables"))]
    pub(crate) fn includes(&self, mode: Mode) -> bool {
        self.scope.includes(&[mode])
    }

    /// Returns the names of iptables objects of all modes in the scope.
    #[cfg(feature = "iptables")]
    pub(crate) fn iptables_names(&self) -> Vec<&'static Names> {
        let all = self.iptables.iter().copied();
        all.filter(|names| self.scope.includes(names.modes))
            .collect()
    }

    /// Adds names of iptables objects of a mode.
    #[cfg(feature = "iptables")]
    pub(super) fn add_iptables_names(&mut self, names: &'static [Names]) {
        self.iptables.extend(names);
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
        Removal {
            unchecked: self.unchecked,
            ..plan(&self.found, excluded)
        }
    }
}
