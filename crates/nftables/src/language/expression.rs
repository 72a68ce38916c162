//! Expressions of the nft language: the values that a rule reads.
//!
//! An expression can be compared ([`Expression::is`]), looked up
//! ([`Expression::in_set`], [`Expression::vmap`], [`Expression::map`]), assigned
//! ([`Expression::set`]) or concatenated ([`concat()`]).
//! Kernel expressions, which execute a rule, are in [`expr`](crate::expr).

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::expr::{
    AddrType, CtKey, CtState, CtStatus, Direction, ExthdrOp, FibFlags, FibResult, MetaKey,
    NumgenMode, OsfTtl, PayloadBase, RtKey, SetRef, SocketKey, XfrmDirection, XfrmKey,
};
use crate::language::bitfield::BitField;
use crate::language::field::width;
use crate::language::header::{self, HeaderField};
use crate::language::load::Load;
use crate::language::operand::Ifname;
use crate::value::ByteOrder;
use crate::{Bytes, Datatype, Family, Field, InvalidValue, Value};

/// An expression: a header field, packet metadata, a number, or a concatenation.
///
/// `T` is the Rust type of its values: `tcp_dport()` is an `Expression<u16>`, and
/// `ip_saddr()` an `Expression<Ipv4Addr>`. What can be compared with it is an
/// [`Operand<T>`](crate::Operand), so that a port is never compared with an address, nor with
/// a number that no port has. Some types are known only when the program runs, such as that
/// of a [`CtKey`], or of a key that was decoded from a dump. Such an expression is an
/// `Expression<Value>`, and takes whatever converts to a [`Value`]; a value that it cannot
/// have makes the statement invalid ([`InvalidValue`]).
pub struct Expression<T = Value>(pub(crate) Term, PhantomData<fn() -> T>);

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
    /// An operation with a value that the operand cannot have.
    Invalid(Box<InvalidValue>),
    /// A port of the protocol that a previous match implies. Only used for text.
    Port(&'static str, &'static str),
    Unknown,
}

