//! Match extensions: `-m NAME` with its options.
//!
//! The types are exhaustive, except [`Match`]: their fields are all options of the
//! extension in iptables 1.8. A match with another option is [`Match::Other`].

mod addrtype;

mod ah;

mod bpf;

mod cgroup;

mod cluster;

mod comment;

mod connbytes;

mod connlabel;

mod connlimit;

mod connmark;

mod conntrack;

mod cpu;

mod dccp;

mod devgroup;

mod dscp;

mod dst;

mod ecn;

mod esp;

mod eui64;

mod frag;

mod hashlimit;

mod hbh;

mod helper;

mod hl;

mod icmp;

mod icmp6;

mod ids;

mod ipcomp;

mod iprange;

mod ipv6header;

mod ipvs;

mod length;

mod limit;

mod mac;

mod mark;

mod mh;

mod multiport;

mod nfacct;

mod osf;

mod owner;

mod physdev;

mod pkttype;

mod policy;

mod ports;

mod quota;

mod rateest;

mod realm;

mod recent;

mod rpfilter;

mod rt;

mod sctp;

mod set;

mod socket;

mod srh;

mod state;

mod statistic;

mod string;

mod tcp;

mod tcpmss;

mod time;

mod tos;

mod ttl;

mod u32;

mod udp;

use std::borrow::Cow;
use std::fmt;

use crate::extensions::extensions;
use crate::negatable::Negatable;
use crate::protocol::Protocol;
use crate::structure::{Context, Encoded};

pub use addrtype::{AddrType, AddressTypes};
pub use ah::Ah;
pub use bpf::{Bpf, BpfInstruction, Bytecode};
pub use cgroup::Cgroup;
pub use cluster::{Cluster, ClusterNodes, HashSeed};
pub use comment::Comment;
pub use connbytes::{Connbytes, ConnbytesDirection, ConnbytesMode, CountRange};
pub use connlabel::{ConnectionLabel, Connlabel};
pub use connlimit::Connlimit;
pub use connmark::Connmark;
pub use conntrack::{Connection, Conntrack, CtDirection, CtState, CtStatus};
pub use cpu::Cpu;
pub use dccp::{Dccp, DccpTypes};
pub use devgroup::Devgroup;
pub use dscp::{Dscp, DscpValue};
pub use dst::Dst;
pub use ecn::Ecn;
pub use esp::Esp;
pub use eui64::Eui64;
pub use frag::Frag;
pub use hashlimit::{Hashlimit, HashlimitMode, HashlimitRate};
pub use hbh::{Hbh, HeaderOptions};
pub use helper::Helper;
pub use hl::Hl;
pub use icmp::{Icmp, IcmpType};
pub use icmp6::Icmp6;
pub use ipcomp::Ipcomp;
pub use iprange::{AddressSpan, IpRange};
pub use ipv6header::{Ipv6Header, Ipv6Headers};
pub use ipvs::{Ipvs, IpvsMethod};
pub use length::Length;
pub use limit::{Limit, Rate};
pub use mac::{Mac, MacAddress};
pub use mark::Mark;
pub use mh::Mh;
pub use multiport::{Multiport, MultiportKind};
pub use nfacct::Nfacct;
pub use osf::Osf;
pub use owner::Owner;
pub use physdev::Physdev;
pub use pkttype::{PacketType, Pkttype};
pub use policy::{Policy, PolicyDirection, PolicyElement, PolicyKind, PolicyMode};
pub use quota::Quota;
pub use rateest::{Rateest, RateestComparison, RateestUnit};
pub use realm::Realm;
pub use recent::{Recent, RecentAction};
pub use rpfilter::Rpfilter;
pub use rt::{Addresses, Rt};
pub use sctp::{Chunk, Chunks, ChunksMode, Sctp};
pub use set::{CounterMatch, Set};
pub use socket::Socket;
pub use srh::Srh;
pub use state::State;
pub use statistic::{InvalidProbability, Probability, Statistic};
pub use string::{Algorithm, Pattern, StringMatch};
pub use tcp::{Flags, FlagsMatch, Tcp};
pub use tcpmss::Tcpmss;
pub use time::{Date, MonthDays, Time, TimeOfDay, WeekDays};
pub use tos::{Tos, TosValue};
pub use ttl::Ttl;
pub use u32::{U32, U32Operation, U32Test, U32Tests};
pub use udp::Udp;

