//! Sysctls that modes and configurations require.
//!
//! The engine neither reads nor writes sysctls. A caller applies those of
//! [`Mode::sysctls`](crate::Mode::sysctls) before the first sync.
//!
//! Sysctls below `net` belong to the network namespace of the calling thread. Writing
//! requires root, or CAP_NET_ADMIN for sysctls of a network namespace, and a writable
//! `/proc/sys`. Reading requires no privilege.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

mod kernel;

pub use self::kernel::{CONNTRACK_TCP_BE_LIBERAL, ROOT, is_conntrack_liberal, read, read_in};

/// A sysctl and its required value.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Sysctl {
    /// Path below `/proc/sys`, such as `net/ipv4/ip_forward`.
    pub name: &'static str,
    /// Required value.
    pub value: Cow<'static, str>,
    /// Reason of the requirement, to follow "must be 1,": such as "as required by mode
    /// ipvs".
    pub reason: &'static str,
    /// Flag of kube-proxy that removes the requirement, if there is one.
    pub disable_flag: Option<&'static str>,
}

impl Sysctl {
    /// Creates a requirement that no flag removes.
    pub const fn new(name: &'static str, value: Cow<'static, str>, reason: &'static str) -> Self {
        Self {
            name,
            value,
            reason,
            disable_flag: None,
        }
    }

    /// Sets the flag that removes the requirement.
    #[cfg(feature = "iptables")]
    pub(crate) const fn unless(mut self, disable_flag: &'static str) -> Self {
        self.disable_flag = Some(disable_flag);
        self
    }
}

/// A sysctl that cannot be set.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be set to {}, {}", path.display(), sysctl.value, sysctl.reason)]
#[non_exhaustive]
pub struct Error {
    /// Path of the file.
    pub path: PathBuf,
    /// The sysctl.
    pub sysctl: Sysctl,
    /// The error of the write. If the kernel lacks the sysctl, the file does not exist.
    pub source: io::Error,
}
