//! Statements of the nft language: matches and actions of a rule.
//!
//! Matches come from expressions ([`Expression::is`] and others), actions from the
//! functions of this module.
//! Registers are allocated as in nft 1.0.6.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::expr::{
    Cmp, CmpOp, Counter, Dynset, DynsetOp, Expr, FlowOffload, Immediate, Limit, Log, Masq, MetaKey,
    Nat, NatFlags, NatType, Notrack, Quota, Redir, Register, Reject, RejectType,
};
use crate::expression::{Expression, Term};
use crate::lower::{Lower, SINGLE};
use crate::{Bytes, Family, Name, Set, Verdict};

/// A statement of a rule: a match or an action.
#[derive(Clone, Debug)]
pub struct Statement(pub(crate) Step);

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Kernel expressions and the protocols that the packet must have.
    Exprs {
        exprs: Vec<Expr>,
        requires: Protocols,
    },
    /// A `reject` whose type depends on the family of the table.
    Reject,
}

/// The protocols of a packet, if known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Protocols {
    pub(crate) network: Option<Family>,
    pub(crate) transport: Option<u8>,
}

impl Protocols {
    /// Returns the protocols known from both.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            network: self.network.or(other.network),
            transport: self.transport.or(other.transport),
        }
    }
}

impl Statement {
    pub(crate) fn requires(&self) -> Protocols {
        match &self.0 {
            Step::Exprs { requires, .. } => *requires,
            Step::Reject => Protocols::default(),
        }
    }

    /// Returns the protocols of a packet that matches the statement.
    pub(crate) fn implies(&self) -> Protocols {
        let Step::Exprs { exprs, .. } = &self.0 else {
            return Protocols::default();
        };
        match &**exprs {
            [
                load,
                Expr::Cmp(Cmp {
                    op: CmpOp::Eq,
                    data,
                    ..
                }),
            ] => implied_protocols(load, data),
            _ => Protocols::default(),
        }
    }

    pub(crate) fn from_lower(lower: Lower) -> Self {
        Self(Step::Exprs {
            exprs: lower.exprs,
            requires: lower.requires,
        })
    }
}

/// Returns the protocols of a packet for which the loaded value equals `data`.
fn implied_protocols(load: &Expr, data: &[u8]) -> Protocols {
    let &[number] = data else {
        return Protocols::default();
    };
    let transport = Protocols {
        network: None,
        transport: Some(number),
    };
    match load {
        Expr::Meta(meta) if meta.key == MetaKey::L4Proto => transport,
        Expr::Meta(meta) if meta.key == MetaKey::NfProto => Protocols {
            network: Family::from_number(number),
            transport: None,
        },
        // `ip6 nexthdr` and `ip protocol`
        Expr::Payload(payload) if [6, 9].contains(&payload.offset) => transport,
        _ => Protocols::default(),
    }
}

impl From<Expr> for Statement {
    fn from(expr: Expr) -> Self {
        Self(Step::Exprs {
            exprs: vec![expr],
            requires: Protocols::default(),
        })
    }
}

macro_rules! from_exprs {
    ($($expr:ident)*) => {
        $(impl From<$expr> for Statement {
            fn from(expr: $expr) -> Self {
                Expr::from(expr).into()
            }
        })*
    };
}

from_exprs! { Counter Limit Log Masq Quota Redir Reject }

impl From<Verdict> for Statement {
    fn from(verdict: Verdict) -> Self {
        Expr::from(Immediate::from(verdict)).into()
    }
}

/// Accepts the packet: `accept`.
pub fn accept() -> Statement {
    Verdict::Accept.into()
}

/// Drops the packet: `drop`.
pub fn drop() -> Statement {
    Verdict::Drop.into()
}

/// Returns to the calling chain: `return`.
pub fn return_() -> Statement {
    Verdict::Return.into()
}

/// Jumps to a chain: `jump chain`.
pub fn jump(chain: &Name) -> Statement {
    Verdict::Jump(chain.clone()).into()
}

/// Continues in another chain and does not return to this one: `goto chain`.
pub fn goto(chain: &Name) -> Statement {
    Verdict::Goto(chain.clone()).into()
}

/// Counts packets and bytes: `counter`.
pub fn counter() -> Statement {
    Counter::default().into()
}

/// Logs the packet to the kernel log: `log prefix "text"`.
pub fn log(prefix: &Name) -> Statement {
    Log {
        prefix: Some(prefix.clone()),
        ..Log::default()
    }
    .into()
}

/// Drops the packet and replies with ICMP or ICMPv6 port unreachable: `reject`.
pub fn reject() -> Statement {
    Statement(Step::Reject)
}

/// Drops the packet and replies with a TCP reset: `reject with tcp reset`.
pub fn reject_with_tcp_reset() -> Statement {
    let kind = RejectType::TcpReset;
    Statement(Step::Exprs {
        exprs: vec![Reject { kind }.into()],
        requires: Protocols {
            network: None,
            transport: Some(6),
        },
    })
}

/// Disables connection tracking for the packet: `notrack`.
pub fn notrack() -> Statement {
    Expr::from(Notrack).into()
}

