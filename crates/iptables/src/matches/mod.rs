//! Match extensions: `-m NAME` with its options.
//!
//! The types are exhaustive, except [`Match`]: their fields are all options of the
//! extension in iptables 1.8. A match with another option is [`Match::Other`].

mod addrtype;

mod comment;

mod conntrack;

mod icmp;

mod ipvs;

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
pub use ipvs::{Ipvs, IpvsMethod};
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

/// Defines [`Match`] and dispatches to its variants.
macro_rules! matches {
    ($($(#[$doc:meta])* $variant:ident($ty:ty) = $name:literal $(| $alias:literal)*,)*) => {
        /// A match extension: `-m NAME` with its options.
        #[derive(Clone, Debug, Eq, PartialEq)]
        #[non_exhaustive]
        pub enum Match<'a> {
            $($(#[$doc])* $variant($ty),)*
            /// Unsupported text, from `-m` on.
            Other(Cow<'a, str>),
        }

        impl<'a> Match<'a> {
            /// The names of all supported matches.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Returns the match with this name, before any option is parsed.
            pub(crate) fn open(name: &str) -> Option<Self> {
                match name {
                    $($name $(| $alias)* => Some(Self::$variant(<$ty>::open())),)*
                    _ => None,
                }
            }

            /// Returns the minimum number of options of a complete match.
            pub(crate) fn min_options(&self) -> usize {
                match self {
                    $(Self::$variant(it) => it.min_options(),)*
                    Self::Other(_) => 0,
                }
            }

            /// Parses an option with its values, if the match has this option.
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
    /// Address types, such as addresses of this host.
    AddrType(AddrType) = "addrtype",
    /// Comment.
    Comment(Comment<'a>) = "comment",
    /// Connection tracking state.
    Conntrack(Conntrack) = "conntrack",
    /// ICMP type.
    Icmp(Icmp) = "icmp",
    /// ICMPv6 type.
    Icmp6(Icmp6) = "icmp6" | "icmpv6" | "ipv6-icmp",
    /// IPVS connection.
    Ipvs(Ipvs) = "ipvs",
    /// Rate limit.
    Limit(Limit) = "limit",
    /// Packet mark.
    Mark(Mark) = "mark",
    /// A list of ports.
    Multiport(Multiport) = "multiport",
    /// Named nfacct counter.
    Nfacct(Nfacct<'a>) = "nfacct",
    /// Owner of the sending socket.
    Owner(Owner) = "owner",
    /// Bridge ports.
    Physdev(Physdev<'a>) = "physdev",
    /// Lists of recently seen addresses.
    Recent(Recent<'a>) = "recent",
    /// SCTP ports and chunk types.
    Sctp(Sctp) = "sctp",
    /// IP set membership.
    Set(Set<'a>) = "set",
    /// Connection state, deprecated form.
    State(State) = "state",
    /// A random or periodic sample of packets.
    Statistic(Statistic) = "statistic",
    /// TCP ports, flags and options.
    Tcp(Tcp) = "tcp",
    /// UDP ports.
    Udp(Udp) = "udp",
}

impl Match<'_> {
    /// Sets unset values to the defaults of the family.
    pub(crate) fn apply_family_defaults(&mut self, family: Family) {
        if let Self::Recent(recent) = self {
            recent.apply_family_defaults(family);
        }
    }
}
