//! Expressions of the nft language: the values that a rule reads.
//!
//! An expression can be compared ([`Expression::is`]), looked up
//! ([`Expression::in_set`], [`Expression::vmap`], [`Expression::map`]), assigned
//! ([`Expression::set`]) or concatenated ([`concat()`]).
//! Kernel expressions, which execute a rule, are in [`expr`](crate::expr).

use crate::bitfield::BitField;
use crate::datatype::ByteOrder;
use crate::expr::{
    CtKey, Direction, ExthdrOp, FibFlags, FibResult, MetaKey, NumgenMode, OsfTtl, PayloadBase,
    RtKey, SetRef, SocketKey, XfrmDirection, XfrmKey,
};
use crate::field::width;
use crate::header::{self, HeaderField};
use crate::load::Load;
use crate::{Bytes, Datatype, Family, Field, Set};

/// An expression: a header field, packet metadata, a number, or a concatenation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Expression(pub(crate) Term);

/// The variants of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    Header(&'static HeaderField),
    Payload {
        base: PayloadBase,
        offset: u32,
        len: u32,
    },
    Meta(MetaKey),
    Ct(CtKey, Option<Direction>),
    Fib(FibFlags, FibResult),
    Load(Load),
    Numgen {
        mode: NumgenMode,
        modulus: u32,
        offset: u32,
    },
    Jenkins {
        of: Box<Expression>,
        modulus: u32,
        seed: Option<u32>,
        offset: u32,
    },
    Symmetric {
        modulus: u32,
        offset: u32,
    },
    Bits {
        of: Box<Expression>,
        mask: Bytes,
        xor: Bytes,
    },
    Shift {
        of: Box<Expression>,
        left: bool,
        bits: u32,
    },
    Map {
        of: Box<Expression>,
        set: SetRef,
        data: Vec<Field>,
    },
    /// Bits of a header field. The value has the place of the field in its bytes. Only
    /// used for text.
    BitField(BitField),
    Concat(Vec<Expression>),
    Constant(Bytes),
    /// A port of the protocol that a previous match implies. Only used for text.
    Port(&'static str, &'static str),
    Unknown,
}

