//! Expressions: what a rule looks at, written as in nft.
//!
//! An expression compares ([`Expression::is`]), is looked up ([`Expression::in_set`],
//! [`Expression::vmap`], [`Expression::map`]), is set ([`Expression::set`]) or is
//! part of a concatenation ([`concat()`]).

use crate::datatype::ByteOrder;
use crate::expr::{
    CtKey, Direction, FibFlags, FibResult, MetaKey, NumgenMode, PayloadBase, SetRef,
};
use crate::header::{self, HeaderField};
use crate::set::width;
use crate::{Bytes, Datatype, Family, Field, Set};

/// What a rule looks at: a header field, a property, a number, or several.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Expression(pub(crate) Term);

/// The kinds of expressions.
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
    Map {
        of: Box<Expression>,
        set: SetRef,
        data: Vec<Field>,
    },
    Concat(Vec<Expression>),
    Constant(Bytes),
    /// A port of a protocol that was tested for, in text only.
    Port(&'static str, &'static str),
    Unknown,
}

impl Eq for Term {}

impl PartialEq for Term {
    /// Two terms are equal if they read so.
    fn eq(&self, other: &Self) -> bool {
        Expression(self.clone()).to_string() == Expression(other.clone()).to_string()
    }
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

/// The source address: `ip6 saddr` in the family `ip6`, else `ip saddr`.
pub fn saddr(family: Family) -> Expression {
    if family == Family::Ip6 {
        ip6_saddr()
    } else {
        ip_saddr()
    }
}

/// The destination address: `ip6 daddr` in the family `ip6`, else `ip daddr`.
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
    /// The family of the packet: `meta nfproto`.
    nfproto = NfProto;
    /// The packet mark: `meta mark`.
    mark = Mark;
    /// The name of the device it came in by: `iifname`.
    iifname = Iifname;
    /// The name of the device it goes out by: `oifname`.
    oifname = Oifname;
    /// The index of the device it came in by: `iif`.
    iif = Iif;
    /// The index of the device it goes out by: `oif`.
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

/// A property of the connection as it was opened: `ct original ip daddr`.
pub fn ct_original(key: CtKey) -> Expression {
    Expression::ct(key, Some(Direction::Original))
}

/// A property of the answers of the connection: `ct reply ip saddr`.
pub fn ct_reply(key: CtKey) -> Expression {
    Expression::ct(key, Some(Direction::Reply))
}

/// The source address the connection was opened with: `ct original ip saddr`.
pub fn ct_original_saddr(family: Family) -> Expression {
    ct_original(if family == Family::Ip6 {
        CtKey::SrcIp6
    } else {
        CtKey::SrcIp
    })
}

/// The destination address it was opened with: `ct original ip daddr`.
pub fn ct_original_daddr(family: Family) -> Expression {
    ct_original(if family == Family::Ip6 {
        CtKey::DstIp6
    } else {
        CtKey::DstIp
    })
}

/// What the routing tables say: `fib daddr . mark type`.
pub fn fib(flags: FibFlags, result: FibResult) -> Expression {
    Expression::fib(flags, result)
}

/// What the destination is to this machine: `fib daddr type`.
pub fn fib_daddr_type() -> Expression {
    fib(FibFlags::DADDR, FibResult::AddrType)
}

/// What the source is to this machine: `fib saddr type`.
pub fn fib_saddr_type() -> Expression {
    fib(FibFlags::SADDR, FibResult::AddrType)
}

/// A number below `modulus` by chance: `numgen random mod 3`.
pub fn numgen_random(modulus: u32) -> Expression {
    Expression::numgen(NumgenMode::Random, modulus, 0)
}

/// A number below `modulus`, one after the other: `numgen inc mod 3`.
pub fn numgen_inc(modulus: u32) -> Expression {
    Expression::numgen(NumgenMode::Incremental, modulus, 0)
}

/// A number below `modulus` made of a value: `jhash ip saddr mod 251`.
///
/// Without a seed the kernel takes one by chance.
pub fn jhash(of: Expression, modulus: u32, seed: Option<u32>) -> Expression {
    Expression::jenkins(of, modulus, seed, 0)
}

/// A number below `modulus` made of both ends of the connection: `symhash mod 2`.
pub fn symhash(modulus: u32) -> Expression {
    Expression::symmetric(modulus, 0)
}

/// Several expressions as one: `ip daddr . meta l4proto . th dport`.
pub fn concat(parts: impl IntoIterator<Item = Expression>) -> Expression {
    Expression(Term::Concat(parts.into_iter().collect()))
}

impl From<MetaKey> for Expression {
    fn from(key: MetaKey) -> Self {
        Self(Term::Meta(key))
    }
}

impl From<CtKey> for Expression {
    fn from(key: CtKey) -> Self {
        Self::ct(key, None)
    }
}

impl Expression {
    /// Selects bytes of the packet: `@nh,96,32` or the field that is there.
    pub fn payload(base: PayloadBase, offset: u32, len: u32, family: Option<Family>) -> Self {
        Self(match HeaderField::find(base, offset, len, family) {
            Some(field) => Term::Header(field),
            None => Term::Payload { base, offset, len },
        })
    }

