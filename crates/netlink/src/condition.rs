//! What error numbers mean, and what a kernel lacks.

use std::fmt;

use crate::Errno;

/// What an error number means for a request.
///
/// [`RejectedRequest::condition`](crate::RejectedRequest::condition) returns it, because
/// families of netlink use different numbers for the same condition: a missing service of
/// IPVS is `ESRCH`, a missing link is `ENODEV`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Condition {
    /// The object exists.
    AlreadyExists,
    /// Something uses the object.
    Busy,
    /// A capability is missing.
    Denied,
    /// The object does not exist.
    NotFound,
    /// The kernel lacks a feature.
    Unsupported,
}

impl Condition {
    /// Returns what an error number means for most families of netlink.
    ///
    /// ```
    /// use vipline_netlink::{Condition, Errno};
    ///
    /// assert_eq!(Condition::of(Errno::NOENT), Some(Condition::NotFound));
    /// assert_eq!(Condition::of(Errno::INVAL), None);
    /// ```
    pub fn of(errno: Errno) -> Option<Self> {
        match errno {
            Errno::EXIST => Some(Self::AlreadyExists),
            Errno::BUSY => Some(Self::Busy),
            Errno::PERM => Some(Self::Denied),
            Errno::NOENT => Some(Self::NotFound),
            Errno::OPNOTSUPP => Some(Self::Unsupported),
            _ => None,
        }
    }
}

/// A part of the kernel that a client needs.
///
/// Displays as the end of a sentence that tells what to do:
///
/// ```
/// use vipline_netlink::Feature;
///
/// let feature = Feature::new("nf_tables")
///     .with_module("nf_tables")
///     .with_option("CONFIG_NF_TABLES");
/// let text = "the kernel lacks nf_tables: load the module nf_tables (CONFIG_NF_TABLES)";
/// assert_eq!(feature.to_string(), text);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Feature {
    /// Name, such as `nf_tables`.
    pub name: &'static str,
    /// Module, unless the feature is never one.
    pub module: Option<&'static str>,
    /// Option of the kernel's configuration.
    pub option: Option<&'static str>,
}

impl Feature {
    /// Creates a feature without a module.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            module: None,
            option: None,
        }
    }

    /// Sets the module.
    #[must_use]
    pub const fn with_module(self, module: &'static str) -> Self {
        Self {
            module: Some(module),
            ..self
        }
    }

    /// Sets the option of the kernel's configuration.
    #[must_use]
    pub const fn with_option(self, option: &'static str) -> Self {
        Self {
            option: Some(option),
            ..self
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel lacks {}", self.name)?;
        if let Some(module) = self.module {
            write!(f, ": load the module {module}")?;
        }
        match self.option {
            Some(option) => write!(f, " ({option})"),
            None => Ok(()),
        }
    }
}
