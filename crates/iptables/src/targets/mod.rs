//! Targets: what is done with a packet that matches, one file each.

mod connmark;

mod ct;

mod log;

mod mark;

mod masquerade;

mod nat;

mod redirect;

mod reject;

mod set;

mod tproxy;

use std::borrow::Cow;
use std::fmt;

use crate::options::{Extension, Parsed, Values};
use crate::{ChainName, Family};

pub use connmark::{Connmark, ConnmarkAction, Masks, Shift};
pub use ct::{Ct, CtEvents, Zone, ZoneDirection};
pub use log::Log;
pub use mark::Mark;
pub use masquerade::Masquerade;
pub use nat::{AddressRange, Dnat, NatPorts, Snat};
pub use redirect::Redirect;
pub use reject::Reject;
pub use set::{Set, SetReference};
pub use tproxy::Tproxy;

/// Names of extensions that are kept as they are written, and name no chains.
const OTHERS: &[&str] = &[
    "AUDIT",
    "CHECKSUM",
    "CLASSIFY",
    "CLUSTERIP",
    "CONNSECMARK",
    "DNPT",
    "DSCP",
    "ECN",
    "HL",
    "HMARK",
    "IDLETIMER",
    "LED",
    "NETMAP",
    "NFLOG",
    "NFQUEUE",
    "QUEUE",
    "RATEEST",
    "SECMARK",
    "SNPT",
    "SYNPROXY",
    "TCPMSS",
    "TCPOPTSTRIP",
    "TEE",
    "TOS",
    "TRACE",
    "TTL",
    "ULOG",
];

/// Defines [`Target`] and hands out its work.
macro_rules! targets {
    (
        $($(#[$verdict_doc:meta])* $verdict:ident = $verdict_name:literal,)*
        ;
        $($(#[$doc:meta])* $variant:ident($ty:ty) = $name:literal,)*
    ) => {
        /// What is done with a packet: `-j NAME` with its options.
        #[derive(Clone, Debug, Eq, PartialEq)]
        #[non_exhaustive]
        pub enum Target<'a> {
            $($(#[$verdict_doc])* $verdict,)*
            $($(#[$doc])* $variant($ty),)*
            /// The rules of this chain are next; then those after this one.
            Jump(ChainName),
            /// The rules of this chain are next; then those after the last jump.
            Goto(ChainName),
            /// What is not known, as it was written, from `-j` on.
            Other(Cow<'a, str>),
        }

        impl<'a> Target<'a> {
            /// The names of all that are known, as they stand behind `-j`.
            pub const NAMES: &'static [&'static str] = &[$($verdict_name,)* $($name),*];

            /// Makes the target of this name, without options.
            ///
            /// A name of none is that of a chain.
            pub(crate) fn open(name: &str) -> Option<Self> {
                match name {
                    $($verdict_name => Some(Self::$verdict),)*
                    $($name => Some(Self::$variant(<$ty>::open())),)*
                    _ if OTHERS.contains(&name) => None,
                    _ => ChainName::new(name).ok().map(Self::Jump),
                }
            }

            /// Returns how many options a complete one was given at least.
            pub(crate) fn min_options(&self) -> usize {
                match self {
                    $(Self::$variant(it) => it.min_options(),)*
                    _ => 0,
                }
            }

            /// Takes an option with its values, if it is one of its own.
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
    /// The packet passes.
    Accept = "ACCEPT",
    /// The packet vanishes.
    Drop = "DROP",
    /// The packet is not tracked.
    Notrack = "NOTRACK",
    /// The rules after the last jump are next, or the policy of the chain.
    Return = "RETURN",
    ;
    /// The mark of the connection is changed or copied.
    Connmark(Connmark) = "CONNMARK",
    /// Connection tracking is told how to treat the packet.
    Ct(Ct<'a>) = "CT",
    /// The destination is changed.
    Dnat(Dnat) = "DNAT",
    /// A line is written to the kernel's log.
    Log(Log<'a>) = "LOG",
    /// The mark of the packet is changed.
    Mark(Mark) = "MARK",
    /// The source becomes an address of the interface it goes out by.
    Masquerade(Masquerade) = "MASQUERADE",
    /// This host becomes the destination.
    Redirect(Redirect) = "REDIRECT",
    /// The packet vanishes, and its sender is told.
    Reject(Reject) = "REJECT",
    /// Sets of ipset get or lose elements.
    Set(Set<'a>) = "SET",
    /// The source is changed.
    Snat(Snat) = "SNAT",
    /// A socket of this host gets the packet as it is.
    Tproxy(Tproxy) = "TPROXY",
}

impl Target<'_> {
    /// Tells what iptables of the family takes where nothing is told.
    pub(crate) fn apply_family_defaults(&mut self, family: Family) {
        match self {
            Self::Reject(reject) => *reject = reject.for_family(family),
            Self::Tproxy(tproxy) => tproxy.apply_family_defaults(family),
            _ => {}
        }
    }
}
