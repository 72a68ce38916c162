//! Named fields of protocol headers.

use vipline_inet::Protocol;

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
    /// Ethernet frames with a VLAN header. Offsets are those of the first VLAN header.
    Vlan,
}

/// The checksum that depends on a field, as the attributes of a store: `NFTA_PAYLOAD_CSUM_*`.
///
/// Without it the kernel stores the bytes and nothing else, and the receiver drops the packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Checksum {
    /// `enum nft_payload_csum_types`: none, the Internet checksum, or the CRC of SCTP.
    pub(crate) kind: u32,
    /// Offset of the checksum in the header of the field.
    pub(crate) offset: u32,
    /// `enum nft_payload_csum_flags`.
    pub(crate) flags: u32,
}

impl Checksum {
    /// Flag: the bytes are part of the pseudo-header of the transport protocol's checksum,
    /// which the kernel then updates as well.
    pub(crate) const PSEUDO_HEADER: u32 = 1;

    /// Returns the checksum that nft 1.0.6 updates when it stores a field: the one home of
    /// this table, for stores and for their text.
    pub(crate) fn of(protocol: &str, name: &str) -> Self {
        let flags = match (protocol, name) {
            ("ip", "saddr" | "daddr" | "protocol" | "length")
            | ("ip6", "saddr" | "daddr" | "nexthdr" | "length") => Self::PSEUDO_HEADER,
            _ => 0,
        };
        let (kind, offset) = match protocol {
            "ip" => (1, 10),
            "tcp" => (1, 16),
            "udp" => (1, 6),
            "icmp" | "igmp" | "icmpv6" => (1, 2),
            "sctp" => (2, 8),
            _ => (0, 0),
        };
        Self {
            kind,
            offset,
            flags,
        }
    }
}

/// Size of a VLAN header.
pub(crate) const VLAN_BYTES: u32 = 4;

/// Returns the name of an IP protocol in rules, or `None` for one that is printed as a number.
pub(crate) fn protocol_name(protocol: u8) -> Option<&'static str> {
    let protocol = Protocol(protocol);
    match protocol {
        Protocol::ICMP
        | Protocol::IGMP
        | Protocol::TCP
        | Protocol::UDP
        | Protocol::DCCP
        | Protocol::GRE
        | Protocol::ESP
        | Protocol::AH
        | Protocol::ICMPV6
        | Protocol::SCTP
        | Protocol::UDPLITE => protocol.name(),
        _ => None,
    }
}

/// Returns the name of a protocol whose ports have named expressions, such as `tcp dport`.
pub(crate) fn name_with_ports(protocol: u8) -> Option<&'static str> {
    let protocol = Protocol(protocol);
    protocol.name().filter(|_| protocol.has_ports())
}

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
const ARP: Layer = Layer::Network(Family::Arp);
const ICMP: Layer = Layer::Transport(Protocol::ICMP.0);
const IGMP: Layer = Layer::Transport(Protocol::IGMP.0);
const TCP: Layer = Layer::Transport(Protocol::TCP.0);
const UDP: Layer = Layer::Transport(Protocol::UDP.0);
const DCCP: Layer = Layer::Transport(Protocol::DCCP.0);
const ESP: Layer = Layer::Transport(Protocol::ESP.0);
const AH: Layer = Layer::Transport(Protocol::AH.0);
const ICMPV6: Layer = Layer::Transport(Protocol::ICMPV6.0);
const COMP: Layer = Layer::Transport(Protocol::COMP.0);
const SCTP: Layer = Layer::Transport(Protocol::SCTP.0);
const UDPLITE: Layer = Layer::Transport(Protocol::UDPLITE.0);

