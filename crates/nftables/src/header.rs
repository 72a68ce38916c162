//! Named fields of protocol headers.

use crate::expr::PayloadBase;
use crate::{Datatype, Family};

/// A field of a protocol header.
#[derive(Debug)]
pub(crate) struct HeaderField {
    pub(crate) protocol: &'static str,
    pub(crate) name: &'static str,
    pub(crate) base: PayloadBase,
    pub(crate) offset: u32,
    pub(crate) bytes: u16,
    pub(crate) datatype: Datatype,
    pub(crate) layer: Layer,
    /// nft's numbers of the protocol and the field in `typeof` user data.
    pub(crate) typeof_ids: (u32, u32),
}

/// The packets that have a header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Layer {
    /// All packets with this layer.
    Any,
    /// Packets of a network protocol family.
    Network(Family),
    /// Packets of a transport protocol.
    Transport(u8),
}

/// IANA protocol numbers and nft's names for them.
pub(crate) const PROTOCOLS: [(u8, &str); 11] = [
    (1, "icmp"),
    (2, "igmp"),
    (6, "tcp"),
    (17, "udp"),
    (33, "dccp"),
    (47, "gre"),
    (50, "esp"),
    (51, "ah"),
    (58, "ipv6-icmp"),
    (132, "sctp"),
    (136, "udplite"),
];

/// Protocols whose ports have named expressions, such as `tcp dport`.
pub(crate) const WITH_PORTS: [(u8, &str); 5] = [
    (6, "tcp"),
    (17, "udp"),
    (33, "dccp"),
    (132, "sctp"),
    (136, "udplite"),
];

macro_rules! fields {
    ($($id:ident: $protocol:literal $name:literal, $base:ident + $offset:literal, $bytes:literal $datatype:ident,
        $layer:expr, ($desc:literal, $field:literal);)*) => {
        $(pub(crate) static $id: HeaderField = HeaderField {
            protocol: $protocol,
            name: $name,
            base: PayloadBase::$base,
            offset: $offset,
            bytes: $bytes,
            datatype: Datatype::$datatype,
            layer: $layer,
            typeof_ids: ($desc, $field),
        };)*

        /// All fields. Fields of any packet precede fields of a single protocol.
        pub(crate) static ALL: &[&HeaderField] = &[$(&$id),*];
    };
}

const IP: Layer = Layer::Network(Family::Ip);
const IP6: Layer = Layer::Network(Family::Ip6);
const TCP: Layer = Layer::Transport(6);
const UDP: Layer = Layer::Transport(17);
const SCTP: Layer = Layer::Transport(132);

fields! {
    ETHER_DADDR: "ether" "daddr", Link + 0, 6 EtherAddr, Layer::Any, (17, 1);
    ETHER_SADDR: "ether" "saddr", Link + 6, 6 EtherAddr, Layer::Any, (17, 2);
    ETHER_TYPE: "ether" "type", Link + 12, 2 EtherType, Layer::Any, (17, 3);
    IP_LENGTH: "ip" "length", Network + 2, 2 Integer, IP, (12, 5);
    IP_ID: "ip" "id", Network + 4, 2 Integer, IP, (12, 6);
    IP_TTL: "ip" "ttl", Network + 8, 1 Integer, IP, (12, 8);
    IP_PROTOCOL: "ip" "protocol", Network + 9, 1 InetProto, IP, (12, 9);
    IP_SADDR: "ip" "saddr", Network + 12, 4 Ipv4Addr, IP, (12, 11);
    IP_DADDR: "ip" "daddr", Network + 16, 4 Ipv4Addr, IP, (12, 12);
    IP6_LENGTH: "ip6" "length", Network + 4, 2 Integer, IP6, (13, 5);
    IP6_NEXTHDR: "ip6" "nexthdr", Network + 6, 1 InetProto, IP6, (13, 6);
    IP6_HOPLIMIT: "ip6" "hoplimit", Network + 7, 1 Integer, IP6, (13, 7);
    IP6_SADDR: "ip6" "saddr", Network + 8, 16 Ipv6Addr, IP6, (13, 8);
    IP6_DADDR: "ip6" "daddr", Network + 24, 16 Ipv6Addr, IP6, (13, 9);
    TH_SPORT: "th" "sport", Transport + 0, 2 InetService, Layer::Any, (11, 1);
    TH_DPORT: "th" "dport", Transport + 2, 2 InetService, Layer::Any, (11, 2);
    TCP_SPORT: "tcp" "sport", Transport + 0, 2 InetService, TCP, (8, 1);
    TCP_DPORT: "tcp" "dport", Transport + 2, 2 InetService, TCP, (8, 2);
    TCP_FLAGS: "tcp" "flags", Transport + 13, 1 TcpFlag, TCP, (8, 7);
    UDP_SPORT: "udp" "sport", Transport + 0, 2 InetService, UDP, (6, 1);
    UDP_DPORT: "udp" "dport", Transport + 2, 2 InetService, UDP, (6, 2);
    SCTP_SPORT: "sctp" "sport", Transport + 0, 2 InetService, SCTP, (10, 1);
    SCTP_DPORT: "sctp" "dport", Transport + 2, 2 InetService, SCTP, (10, 2);
    ICMP_TYPE: "icmp" "type", Transport + 0, 1 IcmpType, Layer::Transport(1), (4, 1);
    ICMPV6_TYPE: "icmpv6" "type", Transport + 0, 1 Icmpv6Type, Layer::Transport(58), (14, 1);
}

impl HeaderField {
    /// Finds a field by its location. Prefers fields of the table's family.
    pub(crate) fn find(
        base: PayloadBase,
        offset: u32,
        len: u32,
        family: Option<Family>,
    ) -> Option<&'static Self> {
        let here = |field: &&&Self| {
            (field.base, field.offset, u32::from(field.bytes)) == (base, offset, len)
        };
        let fits = |field: &&&Self| match (field.layer, family) {
            (Layer::Network(of), Some(table @ (Family::Ip | Family::Ip6))) => of == table,
            (Layer::Transport(_), _) => false,
            _ => true,
        };
        ALL.iter().filter(here).find(fits).copied()
    }

    /// Finds the address field that starts at this location and is longer than `len`.
    pub(crate) fn find_addr(
        base: PayloadBase,
        offset: u32,
        len: u32,
        family: Option<Family>,
    ) -> Option<&'static Self> {
        let is_addr = |datatype| matches!(datatype, Datatype::Ipv4Addr | Datatype::Ipv6Addr);
        let mut addrs = ALL.iter().copied().filter(|field| {
            is_addr(field.datatype)
                && (field.base, field.offset) == (base, offset)
                && len < u32::from(field.bytes)
        });
        addrs.find(|field| {
            family.is_none_or(|f| {
                !matches!(f, Family::Ip | Family::Ip6) || field.layer == Layer::Network(f)
            })
        })
    }
}
