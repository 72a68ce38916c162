//! Targets: what is done with a packet that matches, one file each.

mod masquerade;

mod mark;

mod nat;

mod reject;

use std::borrow::Cow;
use std::fmt;

use crate::options::{Extension, Taken, Values};
use crate::{ChainName, Family};

pub use mark::Mark;
pub use masquerade::Masquerade;
pub use nat::{Addresses, Dnat, NatPorts, Snat};
pub use reject::Reject;

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
            pub(crate) fn least(&self) -> usize {
                match self {
                    $(Self::$variant(it) => it.least(),)*
                    _ => 0,
                }
            }

            /// Takes an option with its values, if it is one of its own.
            pub(crate) fn take(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Taken {
                match self {
                    $(Self::$variant(it) => it.take(option, values),)*
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
    /// The rules after the last jump are next, or the policy of the chain.
    Return = "RETURN",
    ;
    /// The destination is changed.
    Dnat(Dnat) = "DNAT",
    /// The mark of the packet is changed.
    Mark(Mark) = "MARK",
    /// The source becomes an address of the interface it goes out by.
    Masquerade(Masquerade) = "MASQUERADE",
    /// The packet vanishes, and its sender is told.
    Reject(Reject) = "REJECT",
    /// The source is changed.
    Snat(Snat) = "SNAT",
}

impl Target<'_> {
    /// Tells what iptables of the family takes where nothing is told.
    pub(crate) fn fill(&mut self, family: Family) {
        if let Self::Reject(reject) = self {
            *reject = reject.for_family(family);
        }
    }
}
