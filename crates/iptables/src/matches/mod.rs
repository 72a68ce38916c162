//! Match extensions: `-m NAME` with its options.
//!
//! The types are exhaustive, except [`Match`]: their fields are all options of the
//! extension in iptables 1.8. A match with another option is [`Match::Other`].

// Each extension is one file with its options, its text, the kernel's structure and its tests.
// `extensions/mod.rs` says how to add one.

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

mod transport;

pub(crate) mod recent_list;

use std::borrow::Cow;
use std::fmt;

use crate::Protocol;
use crate::extensions::extensions;
use crate::extensions::structure::{Context, Encoded};
use crate::options::negatable::Negatable;

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
    addrtype: AddrType(AddrType) = "addrtype",
    /// Authentication header of IPsec.
    ah: Ah(Ah) = "ah",
    /// BPF program.
    bpf: Bpf(Bpf<'a>) = "bpf",
    /// Control group of the sending socket.
    cgroup: Cgroup(Cgroup<'a>) = "cgroup",
    /// Share of a node of a cluster.
    cluster: Cluster(Cluster) = "cluster",
    /// Comment.
    comment: Comment(Comment<'a>) = "comment",
    /// Transferred bytes or packets of a connection.
    connbytes: Connbytes(Connbytes) = "connbytes",
    /// Connection label.
    connlabel: Connlabel(Connlabel) = "connlabel",
    /// Number of parallel connections.
    connlimit: Connlimit(Connlimit) = "connlimit",
    /// Connection mark.
    connmark: Connmark(Connmark) = "connmark",
    /// Connection tracking state.
    conntrack: Conntrack(Conntrack) = "conntrack",
    /// CPU that processes the packet.
    cpu: Cpu(Cpu) = "cpu",
    /// DCCP ports and packet types.
    dccp: Dccp(Dccp) = "dccp",
    /// Groups of interfaces.
    devgroup: Devgroup(Devgroup) = "devgroup",
    /// Differentiated services code point.
    dscp: Dscp(Dscp) = "dscp",
    /// Destination options header of IPv6.
    dst: Dst(Dst) = "dst",
    /// Explicit congestion notification.
    ecn: Ecn(Ecn) = "ecn",
    /// Encapsulating security payload of IPsec.
    esp: Esp(Esp) = "esp",
    /// Source address of the interface of the sender.
    eui64: Eui64(Eui64) = "eui64",
    /// Fragment header of IPv6.
    frag: Frag(Frag) = "frag",
    /// Rate limit by address and port.
    hashlimit: Hashlimit(Hashlimit<'a>) = "hashlimit",
    /// Hop-by-hop options header of IPv6.
    hbh: Hbh(Hbh) = "hbh",
    /// Conntrack helper.
    helper: Helper(Helper<'a>) = "helper",
    /// Hop limit.
    hl: Hl(Hl) = "hl",
    /// ICMP type.
    icmp: Icmp(Icmp) = "icmp",
    /// ICMPv6 type.
    icmp6: Icmp6(Icmp6) = "icmp6" | "icmpv6" | "ipv6-icmp",
    /// IP payload compression.
    ipcomp: Ipcomp(Ipcomp) = "ipcomp",
    /// Ranges of addresses.
    iprange: IpRange(IpRange) = "iprange",
    /// Extension headers of IPv6.
    ipv6header: Ipv6Header(Ipv6Header) = "ipv6header",
    /// IPVS connection.
    ipvs: Ipvs(Ipvs) = "ipvs",
    /// Packet length.
    length: Length(Length) = "length",
    /// Rate limit.
    limit: Limit(Limit) = "limit",
    /// Source address of the Ethernet frame.
    mac: Mac(Mac) = "mac",
    /// Packet mark.
    mark: Mark(Mark) = "mark",
    /// Mobility header of IPv6.
    mh: Mh(Mh) = "mh",
    /// A list of ports.
    multiport: Multiport(Multiport) = "multiport",
    /// Named nfacct counter.
    nfacct: Nfacct(Nfacct<'a>) = "nfacct",
    /// Operating system of the sender.
    osf: Osf(Osf<'a>) = "osf",
    /// Owner of the sending socket.
    owner: Owner(Owner) = "owner",
    /// Bridge ports.
    physdev: Physdev(Physdev<'a>) = "physdev",
    /// Destination of the frame.
    pkttype: Pkttype(Pkttype) = "pkttype",
    /// IPsec policy.
    policy: Policy(Policy) = "policy",
    /// Number of bytes until the match ends.
    quota: Quota(Quota) = "quota",
    /// Estimated rate of traffic.
    rateest: Rateest(Rateest<'a>) = "rateest",
    /// Routing realm.
    realm: Realm(Realm) = "realm",
    /// Lists of recently seen addresses.
    recent: Recent(Recent<'a>) = "recent",
    /// Test of the route back to the source.
    rpfilter: Rpfilter(Rpfilter) = "rpfilter",
    /// Routing header of IPv6.
    rt: Rt(Rt) = "rt",
    /// SCTP ports and chunk types.
    sctp: Sctp(Sctp) = "sctp",
    /// IP set membership.
    set: Set(Set<'a>) = "set",
    /// Socket of the packet on this host.
    socket: Socket(Socket) = "socket",
    /// Segment routing header of IPv6.
    srh: Srh(Srh) = "srh",
    /// Connection state, deprecated form.
    state: State(State) = "state",
    /// A random or periodic sample of packets.
    statistic: Statistic(Statistic) = "statistic",
    /// Text in the payload.
    string: StringMatch(StringMatch) = "string",
    /// TCP ports, flags and options.
    tcp: Tcp(Tcp) = "tcp",
    /// Maximum segment size of TCP.
    tcpmss: Tcpmss(Tcpmss) = "tcpmss",
    /// Time of arrival.
    time: Time(Time) = "time",
    /// Type of service.
    tos: Tos(Tos) = "tos",
    /// Time to live.
    ttl: Ttl(Ttl) = "ttl",
    /// Numbers in the packet.
    u32: U32(U32) = "u32",
    /// UDP ports.
    udp: Udp(Udp) = "udp",
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
        Negatable::Is(Protocol::DCCP) => Match::open("dccp"),
        Negatable::Is(Protocol::ICMP) => Match::open("icmp"),
        Negatable::Is(Protocol::ICMPV6) => Match::open("icmp6"),
        Negatable::Is(Protocol::ESP) => Match::open("esp"),
        Negatable::Is(Protocol::AH) => Match::open("ah"),
        Negatable::Is(Protocol::COMP) => Match::open("ipcomp"),
        Negatable::Is(Protocol::MH) => Match::open("mh"),
        _ => None,
    }
}
