//! Targets: `-j NAME` with its options, jumps and gotos.
//!
//! The types are exhaustive, except [`Target`]: their fields are all options of the
//! extension in iptables 1.8. A target with another option is [`Target::Other`].

mod audit;

mod checksum;

mod classify;

mod connmark;

mod connsecmark;

mod ct;

mod dnat;

mod dnpt;

mod dscp;

mod ecn;

mod hl;

mod hmark;

mod idletimer;

mod led;

mod log;

mod mark;

mod masquerade;

mod nat;

mod netmap;

mod nflog;

mod nfqueue;

mod rateest;

mod redirect;

mod reject;

mod secmark;

mod set;

mod snat;

mod snpt;

mod synproxy;

mod tcpmss;

mod tcpoptstrip;

mod tee;

mod tos;

mod tproxy;

mod ttl;

use std::borrow::Cow;
use std::fmt;

use crate::options::{Extension, Parsed, Values};
use crate::{ChainName, Family};

pub use audit::{Audit, AuditType};
pub use checksum::Checksum;
pub use classify::{ClassId, Classify};
pub use connmark::{Connmark, ConnmarkAction, Masks, Shift};
pub use connsecmark::Connsecmark;
pub use ct::{Ct, CtEvents, Zone, ZoneDirection};
pub use dnat::Dnat;
pub use dnpt::Dnpt;
pub use dscp::Dscp;
pub use ecn::Ecn;
pub use hl::Hl;
pub use hmark::{Hex, Hmark, HmarkTuple};
pub use idletimer::Idletimer;
pub use led::{Led, LedDelay, LedTrigger};
pub use log::Log;
pub use mark::Mark;
pub use masquerade::Masquerade;
pub use nat::{AddressRange, NatPorts};
pub use netmap::Netmap;
pub use nflog::Nflog;
pub use nfqueue::Nfqueue;
#[cfg(feature = "nft")]
pub(crate) use rateest::times;
pub use rateest::{EstimatorTime, Rateest};
pub use redirect::Redirect;
pub use reject::Reject;
pub use secmark::Secmark;
pub use set::{Set, SetReference};
pub use snat::Snat;
pub use snpt::Snpt;
pub use synproxy::Synproxy;
pub use tcpmss::Tcpmss;
pub use tcpoptstrip::{TcpOptions, Tcpoptstrip};
pub use tee::Tee;
pub use tos::Tos;
pub use tproxy::Tproxy;
pub use ttl::Ttl;

/// Names of unsupported target extensions, which are preserved as text and are no
/// chain names.
const OTHERS: &[&str] = &["CLUSTERIP", "QUEUE", "ULOG"];

/// Defines [`Target`] and dispatches to its variants.
macro_rules! targets {
    (
        $($(#[$verdict_doc:meta])* $verdict:ident = $verdict_name:literal,)*
        ;
        $($(#[$doc:meta])* $variant:ident($ty:ty) = $name:literal,)*
    ) => {
        /// A target: `-j NAME` with its options.
        #[derive(Clone, Debug, Eq, PartialEq)]
        #[non_exhaustive]
        pub enum Target<'a> {
            $($(#[$verdict_doc])* $verdict,)*
            $($(#[$doc])* $variant($ty),)*
            /// Jumps to a chain and returns after this rule.
            Jump(ChainName),
            /// Goes to a chain and returns after the last jump.
            Goto(ChainName),
            /// Unsupported text, from `-j` on.
            Other(Cow<'a, str>),
        }

        impl<'a> Target<'a> {
            /// The names of all supported targets.
            pub const NAMES: &'static [&'static str] = &[$($verdict_name,)* $($name),*];

            /// Returns the name; `None` for text and chains.
            pub fn name(&self) -> Option<&'static str> {
                match self {
                    $(Self::$verdict => Some($verdict_name),)*
                    $(Self::$variant(_) => Some($name),)*
                    _ => None,
                }
            }

            /// Returns the target with this name, before any option is parsed.
            ///
            /// Any other name is a chain name.
            pub(crate) fn open(name: &str) -> Option<Self> {
                match name {
                    $($verdict_name => Some(Self::$verdict),)*
                    $($name => Some(Self::$variant(<$ty>::open())),)*
                    _ if OTHERS.contains(&name) => None,
                    _ => ChainName::new(name).ok().map(Self::Jump),
                }
            }

            /// Returns the names of all options.
            pub(crate) fn options(&self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant(_) => <$ty>::options(),)*
                    _ => &[],
                }
            }

            /// Returns the minimum number of options of a complete target.
            pub(crate) fn min_options(&self) -> usize {
                match self {
                    $(Self::$variant(it) => it.min_options(),)*
                    _ => 0,
                }
            }

            /// Parses an option with its values, if the target has this option.
            pub(crate) fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
                match self {
                    $(Self::$variant(it) => it.parse_option(option, values),)*
                    _ => Ok(false),
                }
            }
        }

        impl fmt::Display for Target<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$verdict => f.write_str(concat!("-j ", $verdict_name)),)*
                    $(Self::$variant(it) => it.fmt(f),)*
                    Self::Jump(chain) => write!(f, "-j {chain}"),
                    Self::Goto(chain) => write!(f, "-g {chain}"),
                    Self::Other(text) => f.write_str(text),
                }
            }
        }

        $(impl<'a> From<$ty> for Target<'a> {
            fn from(it: $ty) -> Self {
                Self::$variant(it)
            }
        })*
    };
}