extensions! {
    /// A match extension: `-m NAME` with its options.
    enum Match;

    /// The names of all supported matches.
    NAMES;

    without_options {}

    others {
        /// Unsupported text, from `-m` on.
        Other(Cow<'a, str>),
    }

    /// Address types, such as addresses of this host.
    AddrType(AddrType) = "addrtype",
    /// Authentication header of IPsec.
    Ah(Ah) = "ah",
    /// BPF program.
    Bpf(Bpf<'a>) = "bpf",
    /// Control group of the sending socket.
    Cgroup(Cgroup<'a>) = "cgroup",
    /// Share of a node of a cluster.
    Cluster(Cluster) = "cluster",
    /// Comment.
    Comment(Comment<'a>) = "comment",
    /// Transferred bytes or packets of a connection.
    Connbytes(Connbytes) = "connbytes",
    /// Connection label.
    Connlabel(Connlabel) = "connlabel",
    /// Number of parallel connections.
    Connlimit(Connlimit) = "connlimit",
    /// Connection mark.
    Connmark(Connmark) = "connmark",
    /// Connection tracking state.
    Conntrack(Conntrack) = "conntrack",
    /// CPU that processes the packet.
    Cpu(Cpu) = "cpu",
    /// DCCP ports and packet types.
    Dccp(Dccp) = "dccp",
    /// Groups of interfaces.
    Devgroup(Devgroup) = "devgroup",
    /// Differentiated services code point.
    Dscp(Dscp) = "dscp",
    /// Destination options header of IPv6.
    Dst(Dst) = "dst",
    /// Explicit congestion notification.
    Ecn(Ecn) = "ecn",
    /// Encapsulating security payload of IPsec.
    Esp(Esp) = "esp",
    /// Source address of the interface of the sender.
    Eui64(Eui64) = "eui64",
    /// Fragment header of IPv6.
    Frag(Frag) = "frag",
    /// Rate limit by address and port.
    Hashlimit(Hashlimit<'a>) = "hashlimit",
    /// Hop-by-hop options header of IPv6.
    Hbh(Hbh) = "hbh",
    /// Conntrack helper.
    Helper(Helper<'a>) = "helper",
    /// Hop limit.
    Hl(Hl) = "hl",
    /// ICMP type.
    Icmp(Icmp) = "icmp",
    /// ICMPv6 type.
    Icmp6(Icmp6) = "icmp6" | "icmpv6" | "ipv6-icmp",
    /// IP payload compression.
    Ipcomp(Ipcomp) = "ipcomp",
    /// Ranges of addresses.
    IpRange(IpRange) = "iprange",
    /// Extension headers of IPv6.
    Ipv6Header(Ipv6Header) = "ipv6header",
    /// IPVS connection.
    Ipvs(Ipvs) = "ipvs",
    /// Packet length.
    Length(Length) = "length",
    /// Rate limit.
    Limit(Limit) = "limit",
    /// Source address of the Ethernet frame.
    Mac(Mac) = "mac",
    /// Packet mark.
    Mark(Mark) = "mark",
    /// Mobility header of IPv6.
    Mh(Mh) = "mh",
    /// A list of ports.
    Multiport(Multiport) = "multiport",
    /// Named nfacct counter.
    Nfacct(Nfacct<'a>) = "nfacct",
    /// Operating system of the sender.
    Osf(Osf<'a>) = "osf",
    /// Owner of the sending socket.
    Owner(Owner) = "owner",
    /// Bridge ports.
    Physdev(Physdev<'a>) = "physdev",
    /// Destination of the frame.
    Pkttype(Pkttype) = "pkttype",
    /// IPsec policy.
    Policy(Policy) = "policy",
    /// Number of bytes until the match ends.
    Quota(Quota) = "quota",
    /// Estimated rate of traffic.
    Rateest(Rateest<'a>) = "rateest",
    /// Routing realm.
    Realm(Realm) = "realm",
    /// Lists of recently seen addresses.
    Recent(Recent<'a>) = "recent",
    /// Test of the route back to the source.
    Rpfilter(Rpfilter) = "rpfilter",
    /// Routing header of IPv6.
    Rt(Rt) = "rt",
    /// SCTP ports and chunk types.
    Sctp(Sctp) = "sctp",
    /// IP set membership.
    Set(Set<'a>) = "set",
    /// Socket of the packet on this host.
    Socket(Socket) = "socket",
    /// Segment routing header of IPv6.
    Srh(Srh) = "srh",
    /// Connection state, deprecated form.
    State(State) = "state",
    /// A random or periodic sample of packets.
    Statistic(Statistic) = "statistic",
    /// Text in the payload.
    StringMatch(StringMatch) = "string",
    /// TCP ports, flags and options.
    Tcp(Tcp) = "tcp",
    /// Maximum segment size of TCP.
    Tcpmss(Tcpmss) = "tcpmss",
    /// Time of arrival.
    Time(Time) = "time",
    /// Type of service.
    Tos(Tos) = "tos",
    /// Time to live.
    Ttl(Ttl) = "ttl",
    /// Numbers in the packet.
    U32(U32) = "u32",
    /// UDP ports.
    Udp(Udp) = "udp",
}

impl Match<'_> {
    fn open_other(_: &str) -> Option<Self> {
        None
    }

    fn fmt_other(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(text) => f.write_str(text),
            _ => Ok(()),
        }
    }

    fn encode_other(&self, _: Context<'_>) -> Option<Encoded> {
        None
    }

    fn decode_other(_: &str, _: u32, _: &[u8], _: Context<'_>) -> Option<Self> {
        None
    }
}

/// Returns the match that the protocol implies without `-m`.
pub(crate) fn implied<'a>(protocol: &Negatable<Protocol>) -> Option<Match<'a>> {
    match *protocol {
        Negatable::Is(Protocol::TCP) => Match::open("tcp"),
        Negatable::Is(Protocol::UDP) => Match::open("udp"),
        Negatable::Is(Protocol::SCTP) => Match::open("sctp"),
        Negatable::Is(Protocol(33)) => Match::open("dccp"),
        Negatable::Is(Protocol::ICMP) => Match::open("icmp"),
        Negatable::Is(Protocol::ICMP6) => Match::open("icmp6"),
        Negatable::Is(Protocol(50)) => Match::open("esp"),
        Negatable::Is(Protocol(51)) => Match::open("ah"),
        Negatable::Is(Protocol(108)) => Match::open("ipcomp"),
        Negatable::Is(Protocol(135)) => Match::open("mh"),
        _ => None,
    }
}