macro_rules! header_expressions {
    ($($(#[$doc:meta])* $function:ident: $values:ty = $field:ident;)*) => {
        $($(#[$doc])*
        pub fn $function() -> Expression<$values> {
            Expression::typed(Term::Header(&header::$field))
        })*
    };
}

header_expressions! {
    /// The source address of an IPv4 packet: `ip saddr`.
    ip_saddr: Ipv4Addr = IP_SADDR;
    /// The destination address of an IPv4 packet: `ip daddr`.
    ip_daddr: Ipv4Addr = IP_DADDR;
    /// The transport protocol of an IPv4 packet: `ip protocol`.
    ip_protocol: u8 = IP_PROTOCOL;
    /// The source address of an IPv6 packet: `ip6 saddr`.
    ip6_saddr: Ipv6Addr = IP6_SADDR;
    /// The destination address of an IPv6 packet: `ip6 daddr`.
    ip6_daddr: Ipv6Addr = IP6_DADDR;
    /// The source port of any transport protocol: `th sport`.
    th_sport: u16 = TH_SPORT;
    /// The destination port of any transport protocol: `th dport`.
    th_dport: u16 = TH_DPORT;
    /// The source port of a TCP segment: `tcp sport`.
    tcp_sport: u16 = TCP_SPORT;
    /// The destination port of a TCP segment: `tcp dport`.
    tcp_dport: u16 = TCP_DPORT;
    /// The flags of a TCP segment: `tcp flags`.
    tcp_flags: u8 = TCP_FLAGS;
    /// The source port of a UDP datagram: `udp sport`.
    udp_sport: u16 = UDP_SPORT;
    /// The destination port of a UDP datagram: `udp dport`.
    udp_dport: u16 = UDP_DPORT;
    /// The source port of an SCTP packet: `sctp sport`.
    sctp_sport: u16 = SCTP_SPORT;
    /// The destination port of an SCTP packet: `sctp dport`.
    sctp_dport: u16 = SCTP_DPORT;
    /// The type of an ICMP message: `icmp type`.
    icmp_type: u8 = ICMP_TYPE;
    /// The type of an ICMPv6 message: `icmpv6 type`.
    icmpv6_type: u8 = ICMPV6_TYPE;
    /// The source address of an Ethernet frame: `ether saddr`.
    ether_saddr: [u8; 6] = ETHER_SADDR;
    /// The destination address of an Ethernet frame: `ether daddr`.
    ether_daddr: [u8; 6] = ETHER_DADDR;
}

/// The source address: `ip6 saddr` in family `ip6`, otherwise `ip saddr`.
///
/// A value of the other family makes the statement invalid.
pub fn saddr(family: Family) -> Expression<IpAddr> {
    Expression::typed(if family == Family::Ip6 {
        ip6_saddr().0
    } else {
        ip_saddr().0
    })
}

/// The destination address: `ip6 daddr` in family `ip6`, otherwise `ip daddr`.
///
/// A value of the other family makes the statement invalid.
pub fn daddr(family: Family) -> Expression<IpAddr> {
    Expression::typed(if family == Family::Ip6 {
        ip6_daddr().0
    } else {
        ip_daddr().0
    })
}

macro_rules! meta_expressions {
    ($($(#[$doc:meta])* $function:ident: $values:ty = $key:ident;)*) => {
        $($(#[$doc])*
        pub fn $function() -> Expression<$values> {
            Expression::typed(Term::Meta(MetaKey::$key))
        })*
    };
}

meta_expressions! {
    /// The transport protocol: `meta l4proto`.
    l4proto: u8 = L4Proto;
    /// The protocol family of the packet: `meta nfproto`.
    nfproto: u8 = NfProto;
    /// The packet mark: `meta mark`.
    mark: u32 = Mark;
    /// The priority of the packet for traffic control: `meta priority`.
    priority: u32 = Priority;
    /// The name of the input interface: `iifname`.
    iifname: Ifname = Iifname;
    /// The name of the output interface: `oifname`.
    oifname: Ifname = Oifname;
    /// The index of the input interface: `iif`.
    iif: u32 = Iif;
    /// The index of the output interface: `oif`.
    oif: u32 = Oif;
}

/// The state of the connection: `ct state`.
pub fn ct_state() -> Expression<CtState> {
    Expression::typed(Term::Ct(CtKey::State, None))
}

/// The status of the connection: `ct status`.
pub fn ct_status() -> Expression<CtStatus> {
    Expression::typed(Term::Ct(CtKey::Status, None))
}

/// The mark of the connection: `ct mark`.
pub fn ct_mark() -> Expression<u32> {
    Expression::typed(Term::Ct(CtKey::Mark, None))
}

/// The direction of the packet in its connection: `ct direction`.
pub fn ct_direction() -> Expression<Direction> {
    Expression::typed(Term::Ct(CtKey::Direction, None))
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
pub fn ct_original_saddr(family: Family) -> Expression<IpAddr> {
    let key = match family {
        Family::Ip6 => CtKey::SrcIp6,
        _ => CtKey::SrcIp,
    };
    Expression::typed(Term::Ct(key, Some(Direction::Original)))
}

/// The destination address of the original direction: `ct original ip daddr`.
pub fn ct_original_daddr(family: Family) -> Expression<IpAddr> {
    let key = match family {
        Family::Ip6 => CtKey::DstIp6,
        _ => CtKey::DstIp,
    };
    Expression::typed(Term::Ct(key, Some(Direction::Original)))
}

/// Whether the packet has an optional header: `exthdr frag`, `tcp option sack-perm`.
///
/// `kind` is a protocol number, an option kind or a chunk type.
pub fn exthdr_exists(op: ExthdrOp, kind: u8) -> Expression<bool> {
    Expression::typed(Term::Load(Load::Exthdr {
        op,
        kind,
        offset: 0,
        len: 1,
        present: true,
    }))
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
pub fn tcp_option_maxseg_size() -> Expression<u16> {
    Expression::typed(exthdr(ExthdrOp::TcpOption, 2, 2, 2).0)
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
pub fn fib_daddr_type() -> Expression<AddrType> {
    Expression::typed(Term::Fib(FibFlags::DADDR, FibResult::AddrType))
}

/// The route type of the source address: `fib saddr type`.
pub fn fib_saddr_type() -> Expression<AddrType> {
    Expression::typed(Term::Fib(FibFlags::SADDR, FibResult::AddrType))
}

/// A random number below `modulus`: `numgen random mod 3`.
pub fn numgen_random(modulus: u32) -> Expression<u32> {
    Expression::typed(Expression::numgen(NumgenMode::Random, modulus, 0).0)
}

/// A round-robin counter below `modulus`: `numgen inc mod 3`.
pub fn numgen_inc(modulus: u32) -> Expression<u32> {
    Expression::typed(Expression::numgen(NumgenMode::Incremental, modulus, 0).0)
}

/// The Jenkins hash of an expression, modulo `modulus`: `jhash ip saddr mod 251`.
///
/// Without a seed the kernel chooses a random one.
pub fn jhash<T>(of: Expression<T>, modulus: u32, seed: Option<u32>) -> Expression<u32> {
    Expression::typed(Expression::jenkins(of.untyped(), modulus, seed, 0).0)
}

/// The symmetric hash of the connection, modulo `modulus`: `symhash mod 2`.
pub fn symhash(modulus: u32) -> Expression<u32> {
    Expression::typed(Term::Symmetric { modulus, offset: 0 })
}

/// The concatenation of expressions: `ip daddr . meta l4proto . th dport`.
///
/// Of a tuple, the values are tuples: `concat((ip_daddr(), tcp_dport()))` is an
/// `Expression<(Ipv4Addr, u16)>`. Of a list, whose number of fields may vary, they are lists.
pub fn concat<P: Parts>(parts: P) -> Expression<P::Values> {
    Expression::typed(Term::Concat(parts.into_parts()))
}

/// Expressions that [`concat()`] concatenates: a tuple of up to
/// eight, or a list.
pub trait Parts {
    /// Type of the values of the concatenation.
    type Values;

    /// Returns the expressions in order.
    fn into_parts(self) -> Vec<Expression>;
}

impl<T, const N: usize> Parts for [Expression<T>; N] {
    type Values = Value;

    fn into_parts(self) -> Vec<Expression> {
        self.into_iter().map(Expression::untyped).collect()
    }
}

impl<T> Parts for Vec<Expression<T>> {
    type Values = Value;

    fn into_parts(self) -> Vec<Expression> {
        self.into_iter().map(Expression::untyped).collect()
    }
}

macro_rules! tuples {
    ($($($type:ident $name:ident)+;)*) => {
        $(impl<$($type),+> Parts for ($(Expression<$type>,)+) {
            type Values = ($($type,)+);

            fn into_parts(self) -> Vec<Expression> {
                let ($($name,)+) = self;
                vec![$($name.untyped()),+]
            }
        })*
    };
}

tuples! {
    A a B b;
    A a B b C c;
    A a B b C c D d;
    A a B b C c D d E e;
    A a B b C c D d E e F f;
    A a B b C c D d E e F f G g;
    A a B b C c D d E e F f G g H h;
}

impl From<MetaKey> for Expression {
    fn from(key: MetaKey) -> Self {
        Self::of(Term::Meta(key))
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
    /// Returns the fields of a concatenation, or the expression itself.
    pub(crate) fn parts(&self) -> &[Self] {
        match &self.0 {
            Term::Concat(parts) => parts,
            _ => std::slice::from_ref(self),
        }
    }
}

impl<T> Clone for Expression<T> {
    fn clone(&self) -> Self {
        Self::typed(self.0.clone())
    }
}

impl<T> fmt::Debug for Expression<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.0).finish()
    }
}

impl<T> Eq for Expression<T> {}

impl<T> PartialEq for Expression<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Expression {
    pub(crate) const fn of(term: Term) -> Self {
        Self::typed(term)
    }

    /// Returns the expression for bytes of the packet: the named header field at this
    /// location, or `@nh,96,32`.
    pub fn payload(base: PayloadBase, offset: u32, len: u32, family: Option<Family>) -> Self {
        Self::of(match HeaderField::find(base, offset, len, family) {
            Some(field) => Term::Header(field),
            None => Term::Payload { base, offset, len },
        })
    }

    /// Returns the expression for a conntrack property.
    pub fn ct(key: CtKey, direction: Option<Direction>) -> Self {
        Self::of(Term::Ct(key, direction))
    }

    pub(crate) fn load(load: Load) -> Self {
        Self::of(Term::Load(load))
    }

    pub(crate) fn fib(flags: FibFlags, result: FibResult) -> Self {
        Self::of(Term::Fib(flags, result))
    }

    pub(crate) fn numgen(mode: NumgenMode, modulus: u32, offset: u32) -> Self {
        Self::of(Term::Numgen {
            mode,
            modulus,
            offset,
        })
    }

    pub(crate) fn jenkins(of: Self, modulus: u32, seed: Option<u32>, offset: u32) -> Self {
        Self::of(Term::Jenkins {
            of: Box::new(of),
            modulus,
            seed,
            offset,
        })
    }

    pub(crate) fn symmetric(modulus: u32, offset: u32) -> Self {
        Self::of(Term::Symmetric { modulus, offset })
    }

    pub(crate) fn constant(bytes: Bytes) -> Self {
        Self::of(Term::Constant(bytes))
    }
}

impl<T> Expression<T> {
    /// Creates an expression whose values are known to be of type `T`.
    pub(crate) const fn typed(term: Term) -> Self {
        Self(term, PhantomData)
    }

    /// Returns the expression for values whose type is not known.
    pub fn untyped(self) -> Expression {
        Expression::of(self.0)
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
            Term::Concat(parts) => parts
                .first()
                .map_or(Datatype::Integer, Expression::datatype),
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

    /// Returns the fields of a concatenation, or the expression itself: those of the key of a
    /// set in which it is looked up.
    pub fn into_fields(self) -> Vec<Field> {
        match self.0 {
            Term::Concat(parts) => parts.into_iter().map(Field::from).collect(),
            _ => vec![self.into()],
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
}
