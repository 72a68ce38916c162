//! Errors of the engine.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::io;

use vipline_netlink::ClientError;
use vipline_reconcile::Reason;
use vipline_service_model::Family;

use crate::Mode;

/// Errors of the engine, its kernel or its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A kernel of the caller failed; see
    /// [`Engine::with_kernels`](crate::Engine::with_kernels).
    #[error("{source}")]
    Custom {
        /// The error of the kernel.
        source: Box<dyn StdError + Send + Sync>,
        /// Whether a retry cannot succeed.
        is_permanent: bool,
    },
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
    /// A request about the tables of iptables in nf_tables failed.
    #[cfg(feature = "iptables")]
    #[error(transparent)]
    IptablesNft(#[from] vipline_iptables::nft::Error),
    /// A call of HNS failed.
    #[cfg(feature = "kernelspace")]
    #[error(transparent)]
    Hns(#[from] vipline_hcn::Error),
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
    /// A rtnetlink request about a link, an address or a route failed.
    #[error(transparent)]
    Rtnl(#[from] vipline_rtnl::Error),
    /// An nf_tables request failed.
    #[cfg(any(feature = "iptables", feature = "nftables"))]
    #[error(transparent)]
    Nftables(#[from] vipline_nftables::Error),
    /// An operation failed.
    #[error("{operation}")]
    Operation {
        /// The operation: a shell command, or words such as `list the addresses of the
        /// interfaces`.
        operation: Box<str>,
        /// The error.
        source: Box<Self>,
    },
    /// A program that a cleanup needs is missing.
    #[error("{name} is not installed")]
    NotInstalled {
        /// Name of the program, without the suffixes `-save` and `-restore`.
        name: Box<str>,
    },
    /// Objects are visible in the kernel, but the program that reads them is missing.
    #[error(
        "{objects}: not checked: {program} is not installed; rules of an earlier kube-proxy \
         there stay and decide about packets"
    )]
    NotChecked {
        /// The objects.
        objects: Box<str>,
        /// Name of the program.
        program: Box<str>,
    },
    /// The kernel rejected a step of a cleanup.
    #[error("{step}: {reason}")]
    NotRemoved {
        /// The step, as a shell command.
        step: Box<str>,
        /// The reason.
        reason: Box<str>,
    },
    /// A line of a saved kernel state is not of the form. Lines are counted from 1.
    #[error("line {0} is no part of a kernel state")]
    StateLine(usize),
    /// The text of a kernel state ends before this line, its last one.
    #[error("the kernel state is incomplete: line {0} is missing")]
    IncompleteState(usize),
    /// A policy `RemoteSubnetRoute` of a network of HNS is invalid.
    ///
    /// Displays as `network vxlan0: Policies[0] (RemoteSubnetRoute): DestinationPrefix
    /// "10.244.2.0": invalid IP address syntax`.
    #[error("network {network}: Policies[{index}] (RemoteSubnetRoute): {reason}")]
    InvalidRoute {
        /// Name of the network.
        network: Box<str>,
        /// Position of the policy.
        index: usize,
        /// The reason.
        reason: Box<str>,
    },
}

impl Error {
    /// Creates an error of a kernel of the caller, which a retry may resolve.
    ///
    /// ```
    /// use proxy_core::Error;
    ///
    /// let error = Error::custom("the switch is offline");
    /// assert_eq!(error.to_string(), "the switch is offline");
    /// assert!(!error.is_permanent());
    /// assert!(Error::custom_permanent("no such switch").is_permanent());
    /// ```
    pub fn custom(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Custom {
            source: source.into(),
            is_permanent: false,
        }
    }

    /// Creates an error of a kernel of the caller, which a retry cannot resolve.
    pub fn custom_permanent(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Custom {
            source: source.into(),
            is_permanent: true,
        }
    }

    /// Adds an operation to an error.
    #[cfg(any(target_os = "linux", feature = "iptables", feature = "nftables"))]
    pub(crate) fn of<E: Into<Self>>(operation: impl std::fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self::Operation {
            operation: operation.to_string().into(),
            source: Box::new(error.into()),
        }
    }

    /// Returns whether a retry cannot succeed, because a privilege, a program or a kernel
    /// feature is missing, or an argument is invalid.
    ///
    /// `false` for all other errors, also if their cause is unknown. A caller may exit if
    /// the first sync fails with a permanent error, because later syncs fail, too.
    ///
    /// ```
    /// use proxy_core::{Error, Mark, nftables};
    ///
    /// assert!(Error::from(nftables::Error::Denied).is_permanent());
    /// assert!(Mark::from_bit(32).unwrap_err().is_permanent());
    /// assert!(!Error::from(nftables::Error::Overrun).is_permanent());
    /// ```
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::NoKernel
            | Self::NoSuchBit(_)
            | Self::NoSuchMode(_)
            | Self::Unsupported { .. }
            | Self::NotInstalled { .. }
            | Self::StateLine(_)
            | Self::IncompleteState(_)
            | Self::InvalidRoute { .. } => true,
            Self::Custom { is_permanent, .. } => *is_permanent,
            Self::Operation { source, .. } => source.is_permanent(),
            Self::Rejected { .. }
            | Self::ProbeAccepted
            | Self::NotChecked { .. }
            | Self::NotRemoved { .. } => false,
            Self::Conntrack(error) => is_missing(error),
            #[cfg(feature = "iptables")]
            Self::Iptables(error) => {
                use vipline_iptables::Error::{Denied, MissingProgram, Outdated, Unsupported};
                matches!(
                    error,
                    Denied { .. } | MissingProgram { .. } | Outdated { .. } | Unsupported { .. }
                )
            }
            #[cfg(feature = "iptables")]
            Self::IptablesNft(error) => is_missing(error),
            #[cfg(feature = "kernelspace")]
            Self::Hns(error) => error.code() == Some(vipline_hcn::HResult::E_ACCESSDENIED),
            #[cfg(feature = "ipvs")]
            Self::Ipset(error) => is_missing(error),
            #[cfg(feature = "ipvs")]
            Self::Ipvs(error) | Self::IpvsTimeouts(error) => is_missing(error),
            Self::Rtnl(error) => {
                matches!(error, vipline_rtnl::Error::Denied) || error.is_unsupported()
            }
            #[cfg(any(feature = "iptables", feature = "nftables"))]
            Self::Nftables(error) => is_missing(error),
        }
    }
}

