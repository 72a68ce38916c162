//! Removal of everything that a kube-proxy programmed in any mode, upstream's or this
//! one.
//!
//! [`Removal::find`] reads the state of the kernel and plans typed [`Step`]s. A step
//! displays as the shell command that does the same. [`Removal::apply`] removes the
//! objects step by step. A failed step does not stop the others.
//!
//! Only objects of modes that are built in are found. Each mode owns the names of its
//! objects, the selection and the removal. Objects that rules of other programs use stay.
//!
//! Rules of iptables are read and removed by the iptables programs, all other objects
//! by netlink. If a program is missing although the kernel shows traces of rules, an
//! [error](Removal::unchecked) says so.
//!
//! ```no_run
//! use proxy_core::cleanup::{Removal, Scope};
//!
//! let removal = Removal::find(Scope::AllModes, &[])?;
//! for (step, result) in removal.apply() {
//!     match result {
//!         Ok(()) => println!("removed: {}", step.summary()),
//!         Err(error) => println!("removal failed: {error}"),
//!     }
//! }
//! # Ok::<(), proxy_core::Error>(())
//! ```

use std::fmt;

use ipnet::IpNet;

use crate::Mode;
use crate::backend::Backend;
#[cfg(feature = "iptables")]
use crate::backend::iptables::Names;

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
    pub(crate) fn includes(self, modes: &[Mode]) -> bool {
        match self {
            Self::AllModes => true,
            Self::AllExcept(mode) => !modes.contains(&mode),
        }
    }
}

/// An object to remove, or several that are removed atomically.
///
/// Displays as the shell command that does the same.
#[derive(Debug)]
pub struct Step(Box<dyn Remove>);

impl Step {
    pub(crate) fn new(removal: impl Remove + 'static) -> Self {
        Self(Box::new(removal))
    }

    /// Removes the object. Blocks until the kernel or the program has replied.
    ///
    /// Requires CAP_NET_ADMIN, and CAP_NET_RAW for legacy iptables.
    ///
    /// # Errors
    ///
    /// - [`Error::Operation`], [`Error::Rejected`] or [`Error::Other`]: the removal
    ///   failed.
    /// - [`Error::NotInstalled`]: the iptables program is missing.
    pub fn apply(&self) -> Result<(), Error> {
        self.0.remove()
    }

    /// Returns a summary of one line, for a log.
    pub fn summary(&self) -> String {
        self.0.summary()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An object of a mode that can be removed. Displays as a shell command.
pub(crate) trait Remove: fmt::Debug + fmt::Display + Send + Sync {
    /// Removes the object.
    fn remove(&self) -> Result<(), Error>;

    /// Returns a summary of one line. Default: the shell command.
    fn summary(&self) -> String {
        format!("`{self}`")
    }
}

/// A planned removal.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Removal {
    /// The steps, in order. Rules are removed before the sets that they use.
    pub steps: Vec<Step>,
    /// Messages about objects that stay, with the reason.
    pub stays: Vec<String>,
    /// Errors of checks. The objects that they concern stay.
    pub unchecked: Vec<Error>,
}

impl Removal {
    /// Reads the state of the kernel in the network namespace of the calling thread, and
    /// plans the removal.
    ///
    /// Virtual servers within `excluded` networks stay. Without privileges most objects
    /// cannot be read: requires those of [`Step::apply`].
    ///
    /// # Errors
    ///
    /// [`Error::Nftables`](crate::Error::Nftables) if nf_tables cannot be read, although
    /// the kernel supports it. All other errors are in [`unchecked`](Self::unchecked).
    pub fn find(scope: Scope, excluded: &[IpNet]) -> Result<Self, crate::Error> {
        let mut search = Search::new(scope);
        for mode in leftovers() {
            (mode.find)(&mut search)?;
        }
        let mut removal = plan(&search.found, excluded);
        removal.unchecked = search.unchecked;
        Ok(removal)
    }

    /// Applies all steps, each when the iterator reaches it. Returns each step with its
    /// result.
    pub fn apply(&self) -> impl Iterator<Item = (&Step, Result<(), Error>)> {
        self.steps.iter().map(|step| (step, step.apply()))
    }
}

/// Plans the removal of the objects found. The result is pure: nothing is read.
pub(crate) fn plan(found: &[Box<dyn Found>], excluded: &[IpNet]) -> Removal {
    let mut removal = Removal::default();
    for found in found {
        found.plan(excluded, &mut removal);
    }
    removal
}

/// What a mode contributes to the removal.
pub(crate) struct Leftovers {
    /// Chains and jumps that the mode creates in iptables.
    #[cfg(feature = "iptables")]
    pub(crate) iptables: &'static [Names],
    /// Adds the objects of the mode to the search.
    pub(crate) find: fn(&mut Search) -> Result<(), crate::Error>,
}

/// Returns what the modes that are built in contribute, in the order of the removal.
fn leftovers() -> impl Iterator<Item = Leftovers> {
    let backends = Mode::BUILT_IN.iter().filter_map(|mode| mode.backend().ok());
    backends.map(Backend::leftovers)
}

/// Objects of one mode that were found on the node.
pub(crate) trait Found {
    /// Adds the steps that remove the objects, and messages about objects that stay.
    fn plan(&self, excluded: &[IpNet], removal: &mut Removal);
}

/// A search for objects.
pub(crate) struct Search {
    scope: Scope,
    found: Vec<Box<dyn Found>>,
    unchecked: Vec<Error>,
}

impl Search {
    fn new(scope: Scope) -> Self {
        Self {
            scope,
            found: Vec::new(),
            unchecked: Vec::new(),
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
        iptables_names(self.scope)
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
}

/// Returns the names of iptables objects of all modes in a scope.
#[cfg(feature = "iptables")]
pub(crate) fn iptables_names(scope: Scope) -> Vec<&'static Names> {
    let all = leftovers().flat_map(|mode| mode.iptables);
    all.filter(|names| scope.includes(names.modes)).collect()
}

/// An error of a check or a step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program is missing.
    #[error("{name} is not installed")]
    NotInstalled {
        /// Name of the program, without the suffixes `-save` and `-restore`.
        name: String,
    },
    /// Objects are visible in the kernel, but the program that reads them is missing.
    #[error("{objects}: not checked: {program} is not installed")]
    NotChecked {
        /// The objects.
        objects: String,
        /// Name of the program.
        program: String,
    },
    /// An operation failed.
    #[error("{operation}")]
    Operation {
        /// The operation: a shell command, or a list.
        operation: String,
        /// The error.
        source: crate::Error,
    },
    /// Any other error. Its text names the object.
    #[error(transparent)]
    Other(crate::Error),
    /// The kernel rejected a step.
    #[error("{step}: {reason}")]
    Rejected {
        /// The step, as a shell command.
        step: String,
        /// The reason.
        reason: String,
    },
}

impl Error {
    /// Adds an operation to an error.
    pub(crate) fn operation<E: Into<crate::Error>>(
        operation: impl fmt::Display,
    ) -> impl FnOnce(E) -> Self {
        move |error| Self::Operation {
            operation: operation.to_string(),
            source: error.into(),
        }
    }
}