/// Changes the source to an address of the output interface: `masquerade`, with flags
/// such as `fully-random`.
pub fn masquerade(flags: NatFlags) -> Statement {
    Masq {
        flags,
        ..Masq::default()
    }
    .into()
}

/// Adds the connection to a flowtable: `flow add @flowtable`.
pub fn flow_add(flowtable: &Name) -> Statement {
    Expr::from(FlowOffload {
        flowtable: flowtable.clone(),
    })
    .into()
}

/// Redirects the packet to a port of the local host: `redirect to :port`.
pub fn redirect(port: u16) -> Statement {
    let mut lower = Lower::default();
    let proto_min = Some(lower.constant(port.to_be_bytes().into()));
    lower.push(Redir {
        proto_min,
        ..Redir::default()
    });
    Statement::from_lower(lower)
}

/// The new address, and optionally port, of a NAT statement.
#[derive(Clone, Debug)]
pub struct NatTarget(NatTargetKind);

#[derive(Clone, Debug)]
enum NatTargetKind {
    Addr(IpAddr, Option<u16>),
    Map(Expression),
}

impl From<IpAddr> for NatTarget {
    fn from(addr: IpAddr) -> Self {
        Self(NatTargetKind::Addr(addr, None))
    }
}

impl From<SocketAddr> for NatTarget {
    fn from(addr: SocketAddr) -> Self {
        Self(NatTargetKind::Addr(addr.ip(), Some(addr.port())))
    }
}

impl From<Expression> for NatTarget {
    /// Takes the address, and the port if the map has one, from map data.
    fn from(map: Expression) -> Self {
        Self(NatTargetKind::Map(map))
    }
}

/// Translates the destination: `dnat to 10.0.0.1:80`,
/// `dnat ip to ip daddr . tcp dport map @m`.
///
/// The data of a map is an address, or an address and a port.
pub fn dnat(target: impl Into<NatTarget>) -> Statement {
    nat(NatType::Dnat, &target.into().0, NatFlags::empty())
}

/// Translates the source: `snat to 10.0.0.1`, `snat ip to ip saddr map @m`.
pub fn snat(target: impl Into<NatTarget>) -> Statement {
    nat(NatType::Snat, &target.into().0, NatFlags::empty())
}

fn nat(kind: NatType, target: &NatTargetKind, flags: NatFlags) -> Statement {
    let mut lower = Lower::default();
    let register = Register::word(0);
    let (family, proto_min) = match target {
        NatTargetKind::Addr(addr, port) => {
            let (family, bytes) = match addr {
                IpAddr::V4(addr) => (Family::Ip, Bytes::from(addr.octets())),
                IpAddr::V6(addr) => (Family::Ip6, Bytes::from(addr.octets())),
            };
            lower.constant(bytes);
            (
                family,
                port.map(|port| lower.constant(port.to_be_bytes().into())),
            )
        }
        NatTargetKind::Map(map) => {
            // nft allocates registers for the key and one more value.
            let key = match &map.0 {
                Term::Map { of, .. } => of.words(),
                _ => SINGLE,
            };
            lower.next = key.max(1) + SINGLE;
            lower.load(map, 0);
            let data = match &map.0 {
                Term::Map { data, .. } => &data[..],
                _ => &[],
            };
            let bytes = data.first().map_or(4, |field| field.bytes);
            let family = if bytes == 16 { Family::Ip6 } else { Family::Ip };
            let port = Register::word(u8::try_from(bytes.div_ceil(4)).unwrap_or(SINGLE));
            (family, (data.len() > 1).then_some(port))
        }
    };
    lower.push(Nat {
        kind,
        family,
        addr_min: Some(register),
        addr_max: None,
        proto_min,
        proto_max: None,
        flags,
    });
    Statement::from_lower(lower)
}

/// Adds an element to a dynamic set: `add @set { key }`.
pub fn add(set: &Set, key: &Expression) -> Statement {
    dynset(DynsetOp::Add, set, key, None, None)
}

/// Adds an element to a dynamic set or refreshes its timeout:
/// `update @set { key timeout T }`.
///
/// Without a timeout the default of the set applies.
pub fn update(set: &Set, key: &Expression, timeout: Option<Duration>) -> Statement {
    dynset(DynsetOp::Update, set, key, None, timeout)
}

/// Adds an element to a dynamic map or refreshes its timeout:
/// `update @map { key timeout T : data }`.
///
/// Without a timeout the default of the map applies.
pub fn update_map(
    map: &Set,
    key: &Expression,
    timeout: Option<Duration>,
    data: &Expression,
) -> Statement {
    dynset(DynsetOp::Update, map, key, Some(data), timeout)
}

fn dynset(
    op: DynsetOp,
    set: &Set,
    key: &Expression,
    data: Option<&Expression>,
    timeout: Option<Duration>,
) -> Statement {
    let mut lower = Lower::default();
    let key = lower.value(key);
    // nft allocates registers for a whole value, however short the key is.
    lower.next = lower.next.max(SINGLE);
    let data = data.map(|data| lower.value(data));
    lower.push(Dynset {
        set: set.into(),
        op,
        key,
        data,
        timeout,
        exprs: Vec::new(),
        invert: false,
    });
    Statement::from_lower(lower)
}
