//! Errors of the engine.

use vipline_reconcile::{MemoryError, Reason};
use vipline_service_model::Family;

use crate::Mode;

/// Errors of the engine, its kernel or its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The in-memory kernel [`Memory`](vipline_reconcile::Memory) rejected a commit, as a
    /// test requested.
    #[error("in-memory kernel: {0}")]
    Memory(#[from] MemoryError),
    /// The engine was created without a kernel.
    #[error("no kernel: this engine only plans")]
    NoKernel,
    /// The bit number of a packet mark is above 31.
    #[error("a packet mark has no bit {0}")]
    NoSuchBit(u8),
    /// The mode does not exist or is not built in.
    #[error("no proxy mode {0:?}; built in: {names}", names = built_in())]
    NoSuchMode(Box<str>),
    /// The kernel rejected an object that the rules of all Services need.
    #[error("{object}: {reason}")]
    Rejected {
        /// The object, as the mode's native tool names it.
        object: String,
        /// Reason for the rejection.
        reason: Reason,
    },
    /// The kernel does not support the objects that a mode needs regardless of Services.
    #[error("the kernel does not support mode {mode} for {family}: {reasons}")]
    Unsupported {
        /// The mode.
        mode: Mode,
        /// The family.
        family: Family,
        /// The rejected operations with their reasons, separated by semicolons.
        reasons: String,
    },
    /// The kernel accepted an invalid table, so [`Mode::probe`] cannot check the kernel.
    #[error("the kernel accepted an invalid table; the check is not possible")]
    ProbeAccepted,
    /// A conntrack request failed.
    #[error(transparent)]
    Conntrack(#[from] vipline_conntrack::Error),
    /// iptables rejected an input, or its programs could not be run.
    #[cfg(feature = "iptables")]
    #[error(transparent)]
    Iptables(#[from] vipline_iptables::Error),
    /// An ipset request failed.
    #[cfg(feature = "ipvs")]
    #[error(transparent)]
    Ipset(#[from] vipline_ipset::Error),
    /// An IPVS request failed, or the kernel does not support IPVS.
    #[cfg(feature = "ipvs")]
    #[error(transparent)]
    Ipvs(#[from] vipline_ipvs::Error),
    /// The timeouts of IPVS cannot be set.
    #[cfg(feature = "ipvs")]
    #[error("IPVS timeouts cannot be set and stay unchanged")]
    IpvsTimeouts(#[source] vipline_ipvs::Error),
    /// A rtnetlink request about a link or an address failed.
    #[cfg(feature = "ipvs")]
    #[error(transparent)]
    Rtnl(#[from] vipline_rtnl::Error),
    /// An nf_tables request failed.
    #[cfg(any(feature = "iptables", feature = "nftables"))]
    #[error(transparent)]
    Nftables(#[from] vipline_nftables::Error),
}

fn built_in() -> String {
    let names: Vec<_> = Mode::BUILT_IN.iter().map(|mode| mode.name()).collect();
    names.join(", ")
}
