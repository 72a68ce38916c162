//! Match extensions, one file each: struct, text in both directions and tests.

mod addrtype;

mod comment;

mod conntrack;

mod icmp;

mod limit;

mod mark;

mod multiport;

mod nfacct;

mod owner;

mod physdev;

mod ports;

mod recent;

mod sctp;

mod set;

mod state;

mod statistic;

mod tcp;

mod udp;

use std::borrow::Cow;
use std::fmt;

use crate::Family;
use crate::options::{Extension, Parsed, Values};

pub use addrtype::{AddrType, AddressTypes};
pub use comment::Comment;
pub use conntrack::{Connection, Conntrack, CtDirection, CtState, CtStatus};
pub use icmp::{Icmp, Icmp6, IcmpType};
pub use limit::{Limit, Rate};
pub use mark::Mark;
pub use multiport::{Multiport, MultiportKind};
pub use nfacct::Nfacct;
pub use owner::Owner;
pub use physdev::Physdev;
pub use recent::{Recent, RecentAction};
pub use sctp::{Chunk, Chunks, ChunksMode, Sctp};
pub use set::{CounterMatch, Set};
pub use state::State;
pub use statistic::{InvalidProbability, Probability, Statistic};
pub use tcp::{Flags, FlagsMatch, Tcp};
pub use udp::Udp;

/// Defines [`Match`] and hands out its work.
macro_rules! matches {
    ($($(#[$doc:meta])* $variant:ident($ty:ty) = $name:literal $(| $alias:literal)*,)*) => {
        /// Something a packet has to be: `-m NAME` with its options.
        #[derive(Clone, Debug, Eq, PartialEq)]
        #[non_exhaustive]
        pub enum Match<'a> {
            $($(#[$doc])* $variant($ty),)*
            /// What is not known, as it was written, from `-m` on.
            Other(Cow<'a, str>),
        }

        impl<'a> Match<'a> {
            /// The names of all that are known, as they stand behind `-m`.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Makes the match of this name, without options.
            pub(crate) fn open(name: &str) -> Option<Self> {
                match name {
                    $($name $(| $alias)* => Some(Self::$variant(<$ty>::open())),)*
                    _ => None,
                }
            }

            /// Returns how many options a complete one was given at least.
            pub(crate) fn min_options(&self) -> usize {
                match self {
                    $(Self::$variant(it) => it.min_options(),)*
                    Self::Other(_) => 0,
                }
            }

            /// Takes an option with its values, if it is one of its own.
            pub(crate) fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
                match self {
                    $(Self::$variant(it) => it.parse_option(option, values),)*
                    Self::Other(_) => Ok(false),
                }
            }
        }

        impl fmt::Display for Match<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant(it) => it.fmt(f),)*
                    Self::Other(text) => f.write_str(text),
                }
            }
        }

        $(impl<'a> From<$ty> for Match<'a> {
            fn from(it: $ty) -> Self {
                Self::$variant(it)
            }
        })*
    };
}

matches! {
    /// Kinds of addresses, such as those of the host.
    AddrType(AddrType) = "addrtype",
    /// A remark.
    Comment(Comment<'a>) = "comment",
    /// What connection tracking knows.
    Conntrack(Conntrack) = "conntrack",
    /// A type of ICMP messages.
    Icmp(Icmp) = "icmp",
    /// A type of messages of ICMP for IPv6.
    Icmp6(Icmp6) = "icmp6" | "icmpv6" | "ipv6-icmp",
    /// So many packets and no more.
    Limit(Limit) = "limit",
    /// The mark of the packet.
    Mark(Mark) = "mark",
    /// Several ports at once.
    Multiport(Multiport) = "multiport",
    /// Counts in an object that has a name.
    Nfacct(Nfacct<'a>) = "nfacct",
    /// Who sent the packet.
    Owner(Owner) = "owner",
    /// Ports of a bridge.
    Physdev(Physdev<'a>) = "physdev",
    /// Lists of addresses seen of late.
    Recent(Recent<'a>) = "recent",
    /// Ports and chunks of SCTP.
    Sctp(Sctp) = "sctp",
    /// AddressRange and ports in a set of ipset.
    Set(Set<'a>) = "set",
    /// The state of the connection, as old rules ask for it.
    State(State) = "state",
    /// Some packets out of many.
    Statistic(Statistic) = "statistic",
    /// Ports, flags and options of TCP.
    Tcp(Tcp) = "tcp",
    /// Ports of UDP.
    Udp(Udp) = "udp",
}

impl Match<'_> {
    /// Tells what iptables of the family takes where nothing is told.
    pub(crate) fn apply_family_defaults(&mut self, family: Family) {
        if let Self::Recent(recent) = self {
            recent.apply_family_defaults(family);
        }
    }
}
