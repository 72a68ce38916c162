//! Values that an expression can be compared with or assigned, by type.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::expr::{AddrType, CtState, CtStatus, Direction};
use crate::{Name, Value};

/// The type of the values of `iifname` and `oifname`: names of network interfaces.
///
/// Such an expression is compared with a `&str` of at most 15 bytes. A trailing `*` matches
/// any suffix: `iifname().is("cni*")`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ifname {}

/// What an [`Expression<T>`](crate::Expression) can be compared with: a value, and, if `T` has an
/// order, an inclusive range or a network.
///
/// ```
/// use vipline_nftables::expression::{concat, ip_daddr, iifname, tcp_dport};
/// use vipline_nftables::{Family, Rule};
///
/// let net: ipnet::Ipv4Net = "192.0.2.0/24".parse()?;
/// let rule = Rule::new(Family::Ip, [
///     iifname().is("eth*"),
///     ip_daddr().is(net),
///     tcp_dport().is_in([22..=22, 8000..=8080]),
/// ])?;
/// assert_eq!(rule.to_string(), "iifname \"eth*\" ip daddr 192.0.2.0/24 tcp dport { 22, 8000-8080 }");
/// let pairs = concat((ip_daddr(), tcp_dport()));
/// let rule = Rule::new(Family::Ip, [pairs.is_in([(net.network(), 80), (net.network(), 443)])])?;
/// assert_eq!(rule.to_string(), "meta l4proto tcp ip daddr . tcp dport { 192.0.2.0 . 80, 192.0.2.0 . 443 }");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What no packet can have does not compile:
///
/// ```compile_fail
/// vipline_nftables::expression::tcp_dport().is(70_000_u32);
/// ```
///
/// ```compile_fail
/// # use vipline_nftables::expr::CtStatus;
/// vipline_nftables::expression::ct_state().is(CtStatus::DNAT);
/// ```
///
/// ```compile_fail
/// vipline_nftables::expression::ip6_saddr().is(std::net::Ipv4Addr::LOCALHOST);
/// ```
///
/// ```compile_fail
/// vipline_nftables::expression::iifname().is(5_u32);
/// ```
///
/// A [`Value`] is an operand of every type, for values whose type is known only when the program
/// runs. A concatenation is compared with tuples that have an operand for each field. An
/// `Expression<Value>` is compared with everything that converts to a [`Value`], and a
/// concatenation without known types with lists of values.
pub trait Operand<T> {
    /// Returns one value for each field of the expression.
    fn into_values(self) -> Vec<Value>;
}

/// What an [`Expression<T>`](crate::Expression) can be assigned: operands that are single values.
pub trait Constant<T>: Operand<T> {}

macro_rules! operands {
    ($($of:ty: $($operand:ty),+;)*) => {
        $($(impl Operand<$of> for $operand {
            fn into_values(self) -> Vec<Value> {
                vec![self.into()]
            }
        })+)*
    };
}

operands! {
    u8: u8, RangeInclusive<u8>;
    u16: u16, RangeInclusive<u16>;
    u32: u32, RangeInclusive<u32>;
    u64: u64, RangeInclusive<u64>;
    bool: bool;
    [u8; 6]: [u8; 6];
    CtState: CtState;
    CtStatus: CtStatus;
    Direction: Direction;
    AddrType: AddrType;
    Ifname: &str, &Name;
    Ipv4Addr: Ipv4Addr, Ipv4Net, RangeInclusive<Ipv4Addr>, IpAddr, IpNet, RangeInclusive<IpAddr>;
    Ipv6Addr: Ipv6Addr, Ipv6Net, RangeInclusive<Ipv6Addr>, IpAddr, IpNet, RangeInclusive<IpAddr>;
    IpAddr: IpAddr, IpNet, RangeInclusive<IpAddr>, Ipv4Addr, Ipv6Addr, Ipv4Net, Ipv6Net;
}

macro_rules! constants {
    ($($of:ty: $($operand:ty),+;)*) => {
        $($(impl Constant<$of> for $operand {})+)*
    };
}

constants! {
    u8: u8;
    u16: u16;
    u32: u32;
    u64: u64;
    bool: bool;
    [u8; 6]: [u8; 6];
    CtState: CtState;
    CtStatus: CtStatus;
    Direction: Direction;
    AddrType: AddrType;
    Ifname: &str, &Name;
    Ipv4Addr: Ipv4Addr, IpAddr;
    Ipv6Addr: Ipv6Addr, IpAddr;
    IpAddr: IpAddr, Ipv4Addr, Ipv6Addr;
}

macro_rules! dynamic {
    ($($of:ty),+) => {
        $(impl Operand<$of> for Value {
            fn into_values(self) -> Vec<Value> {
                vec![self]
            }
        }

        impl Constant<$of> for Value {})+
    };
}

dynamic! { u8, u16, u32, u64, bool, [u8; 6], CtState, CtStatus, Direction, AddrType, Ifname, Ipv4Addr, Ipv6Addr, IpAddr }

impl<V: Into<Value>> Operand<Value> for V {
    fn into_values(self) -> Vec<Value> {
        vec![self.into()]
    }
}

impl<V: Into<Value>> Constant<Value> for V {}

impl<const N: usize> Operand<Value> for [Value; N] {
    fn into_values(self) -> Vec<Value> {
        self.into()
    }
}

impl Operand<Value> for Vec<Value> {
    fn into_values(self) -> Vec<Value> {
        self
    }
}

macro_rules! tuples {
    ($($(($type:ident $operand:ident $name:ident))+;)*) => {
        $(impl<$($type, $operand: Operand<$type>),+> Operand<($($type,)+)> for ($($operand,)+) {
            fn into_values(self) -> Vec<Value> {
                let ($($name,)+) = self;
                [$($name.into_values()),+].concat()
            }
        })*
    };
}

tuples! {
    (A Oa a) (B Ob b);
    (A Oa a) (B Ob b) (C Oc c);
    (A Oa a) (B Ob b) (C Oc c) (D Od d);
    (A Oa a) (B Ob b) (C Oc c) (D Od d) (E Oe e);
    (A Oa a) (B Ob b) (C Oc c) (D Od d) (E Oe e) (F Of f);
    (A Oa a) (B Ob b) (C Oc c) (D Od d) (E Oe e) (F Of f) (G Og g);
    (A Oa a) (B Ob b) (C Oc c) (D Od d) (E Oe e) (F Of f) (G Og g) (H Oh h);
}