targets! {
    /// Accepts the packet.
    Accept = "ACCEPT",
    /// Drops the packet.
    Drop = "DROP",
    /// Disables connection tracking for the packet.
    Notrack = "NOTRACK",
    /// Returns to the calling chain, or applies the policy.
    Return = "RETURN",
    /// Traces the packet through all rules.
    Trace = "TRACE",
    ;
    /// Creates audit records.
    Audit(Audit) = "AUDIT",
    /// Computes missing checksums.
    Checksum(Checksum) = "CHECKSUM",
    /// Sets the scheduling class.
    Classify(Classify) = "CLASSIFY",
    /// Changes or copies the connection mark.
    Connmark(Connmark) = "CONNMARK",
    /// Copies security marks.
    Connsecmark(Connsecmark) = "CONNSECMARK",
    /// Sets connection tracking parameters.
    Ct(Ct<'a>) = "CT",
    /// Changes the destination.
    Dnat(Dnat) = "DNAT",
    /// Translates the prefix of destination addresses.
    Dnpt(Dnpt) = "DNPT",
    /// Sets the differentiated services code point.
    Dscp(Dscp) = "DSCP",
    /// Removes explicit congestion notification.
    Ecn(Ecn) = "ECN",
    /// Changes the hop limit.
    Hl(Hl) = "HL",
    /// Sets the packet mark to a hash.
    Hmark(Hmark) = "HMARK",
    /// Notifies processes of idle interfaces.
    Idletimer(Idletimer<'a>) = "IDLETIMER",
    /// Switches an LED on.
    Led(Led<'a>) = "LED",
    /// Logs to the kernel log.
    Log(Log<'a>) = "LOG",
    /// Changes the packet mark.
    Mark(Mark) = "MARK",
    /// Changes the source to an address of the outgoing interface.
    Masquerade(Masquerade) = "MASQUERADE",
    /// Maps a network to another one.
    Netmap(Netmap) = "NETMAP",
    /// Logs to a netlink multicast group.
    Nflog(Nflog<'a>) = "NFLOG",
    /// Passes packets to a process.
    Nfqueue(Nfqueue) = "NFQUEUE",
    /// Estimates the rate of the packets.
    Rateest(Rateest<'a>) = "RATEEST",
    /// Changes the destination to this host.
    Redirect(Redirect) = "REDIRECT",
    /// Drops the packet and notifies its sender.
    Reject(Reject) = "REJECT",
    /// Sets the security mark.
    Secmark(Secmark<'a>) = "SECMARK",
    /// Adds or deletes IP set entries.
    Set(Set<'a>) = "SET",
    /// Changes the source.
    Snat(Snat) = "SNAT",
    /// Translates the prefix of source addresses.
    Snpt(Snpt) = "SNPT",
    /// Completes TCP handshakes.
    Synproxy(Synproxy) = "SYNPROXY",
    /// Changes the maximum segment size of TCP.
    Tcpmss(Tcpmss) = "TCPMSS",
    /// Removes TCP options.
    Tcpoptstrip(Tcpoptstrip) = "TCPOPTSTRIP",
    /// Sends a copy of the packet to a host.
    Tee(Tee<'a>) = "TEE",
    /// Changes the type of service.
    Tos(Tos) = "TOS",
    /// Redirects the packet unchanged to a local socket.
    Tproxy(Tproxy) = "TPROXY",
    /// Changes the time to live.
    Ttl(Ttl) = "TTL",
}

impl Target<'_> {
    /// Sets unset values to the defaults of the family.
    pub(crate) fn apply_family_defaults(&mut self, family: Family) {
        match self {
            Self::Reject(reject) => *reject = reject.for_family(family),
            Self::Tproxy(tproxy) => tproxy.apply_family_defaults(family),
            _ => {}
        }
    }
}
