//! Planned removals of what proxies programmed, and their steps.
//!
//! A mode finds its objects on a node ([`Found`]) and says how to remove them ([`Remove`]).

use std::fmt;

use ipnet::IpNet;

use crate::Error;

/// An object to remove, or several that are removed atomically.
///
/// Displays as the shell command that does the same.
#[derive(Debug)]
pub struct Step(Box<dyn Remove>);

impl Step {
    /// Creates a step.
    pub fn new(removal: impl Remove + 'static) -> Self {
        Self(Box::new(removal))
    }

    /// Removes the object. Blocks until the kernel or the program has replied.
    ///
    /// Requires CAP_NET_ADMIN, and CAP_NET_RAW for legacy iptables.
    ///
    /// # Errors
    ///
    /// - [`Error::Operation`], [`Error::NotRemoved`] or the error of the client: the removal
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
pub trait Remove: fmt::Debug + fmt::Display + Send + Sync {
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
    /// Applies all steps, each when the iterator reaches it. Returns each step with its
    /// result.
    pub fn apply(&self) -> impl Iterator<Item = (&Step, Result<(), Error>)> {
        self.steps.iter().map(|step| (step, step.apply()))
    }
}

/// Objects of one mode that were found on the node.
pub trait Found {
    /// Adds the steps that remove the objects, and messages about objects that stay.
    fn plan(&self, excluded: &[IpNet], removal: &mut Removal);
}

/// Plans the removal of the objects found. The result is pure: nothing is read.
pub fn plan(found: &[Box<dyn Found>], excluded: &[IpNet]) -> Removal {
    let mut removal = Removal::default();
    for found in found {
        found.plan(excluded, &mut removal);
    }
    removal
}