// Fields of whole bytes. Fields that exist only in messages of some types are left out:
// nft adds a match of the type to each use of their names.
fields! {
    ETHER_DADDR: "ether" "daddr", Link + 0, 6 EtherAddr, Layer::Any, (17, 1);
    ETHER_SADDR: "ether" "saddr", Link + 6, 6 EtherAddr, Layer::Any, (17, 2);
    ETHER_TYPE: "ether" "type", Link + 12, 2 EtherType, Layer::Any, (17, 3);
    VLAN_TYPE: "vlan" "type", Link + 16, 2 EtherType, Layer::Vlan, (16, 5);
    IP_LENGTH: "ip" "length", Network + 2, 2 Integer, IP, (12, 5);
    IP_ID: "ip" "id", Network + 4, 2 Integer, IP, (12, 6);
    IP_FRAG_OFF: "ip" "frag-off", Network + 6, 2 Integer, IP, (12, 7);
    IP_TTL: "ip" "ttl", Network + 8, 1 Integer, IP, (12, 8);
    IP_PROTOCOL: "ip" "protocol", Network + 9, 1 InetProto, IP, (12, 9);
    IP_CHECKSUM: "ip" "checksum", Network + 10, 2 Integer, IP, (12, 10);
    IP_SADDR: "ip" "saddr", Network + 12, 4 Ipv4Addr, IP, (12, 11);
    IP_DADDR: "ip" "daddr", Network + 16, 4 Ipv4Addr, IP, (12, 12);
    IP6_LENGTH: "ip6" "length", Network + 4, 2 Integer, IP6, (13, 5);
    IP6_NEXTHDR: "ip6" "nexthdr", Network + 6, 1 InetProto, IP6, (13, 6);
    IP6_HOPLIMIT: "ip6" "hoplimit", Network + 7, 1 Integer, IP6, (13, 7);
    IP6_SADDR: "ip6" "saddr", Network + 8, 16 Ipv6Addr, IP6, (13, 8);
    IP6_DADDR: "ip6" "daddr", Network + 24, 16 Ipv6Addr, IP6, (13, 9);
    ARP_HTYPE: "arp" "htype", Network + 0, 2 Integer, ARP, (15, 1);
    ARP_PTYPE: "arp" "ptype", Network + 2, 2 EtherType, ARP, (15, 2);
    ARP_HLEN: "arp" "hlen", Network + 4, 1 Integer, ARP, (15, 3);
    ARP_PLEN: "arp" "plen", Network + 5, 1 Integer, ARP, (15, 4);
    ARP_OPERATION: "arp" "operation", Network + 6, 2 ArpOp, ARP, (15, 5);
    ARP_SADDR_ETHER: "arp" "saddr ether", Network + 8, 6 EtherAddr, ARP, (15, 6);
    ARP_SADDR_IP: "arp" "saddr ip", Network + 14, 4 Ipv4Addr, ARP, (15, 7);
    ARP_DADDR_ETHER: "arp" "daddr ether", Network + 18, 6 EtherAddr, ARP, (15, 8);
    ARP_DADDR_IP: "arp" "daddr ip", Network + 24, 4 Ipv4Addr, ARP, (15, 9);
    TH_SPORT: "th" "sport", Transport + 0, 2 InetService, Layer::Any, (11, 1);
    TH_DPORT: "th" "dport", Transport + 2, 2 InetService, Layer::Any, (11, 2);
    TCP_SPORT: "tcp" "sport", Transport + 0, 2 InetService, TCP, (8, 1);
    TCP_DPORT: "tcp" "dport", Transport + 2, 2 InetService, TCP, (8, 2);
    TCP_SEQUENCE: "tcp" "sequence", Transport + 4, 4 Integer, TCP, (8, 3);
    TCP_ACKSEQ: "tcp" "ackseq", Transport + 8, 4 Integer, TCP, (8, 4);
    TCP_FLAGS: "tcp" "flags", Transport + 13, 1 TcpFlag, TCP, (8, 7);
    TCP_WINDOW: "tcp" "window", Transport + 14, 2 Integer, TCP, (8, 8);
    TCP_CHECKSUM: "tcp" "checksum", Transport + 16, 2 Integer, TCP, (8, 9);
    TCP_URGPTR: "tcp" "urgptr", Transport + 18, 2 Integer, TCP, (8, 10);
    UDP_SPORT: "udp" "sport", Transport + 0, 2 InetService, UDP, (6, 1);
    UDP_DPORT: "udp" "dport", Transport + 2, 2 InetService, UDP, (6, 2);
    UDP_LENGTH: "udp" "length", Transport + 4, 2 Integer, UDP, (6, 3);
    UDP_CHECKSUM: "udp" "checksum", Transport + 6, 2 Integer, UDP, (6, 4);
    UDPLITE_SPORT: "udplite" "sport", Transport + 0, 2 InetService, UDPLITE, (7, 1);
    UDPLITE_DPORT: "udplite" "dport", Transport + 2, 2 InetService, UDPLITE, (7, 2);
    UDPLITE_CSUMCOV: "udplite" "csumcov", Transport + 4, 2 Integer, UDPLITE, (7, 3);
    UDPLITE_CHECKSUM: "udplite" "checksum", Transport + 6, 2 Integer, UDPLITE, (7, 4);
    SCTP_SPORT: "sctp" "sport", Transport + 0, 2 InetService, SCTP, (10, 1);
    SCTP_DPORT: "sctp" "dport", Transport + 2, 2 InetService, SCTP, (10, 2);
    SCTP_VTAG: "sctp" "vtag", Transport + 4, 4 Integer, SCTP, (10, 3);
    SCTP_CHECKSUM: "sctp" "checksum", Transport + 8, 4 Integer, SCTP, (10, 4);
    DCCP_SPORT: "dccp" "sport", Transport + 0, 2 InetService, DCCP, (9, 1);
    DCCP_DPORT: "dccp" "dport", Transport + 2, 2 InetService, DCCP, (9, 2);
    ESP_SPI: "esp" "spi", Transport + 0, 4 Integer, ESP, (2, 1);
    ESP_SEQUENCE: "esp" "sequence", Transport + 4, 4 Integer, ESP, (2, 2);
    AH_HDRLENGTH: "ah" "hdrlength", Transport + 1, 1 Integer, AH, (1, 2);
    AH_RESERVED: "ah" "reserved", Transport + 2, 2 Integer, AH, (1, 3);
    AH_SPI: "ah" "spi", Transport + 4, 4 Integer, AH, (1, 4);
    AH_SEQUENCE: "ah" "sequence", Transport + 8, 4 Integer, AH, (1, 5);
    COMP_CPI: "comp" "cpi", Transport + 2, 2 Integer, COMP, (3, 3);
    ICMP_TYPE: "icmp" "type", Transport + 0, 1 IcmpType, ICMP, (4, 1);
    ICMP_CODE: "icmp" "code", Transport + 1, 1 Integer, ICMP, (4, 2);
    ICMP_CHECKSUM: "icmp" "checksum", Transport + 2, 2 Integer, ICMP, (4, 3);
    IGMP_CHECKSUM: "igmp" "checksum", Transport + 2, 2 Integer, IGMP, (5, 2);
    IGMP_GROUP: "igmp" "group", Transport + 4, 4 Ipv4Addr, IGMP, (5, 4);
    ICMPV6_TYPE: "icmpv6" "type", Transport + 0, 1 Icmpv6Type, ICMPV6, (14, 1);
    ICMPV6_CODE: "icmpv6" "code", Transport + 1, 1 Integer, ICMPV6, (14, 2);
    ICMPV6_CHECKSUM: "icmpv6" "checksum", Transport + 2, 2 Integer, ICMPV6, (14, 3);
}