    /// Selects a property of the connection.
    pub fn ct(key: CtKey, direction: Option<Direction>) -> Self {
        Self(Term::Ct(key, direction))
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

    /// Returns the type of the value; that of the first one of several.
    pub fn datatype(&self) -> Datatype {
        match &self.0 {
            Term::Header(field) => field.datatype,
            Term::Meta(key) => key.datatype().0,
            Term::Ct(key, _) => key.datatype().0,
            Term::Fib(flags, _) if flags.contains(FibFlags::PRESENT) => Datatype::Boolean,
            Term::Fib(_, FibResult::Oif) => Datatype::IfaceIndex,
            Term::Fib(_, FibResult::Oifname) => Datatype::Ifname,
            Term::Fib(_, FibResult::AddrType) => Datatype::FibAddrType,
            Term::Bits { of, .. } => of.datatype(),
            Term::Map { data, .. } => data.first().map_or(Datatype::Integer, |f| f.datatype),
            Term::Concat(parts) => parts.first().map_or(Datatype::Integer, Self::datatype),
            _ => Datatype::Integer,
        }
    }

    /// Returns the length of the value in bytes; of several, with padding.
    pub fn bytes(&self) -> u16 {
        match &self.0 {
            Term::Header(field) => field.bytes,
            Term::Payload { len, .. } => u16::try_from(*len).unwrap_or(u16::MAX),
            Term::Meta(key) => key.datatype().1,
            Term::Ct(key, _) => key.datatype().1,
            Term::Fib(flags, _) if flags.contains(FibFlags::PRESENT) => 1,
            Term::Fib(_, FibResult::Oifname) => 16,
            Term::Bits { of, .. } => of.bytes(),
            Term::Map { data, .. } => u16::try_from(width(data)).unwrap_or(u16::MAX),
            Term::Concat(parts) => parts.iter().map(|p| p.bytes().next_multiple_of(4)).sum(),
            Term::Constant(bytes) => u16::try_from(bytes.len()).unwrap_or(u16::MAX),
            _ => 4,
        }
    }

    /// Returns the order of the bytes of the value.
    pub(crate) fn order(&self) -> ByteOrder {
        match &self.0 {
            Term::Header(_) | Term::Payload { .. } | Term::Constant(_) => ByteOrder::Big,
            Term::Bits { of, .. } => of.order(),
            Term::Map { data, .. } => data.first().map_or(ByteOrder::Host, |f| f.datatype.order()),
            _ => self.datatype().order(),
        }
    }

    /// Returns how many words of a register the value takes.
    pub(crate) fn words(&self) -> u8 {
        u8::try_from(self.bytes().div_ceil(4)).unwrap_or(u8::MAX)
    }

    /// Returns the fields of the value.
    pub(crate) fn parts(&self) -> &[Self] {
        match &self.0 {
            Term::Concat(parts) => parts,
            _ => std::slice::from_ref(self),
        }
    }

    /// Returns the value with only the bits that are in the mask: `meta mark & 0x1`.
    #[must_use]
    pub fn and(self, mask: u32) -> Self {
        let [mask, none] = [self.integer(mask), self.integer(0)];
        self.with_bits(mask, none)
    }

    /// Returns the value with these bits in addition: `meta mark | 0x1`.
    #[must_use]
    pub fn or(self, bits: u32) -> Self {
        let [mask, bits] = [self.integer(!bits), self.integer(bits)];
        self.with_bits(mask, bits)
    }

    /// Returns the value with these bits changed: `meta mark ^ 0x1`.
    #[must_use]
    pub fn xor(self, bits: u32) -> Self {
        let [mask, bits] = [self.integer(u32::MAX), self.integer(bits)];
        self.with_bits(mask, bits)
    }

    /// Returns the bytes of a number as the value has them; high bits are lost.
    fn integer(&self, number: u32) -> Bytes {
        let len = usize::from(self.bytes());
        let big = number.to_be_bytes();
        let mut bytes = Bytes::repeat(0, len.saturating_sub(4));
        bytes.extend(big.get(4_usize.saturating_sub(len)..).unwrap_or(&big));
        if self.order() == ByteOrder::Host && cfg!(target_endian = "little") {
            bytes.as_mut_slice().reverse();
        }
        bytes
    }

    /// Returns the value with bits taken by a mask, then changed.
    pub(crate) fn with_bits(self, mask: Bytes, xor: Bytes) -> Self {
        let (of, mask, xor) = match self.0 {
            Term::Bits {
                of,
                mask: old_mask,
                xor: old_xor,
            } => {
                let new_mask = zip(&old_mask, &mask, |a, b| a & b);
                let kept = zip(&old_xor, &mask, |a, b| a & b);
                (of, new_mask, zip(&kept, &xor, |a, b| a ^ b))
            }
            term => (Box::new(Self(term)), mask, xor),
        };
        Self(Term::Bits { of, mask, xor })
    }

    /// Returns what the value maps to: `ip daddr map @m`.
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

    /// Returns what the value maps to, where the fields of the map are unknown.
    pub(crate) fn map_by(self, set: SetRef) -> Self {
        Self(Term::Map {
            of: Box::new(self),
            set,
            data: Vec::new(),
        })
    }
}

/// Joins byte strings byte by byte, up to the end of the shorter one.
pub(crate) fn zip(one: &[u8], other: &[u8], join: impl Fn(u8, u8) -> u8) -> Bytes {
    let mut joined = Bytes::new();
    for (a, b) in one.iter().zip(other) {
        joined.extend(&[join(*a, *b)]);
    }
    joined
}
