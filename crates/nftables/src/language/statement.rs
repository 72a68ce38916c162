//! Statements of the nft language: matches and actions of a rule.
//!
//! Matches come from expressions ([`Expression::is`] and others), actions from the
//! functions of this module.
//! Registers are allocated as in nft 1.0.6.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::expr::{
    Cmp, CmpOp, Connlimit, Counter, Dup, Dynset, DynsetOp, Expr, FlowOffload, Fwd, Immediate, Last,
    Limit, Log, Masq, MetaKey, Nat, NatFlags, NatType, Notrack, Queue, QueueFlags, QueueTarget,
    Quota, Redir, Register, Reject, RejectType, Synproxy, Tproxy,
};
use crate::expression::{Expression, Term};
use crate::language::lower::{Lower, Protocols, SINGLE};
use crate::{Bytes, Family, InvalidValue, Name, Set, Value, Verdict};

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
    /// A statement that no rule can have.
    Invalid(InvalidValue),
}

impl Statement {
    pub(crate) fn requires(&self) -> Protocols {
        match &self.0 {
            Step::Exprs { requires, .. } => *requires,
            Step::Reject | Step::Invalid(_) => Protocols::default(),
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
        Self(match lower.invalid {
            Some(invalid) => Step::Invalid(invalid),
            None => Step::Exprs {
                exprs: lower.exprs,
                requires: lower.requires,
            },
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

impl From<InvalidValue> for Statement {
    fn from(invalid: InvalidValue) -> Self {
        Self(Step::Invalid(invalid))
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

from_exprs! { Connlimit Counter Last Limit Log Masq Quota Queue Redir Reject Synproxy }

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

/// Passes the packet to a program that listens on a queue: `queue flags bypass to 5`.
pub fn queue(number: u16, flags: QueueFlags) -> Statement {
    let target = QueueTarget::Numbers {
        first: number,
        total: 1,
    };
    Queue { target, flags }.into()
}

/// Sends a copy of the packet to another host: `dup to 10.0.0.1`.
pub fn dup(addr: IpAddr) -> Statement {
    let mut lower = Lower::default();
    let addr = Some(lower.constant(addr_bytes(addr)));
    lower.push(Dup { addr, device: None });
    Statement::from_lower(lower)
}

/// Sends the packet through another interface, by index: `fwd to 2`. Family `netdev` only.
pub fn fwd(device: u32) -> Statement {
    let mut lower = Lower::default();
    let device = lower.constant(device.to_ne_bytes().into());
    lower.push(Fwd { device, addr: None });
    Statement::from_lower(lower)
}

/// Assigns the packet to the local socket with this address: `tproxy to 127.0.0.1:8080`.
pub fn tproxy(socket: SocketAddr) -> Statement {
    let mut lower = Lower::default();
    let family = match socket {
        SocketAddr::V4(_) => Family::Ip,
        SocketAddr::V6(_) => Family::Ip6,
    };
    let addr = Some(lower.constant(addr_bytes(socket.ip())));
    let port = Some(lower.constant(socket.port().to_be_bytes().into()));
    lower.push(Tproxy {
        family: Some(family),
        addr,
        port,
    });
    Statement::from_lower(lower)
}

fn addr_bytes(addr: IpAddr) -> Bytes {
    match addr {
        IpAddr::V4(addr) => addr.octets().into(),
        IpAddr::V6(addr) => addr.octets().into(),
    }
}

/// The new address, and optionally port, of a NAT statement.
#[derive(Clone, Debug)]
pub struct NatTarget(NatTargetKind);

#[derive(Clone, Debug)]
enum NatTargetKind {
    Addr(IpAddr, Option<u16>),
    Range(RangeInclusive<IpAddr>, Option<RangeInclusive<u16>>),
    Map(Expression),
}

impl NatTarget {
    /// Creates a target with a range of addresses and, optionally, of ports:
    /// `10.0.0.1-10.0.0.9:1024-65535`.
    ///
    /// Both addresses must have the same family; otherwise the kernel rejects the rule.
    pub fn range(addrs: RangeInclusive<IpAddr>, ports: Option<RangeInclusive<u16>>) -> Self {
        Self(NatTargetKind::Range(addrs, ports))
    }
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

impl<T> From<Expression<T>> for NatTarget {
    /// Takes the address, and the port if the map has one, from map data.
    fn from(map: Expression<T>) -> Self {
        Self(NatTargetKind::Map(map.untyped()))
    }
}

/// Translates the destination: `dnat to 10.0.0.1:80`,
/// `dnat ip to ip daddr . tcp dport map @m`.
///
/// The data of a map is an address, or an address and a port.
pub fn dnat(target: impl Into<NatTarget>) -> Statement {
    dnat_with(target, NatFlags::empty())
}

/// Translates the destination with flags: `dnat to 10.0.0.1-10.0.0.9 persistent`.
pub fn dnat_with(target: impl Into<NatTarget>, flags: NatFlags) -> Statement {
    nat(NatType::Dnat, &target.into().0, flags)
}

/// Translates the source: `snat to 10.0.0.1`, `snat ip to ip saddr map @m`.
pub fn snat(target: impl Into<NatTarget>) -> Statement {
    snat_with(target, NatFlags::empty())
}

/// Translates the source with flags: `snat to 10.0.0.1 fully-random`.
pub fn snat_with(target: impl Into<NatTarget>, flags: NatFlags) -> Statement {
    nat(NatType::Snat, &target.into().0, flags)
}

fn nat(kind: NatType, target: &NatTargetKind, flags: NatFlags) -> Statement {
    let mut lower = Lower::default();
    let (family, registers) = match target {
        NatTargetKind::Addr(addr, port) => {
            let ports = port.map(|port| port..=port);
            nat_range(&mut lower, &(*addr..=*addr), ports.as_ref())
        }
        NatTargetKind::Range(addrs, ports) => nat_range(&mut lower, addrs, ports.as_ref()),
        NatTargetKind::Map(map) => nat_map(&mut lower, map),
    };
    let [addr_min, addr_max, proto_min, proto_max] = registers;
    lower.push(Nat {
        kind,
        family,
        addr_min,
        addr_max,
        proto_min,
        proto_max,
        flags,
    });
    Statement::from_lower(lower)
}

/// Loads the ends of ranges. Returns the registers of the addresses and of the ports.
fn nat_range(
    lower: &mut Lower,
    addrs: &RangeInclusive<IpAddr>,
    ports: Option<&RangeInclusive<u16>>,
) -> (Family, [Option<Register>; 4]) {
    let family = match addrs.start() {
        IpAddr::V4(_) => Family::Ip,
        IpAddr::V6(_) => Family::Ip6,
    };
    let [addr_min, addr_max] = load_ends(lower, addrs, |addr| addr_bytes(*addr));
    let [proto_min, proto_max] = match ports {
        Some(ports) => load_ends(lower, ports, |port| port.to_be_bytes().into()),
        None => [None; 2],
    };
    (family, [addr_min, addr_max, proto_min, proto_max])
}

/// Loads the first value and, if it differs, the last value of a range.
fn load_ends<T: PartialEq>(
    lower: &mut Lower,
    range: &RangeInclusive<T>,
    bytes: impl Fn(&T) -> Bytes,
) -> [Option<Register>; 2] {
    let first = lower.constant(bytes(range.start()));
    let is_range = range.start() != range.end();
    let last = is_range.then(|| lower.constant(bytes(range.end())));
    [Some(first), last]
}

/// Loads the data of a map. Returns the registers of the address and of the port.
fn nat_map(lower: &mut Lower, map: &Expression) -> (Family, [Option<Register>; 4]) {
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
    let port = (data.len() > 1).then_some(port);
    (family, [Some(Register::word(0)), None, port, None])
}

/// Adds an element to a dynamic set: `add @set { key }`.
pub fn add<K>(set: &Set, key: &Expression<K>) -> Statement {
    dynset::<_, Value>(DynsetOp::Add, set, key, None, None)
}

/// Adds an element to a dynamic set or refreshes its timeout:
/// `update @set { key timeout T }`.
///
/// Without a timeout the default of the set applies.
pub fn update<K>(set: &Set, key: &Expression<K>, timeout: Option<Duration>) -> Statement {
    dynset::<_, Value>(DynsetOp::Update, set, key, None, timeout)
}

/// Adds an element to a dynamic map or refreshes its timeout:
/// `update @map { key timeout T : data }`.
///
/// Without a timeout the default of the map applies.
pub fn update_map<K, D>(
    map: &Set,
    key: &Expression<K>,
    timeout: Option<Duration>,
    data: &Expression<D>,
) -> Statement {
    dynset(DynsetOp::Update, map, key, Some(data), timeout)
}

/// Deletes an element of a dynamic map: `delete @map { key : data }`.
///
/// The key alone selects the element, but the kernel demands a data register for a map. The
/// rule continues whether such an element exists or not.
pub fn delete_from_map<K, D>(map: &Set, key: &Expression<K>, data: &Expression<D>) -> Statement {
    dynset(DynsetOp::Delete, map, key, Some(data), None)
}

fn dynset<K, D>(
    op: DynsetOp,
    set: &Set,
    key: &Expression<K>,
    data: Option<&Expression<D>>,
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