impl HeaderField {
    /// Returns the checksum to update when the field is stored. Returns `None` for the ports
    /// of any protocol (`th`), because each protocol has its checksum at another place; nft
    /// stores them without, and the receiver drops the packet.
    pub(crate) fn checksum(&self) -> Option<Checksum> {
        (self.protocol != "th").then(|| Checksum::of(self.protocol, self.name))
    }

    /// Returns whether the field is the type of an Ethernet or VLAN header.
    pub(crate) fn is_frame_type(&self) -> bool {
        self.base == PayloadBase::Link && self.datatype == Datatype::EtherType
    }

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
            (Layer::Network(of), Some(table @ (Family::Ip | Family::Ip6 | Family::Arp))) => {
                of == table
            }
            (Layer::Network(Family::Arp) | Layer::Transport(_) | Layer::Vlan, _) => false,
            _ => true,
        };
        ALL.iter().filter(here).find(fits).copied()
    }

    /// Returns the fields at a location.
    pub(crate) fn at(
        base: PayloadBase,
        offset: u32,
        len: u32,
    ) -> impl Iterator<Item = &'static Self> {
        ALL.iter().copied().filter(move |field| {
            (field.base, field.offset, u32::from(field.bytes)) == (base, offset, len)
        })
    }

    /// Returns the address fields that start at a location and are longer than `len`.
    pub(crate) fn addrs_at(
        base: PayloadBase,
        offset: u32,
        len: u32,
    ) -> impl Iterator<Item = &'static Self> {
        let is_addr = |datatype| matches!(datatype, Datatype::Ipv4Addr | Datatype::Ipv6Addr);
        ALL.iter().copied().filter(move |field| {
            is_addr(field.datatype)
                && (field.base, field.offset) == (base, offset)
                && len < u32::from(field.bytes)
        })
    }
}