macro_rules! header_expressions {
    ($($(#[$doc:meta])* $function:ident = $field:ident;)*) => {
        $($(#[$doc])*
        pub fn $function() -> Expression {
            Expression(Term::Header(&header::$field))
        })*
    };
}

header_expressions! {
    /// The source address of an IPv4 packet: `ip saddr`.
    ip_saddr = IP_SADDR;
    /// The destination address of an IPv4 packet: `ip daddr`.
    ip_daddr = IP_DADDR;
    /// The transport protocol of an IPv4 packet: `ip protocol`.
    ip_protocol = IP_PROTOCOL;
    /// The source address of an IPv6 packet: `ip6 saddr`.
    ip6_saddr = IP6_SADDR;
    /// The destination address of an IPv6 packet: `ip6 daddr`.
    ip6_daddr = IP6_DADDR;
    /// The source port of any transport protocol: `th sport`.
    th_sport = TH_SPORT;
    /// The destination port of any transport protocol: `th dport`.
    th_dport = TH_DPORT;
    /// The source port of a TCP segment: `tcp sport`.
    tcp_sport = TCP_SPORT;
    /// The destination port of a TCP segment: `tcp dport`.
    tcp_dport = TCP_DPORT;
    /// The flags of a TCP segment: `tcp flags`.
    tcp_flags = TCP_FLAGS;
    /// The source port of a UDP datagram: `udp sport`.
    udp_sport = UDP_SPORT;
    /// The destination port of a UDP datagram: `udp dport`.
    udp_dport = UDP_DPORT;
    /// The source port of an SCTP packet: `sctp sport`.
    sctp_sport = SCTP_SPORT;
    /// The destination port of an SCTP packet: `sctp dport`.
    sctp_dport = SCTP_DPORT;
    /// The type of an ICMP message: `icmp type`.
    icmp_type = ICMP_TYPE;
    /// The type of an ICMPv6 message: `icmpv6 type`.
    icmpv6_type = ICMPV6_TYPE;
    /// The source address of an Ethernet frame: `ether saddr`.
    ether_saddr = ETHER_SADDR;
    /// The destination address of an Ethernet frame: `ether daddr`.
    ether_daddr = ETHER_DADDR;
}

/// The source address: `ip6 saddr` in family `ip6`, otherwise `ip saddr`.
pub fn saddr(family: Family) -> Expression {
    if family == Family::Ip6 {
        ip6_saddr()
    } else {
        ip_saddr()
    }
}

/// The destination address: `ip6 daddr` in family `ip6`, otherwise `ip daddr`.
pub fn daddr(family: Family) -> Expression {
    if family == Family::Ip6 {
        ip6_daddr()
    } else {
        ip_daddr()
    }
}

macro_rules! meta_expressions {
    ($($(#[$doc:meta])* $function:ident = $key:ident;)*) => {
        $($(#[$doc])*
        pub fn $function() -> Expression {
            Expression::from(MetaKey::$key)
        })*
    };
}

meta_expressions! {
    /// The transport protocol: `meta l4proto`.
    l4proto = L4Proto;
    /// The protocol family of the packet: `meta nfproto`.
    nfproto = NfProto;
    /// The packet mark: `meta mark`.
    mark = Mark;
    /// The priority of the packet for traffic control: `meta priority`.
    priority = Priority;
    /// The name of the input interface: `iifname`.
    iifname = Iifname;
    /// The name of the output interface: `oifname`.
    oifname = Oifname;
    /// The index of the input interface: `iif`.
    iif = Iif;
    /// The index of the output interface: `oif`.
    oif = Oif;
}

/// The state of the connection: `ct state`.
pub fn ct_state() -> Expression {
    CtKey::State.into()
}

/// The status of the connection: `ct status`.
pub fn ct_status() -> Expression {
    CtKey::Status.into()
}

/// The mark of the connection: `ct mark`.
pub fn ct_mark() -> Expression {
    CtKey::Mark.into()
}

/// The direction of the packet in its connection: `ct direction`.
pub fn ct_direction() -> Expression {
    CtKey::Direction.into()
}

/// A conntrack property of the original direction: `ct original ip daddr`.
pub fn ct_original(key: CtKey) -> Expression {
    Expression::ct(key, Some(Direction::Original))
}

/// A conntrack property of the reply direction: `ct reply ip saddr`.
pub fn ct_reply(key: CtKey) -> Expression {
    Expression::ct(key, Some(Direction::Reply))
}

/// The source address of the original direction: `ct original ip saddr`.
pub fn ct_original_saddr(family: Family) -> Expression {
    ct_original(if family == Family::Ip6 {
        CtKey::SrcIp6
    } else {
        CtKey::SrcIp
    })
}

/// The destination address of the original direction: `ct original ip daddr`.
pub fn ct_original_daddr(family: Family) -> Expression {
    ct_original(if family == Family::Ip6 {
        CtKey::DstIp6
    } else {
        CtKey::DstIp
    })
}

/// Whether the packet has an optional header: `exthdr frag`, `tcp option sack-perm`.
///
/// The value is 1 or 0. `kind` is a protocol number, an option kind or a chunk type.
pub fn exthdr_exists(op: ExthdrOp, kind: u8) -> Expression {
    Expression::load(Load::Exthdr {
        op,
        kind,
        offset: 0,
        len: 1,
        present: true,
    })
}

/// Bytes of an optional header: `frag id`, `tcp option maxseg size`.
///
/// Offset and length are in bytes, from the first byte of the header.
pub fn exthdr(op: ExthdrOp, kind: u8, offset: u32, len: u32) -> Expression {
    Expression::load(Load::Exthdr {
        op,
        kind,
        offset,
        len,
        present: false,
    })
}

/// The maximum segment size in the options of a TCP SYN: `tcp option maxseg size`.
///
/// `tcp_option_maxseg_size().set(&RtKey::Tcpmss.into())` fits it to the route.
pub fn tcp_option_maxseg_size() -> Expression {
    exthdr(ExthdrOp::TcpOption, 2, 2, 2)
}

/// A property of an IPsec transformation: `ipsec in spnum 1 reqid`.
pub fn ipsec(direction: XfrmDirection, spnum: u32, key: XfrmKey) -> Expression {
    Expression::load(Load::Xfrm {
        key,
        direction,
        spnum,
    })
}

/// The operating system of the sender, without version: `osf name`.
pub fn osf_name(ttl: OsfTtl) -> Expression {
    Expression::load(Load::Osf {
        ttl,
        version: false,
    })
}

/// The result of a route lookup: `fib daddr . mark type`.
pub fn fib(flags: FibFlags, result: FibResult) -> Expression {
    Expression::fib(flags, result)
}

/// The route type of the destination address: `fib daddr type`.
pub fn fib_daddr_type() -> Expression {
    fib(FibFlags::DADDR, FibResult::AddrType)
}

/// The route type of the source address: `fib saddr type`.
pub fn fib_saddr_type() -> Expression {
    fib(FibFlags::SADDR, FibResult::AddrType)
}

/// A random number below `modulus`: `numgen random mod 3`.
pub fn numgen_random(modulus: u32) -> Expression {
    Expression::numgen(NumgenMode::Random, modulus, 0)
}

/// A round-robin counter below `modulus`: `numgen inc mod 3`.
pub fn numgen_inc(modulus: u32) -> Expression {
    Expression::numgen(NumgenMode::Incremental, modulus, 0)
}

/// The Jenkins hash of an expression, modulo `modulus`: `jhash ip saddr mod 251`.
///
/// Without a seed the kernel chooses a random one.
pub fn jhash(of: Expression, modulus: u32, seed: Option<u32>) -> Expression {
    Expression::jenkins(of, modulus, seed, 0)
}

/// The symmetric hash of the connection, modulo `modulus`: `symhash mod 2`.
pub fn symhash(modulus: u32) -> Expression {
    Expression::symmetric(modulus, 0)
}

/// The concatenation of expressions: `ip daddr . meta l4proto . th dport`.
pub fn concat(parts: impl IntoIterator<Item = Expression>) -> Expression {
    Expression(Term::Concat(parts.into_iter().collect()))
}

impl From<MetaKey> for Expression {
    fn from(key: MetaKey) -> Self {
        Self(Term::Meta(key))
    }
}

impl From<RtKey> for Expression {
    fn from(key: RtKey) -> Self {
        Self::load(Load::Rt(key))
    }
}

impl From<SocketKey> for Expression {
    fn from(key: SocketKey) -> Self {
        Self::load(Load::Socket(key))
    }
}

impl From<CtKey> for Expression {
    fn from(key: CtKey) -> Self {
        Self::ct(key, None)
    }
}

impl Expression {
    /// Returns the expression for bytes of the packet: the named header field at this
    /// location, or `@nh,96,32`.
    pub fn payload(base: PayloadBase, offset: u32, len: u32, family: Option<Family>) -> Self {
        Self(match HeaderField::find(base, offset, len, family) {
            Some(field) => Term::Header(field),
            None => Term::Payload { base, offset, len },
        })
    }

    /// Returns the expression for a conntrack property.
    pub fn ct(key: CtKey, direction: Option<Direction>) -> Self {
        Self(Term::Ct(key, direction))
    }

    pub(crate) fn load(load: Load) -> Self {
        Self(Term::Load(load))
    }

    pub(crate) fn fib(flags: FibFlags, result: FibResult) -> Self {
        Self(Term::Fib(flags, result))
    }

    pub(crate) fn numgen(mode: NumgenMode, modulus: u32, offset: u32) -> Self {
        Self(Term::Numgen {
            mode,
            modulus,
            offset,
        })
    }

    pub(crate) fn jenkins(of: Self, modulus: u32, seed: Option<u32>, offset: u32) -> Self {
        Self(Term::Jenkins {
            of: Box::new(of),
            modulus,
            seed,
            offset,
        })
    }

    pub(crate) fn symmetric(modulus: u32, offset: u32) -> Self {
        Self(Term::Symmetric { modulus, offset })
    }

    pub(crate) fn constant(bytes: Bytes) -> Self {
        Self(Term::Constant(bytes))
    }

    /// Returns the data type; of a concatenation, that of the first field.
    pub fn datatype(&self) -> Datatype {
        match &self.0 {
            Term::Header(field) => field.datatype,
            Term::BitField(field) => field.datatype,
            Term::Meta(key) => key.datatype().0,
            Term::Ct(key, _) => key.datatype().0,
            Term::Load(load) => load.datatype().0,
            Term::Fib(flags, _) if flags.contains(FibFlags::PRESENT) => Datatype::Boolean,
            Term::Fib(_, FibResult::Oif) => Datatype::IfaceIndex,
            Term::Fib(_, FibResult::Oifname) => Datatype::Ifname,
            Term::Fib(_, FibResult::AddrType) => Datatype::FibAddrType,
            Term::Bits { of, .. } | Term::Shift { of, .. } => of.datatype(),
            Term::Map { data, .. } => data.first().map_or(Datatype::Integer, |f| f.datatype),
            Term::Concat(parts) => parts.first().map_or(Datatype::Integer, Self::datatype),
            _ => Datatype::Integer,
        }
    }

    /// Returns the size in bytes; of a concatenation, including padding.
    pub fn bytes(&self) -> u16 {
        match &self.0 {
            Term::Header(field) => field.bytes,
            Term::BitField(field) => field.bytes,
            Term::Payload { len, .. } => u16::try_from(*len).unwrap_or(u16::MAX),
            Term::Meta(key) => key.datatype().1,
            Term::Ct(key, _) => key.datatype().1,
            Term::Load(load) => load.datatype().1,
            Term::Fib(flags, _) if flags.contains(FibFlags::PRESENT) => 1,
            Term::Fib(_, FibResult::Oifname) => 16,
            Term::Bits { of, .. } | Term::Shift { of, .. } => of.bytes(),
            Term::Map { data, .. } => u16::try_from(width(data)).unwrap_or(u16::MAX),
            Term::Concat(parts) => parts.iter().map(|p| p.bytes().next_multiple_of(4)).sum(),
            Term::Constant(bytes) => u16::try_from(bytes.len()).unwrap_or(u16::MAX),
            _ => 4,
        }
    }

    /// Returns the byte order of the value.
    pub(crate) fn order(&self) -> ByteOrder {
        match &self.0 {
            Term::Header(_) | Term::Payload { .. } | Term::BitField(_) | Term::Constant(_) => {
                ByteOrder::Big
            }
            Term::Meta(MetaKey::Random) | Term::Ct(CtKey::Id, _) => ByteOrder::Big,
            Term::Load(load) => load.order(),
            Term::Bits { of, .. } | Term::Shift { of, .. } => of.order(),
            Term::Map { data, .. } => data.first().map_or(ByteOrder::Host, |f| f.datatype.order()),
            _ => self.datatype().order(),
        }
    }

    /// Returns the number of low bits that are not part of the value.
    pub(crate) fn bits_after(&self) -> u32 {
        match &self.0 {
            Term::BitField(field) => field.shift,
            _ => 0,
        }
    }

    /// Returns whether the value has no name, only a location in the packet.
    pub(crate) fn is_raw(&self) -> bool {
        match &self.0 {
            Term::Payload { .. } => true,
            Term::Bits { of, .. } | Term::Shift { of, .. } => of.is_raw(),
            _ => false,
        }
    }

    /// Returns the number of 32-bit register words that the value takes.
    pub(crate) fn words(&self) -> u8 {
        u8::try_from(self.bytes().div_ceil(4)).unwrap_or(u8::MAX)
    }

    /// Returns the fields of a concatenation, or the expression itself.
    pub(crate) fn parts(&self) -> &[Self] {
        match &self.0 {
            Term::Concat(parts) => parts,
            _ => std::slice::from_ref(self),
        }
    }

    /// Adds an offset to a generated number or a hash: `jhash ip saddr mod 251 offset 1`.
    ///
    /// Other expressions have no offset and stay as they are.
    #[must_use]
    pub fn with_offset(mut self, by: u32) -> Self {
        match &mut self.0 {
            Term::Numgen { offset, .. }
            | Term::Jenkins { offset, .. }
            | Term::Symmetric { offset, .. } => *offset = by,
            _ => {}
        }
        self
    }

    /// Returns the data that the value maps to: `ip daddr map @m`.
    #[must_use]
    pub fn map(self, map: &Set) -> Self {
        let data = match &map.data {
            crate::DataKind::Fields(fields) => fields.clone(),
            _ => Vec::new(),
        };
        Self(Term::Map {
            of: Box::new(self),
            set: map.into(),
            data,
        })
    }

    /// Returns the data that the value maps to in a map with unknown fields.
    pub(crate) fn map_by(self, set: SetRef) -> Self {
        Self(Term::Map {
            of: Box::new(self),
            set,
            data: Vec::new(),
        })
    }
}
