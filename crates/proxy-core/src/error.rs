//! What can go wrong between the engine and the kernel.

use vipline_reconcile::{Reason, Refused};

use crate::Mode;

/// What can go wrong between the engine and the kernel, or its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel in memory refused, as only tests make it do.
    #[error("the kernel in memory {0}")]
    Memory(#[from] Refused),
    /// The engine was made without a kernel.
    #[error("there is no kernel: the engine only plans")]
    NoKernel,
    /// A packet mark has 32 bits, counted from 0.
    #[error("a packet mark has no bit {0}")]
    NoSuchBit(u8),
    /// There is no mode of that name, or it is not built in.
    #[error("no proxy mode {0:?}; built in: {names}", names = built_in())]
    NoSuchMode(Box<str>),
    /// The kernel rejected an object that the rules of all Services need.
    #[error("{object}: {reason}")]
    Rejected {
        /// The object, as the tool of the mode names it.
        object: String,
        /// Why the kernel rejected it.
        reason: Reason,
    },
    /// Connection tracking could not be talked to, or refused.
    #[error(transparent)]
    Conntrack(#[from] vipline_conntrack::Error),
    /// iptables refused, or its programs could not be run.
    #[cfg(feature = "iptables")]
    #[error(transparent)]
    Iptables(#[from] vipline_iptables::Error),
    /// ip_set refused, or could not be talked to.
    #[cfg(feature = "ipvs")]
    #[error(transparent)]
    Ipset(#[from] vipline_ipset::Error),
    /// IPVS refused, or the kernel has none.
    #[cfg(feature = "ipvs")]
    #[error(transparent)]
    Ipvs(#[from] vipline_ipvs::Error),
    /// The kernel refused a link or an address.
    #[cfg(feature = "ipvs")]
    #[error(transparent)]
    Rtnl(#[from] vipline_rtnl::Error),
    /// nf_tables refused, or could not be talked to.
    #[cfg(any(feature = "iptables", feature = "nftables"))]
    #[error(transparent)]
    Nftables(#[from] vipline_nftables::Error),
}

fn built_in() -> String {
    let names: Vec<_> = Mode::BUILT_IN.iter().map(|mode| mode.name()).collect();
    names.join(", ")
}