/// Returns whether a privilege or what the client needs of the kernel is missing.
///
/// A single object that the kernel does not support is not: other objects work.
fn is_missing<R>(error: &ClientError<R>) -> bool {
    matches!(error, ClientError::Denied | ClientError::Unsupported { .. })
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::custom(error)
    }
}

impl From<Box<dyn StdError + Send + Sync>> for Error {
    fn from(error: Box<dyn StdError + Send + Sync>) -> Self {
        Self::custom(error)
    }
}

impl From<Infallible> for Error {
    fn from(error: Infallible) -> Self {
        match error {}
    }
}

#[cfg(feature = "memory")]
impl From<vipline_reconcile::MemoryError> for Error {
    fn from(error: vipline_reconcile::MemoryError) -> Self {
        Self::custom(format!("in-memory kernel: {error}"))
    }
}

fn built_in() -> String {
    let names: Vec<_> = Mode::BUILT_IN.iter().map(|mode| mode.name()).collect();
    names.join(", ")
}

#[cfg(all(test, feature = "ipvs", feature = "nftables"))]
mod tests {
    use vipline_netlink::{Errno, Error as Netlink};

    use super::*;

    #[test]
    fn missing_privileges_programs_and_kernel_features_are_permanent() {
        use vipline_iptables::Error as Iptables;
        let (program, message) = (|| Box::from("iptables-restore"), || Box::from("no"));
        let errors: [Error; 16] = [
            vipline_conntrack::Error::Denied.into(),
            vipline_conntrack::Error::unsupported(None).into(),
            vipline_ipset::Error::Denied.into(),
            vipline_ipset::Error::unsupported(None).into(),
            vipline_ipvs::Error::Denied.into(),
            vipline_ipvs::Error::unsupported(None).into(),
            Error::IpvsTimeouts(vipline_ipvs::Error::Denied),
            vipline_rtnl::Error::Denied.into(),
            vipline_nftables::Error::Denied.into(),
            vipline_nftables::Error::unsupported(Some(Errno::OPNOTSUPP)).into(),
            Iptables::Denied {
                program: program(),
                message: message(),
            }
            .into(),
            Iptables::MissingProgram { program: program() }.into(),
            Iptables::Outdated {
                program: program(),
                answer: message(),
            }
            .into(),
            Iptables::Unsupported {
                program: program(),
                message: message(),
            }
            .into(),
            Error::NoSuchMode("userspace".into()),
            Error::NoKernel,
        ];
        for error in errors {
            assert!(error.is_permanent(), "{error}");
        }
    }

    #[test]
    fn errors_that_may_pass_are_not_permanent() {
        let locked = vipline_iptables::Error::Locked {
            wait: 5,
            message: "held".into(),
        };
        let errors: [Error; 6] = [
            vipline_nftables::Error::from(Netlink::Timeout).into(),
            vipline_ipvs::Error::from(Netlink::Timeout).into(),
            vipline_rtnl::Error::from(Netlink::Overrun).into(),
            vipline_conntrack::Error::from(Netlink::Overrun).into(),
            locked.into(),
            Error::ProbeAccepted,
        ];
        for error in errors {
            assert!(!error.is_permanent(), "{error}");
        }
    }
}
