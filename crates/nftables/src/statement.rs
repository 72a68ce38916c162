//! Statements: what a rule tests and does, written as in nft.
//!
//! Tests come from selectors ([`Selector::is`] and its kin); what a rule does
//! comes from the functions of this module.
//! Registers are given out as nft 1.0.6 does.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::datatype::ByteOrder;
use crate::expr::{
    Access, Anonymous, Bitwise, BitwiseOp, Byteorder, ByteorderOp, Cmp, CmpOp, Counter, Ct, Dynset,
    DynsetOp, Expr, Fib, FlowOffload, Hash, HashKind, Immediate, Limit, Log, Lookup, Masq, Meta,
    MetaKey, Nat, NatFlags, NatKind, Notrack, Numgen, Payload, PayloadAccess, Quota, Range, Redir,
    Register, Reject, RejectKind, SetRef,
};
use crate::header::Layer;
use crate::selector::{Selector, Term};
use crate::{
    Bytes, Data, Datatype, Element, Family, Field, InvalidElement, Name, Set, SetFlags, TableId,
    Value, Verdict,
};

/// How many words nft gives a value that is no concatenation.
const SINGLE: u8 = 4;

/// A part of a rule: a test, or something to do.
#[derive(Clone, Debug)]
pub struct Statement(pub(crate) Step);

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Expressions, with the headers they need.
    Exprs { exprs: Vec<Expr>, needs: Protocols },
    /// A rejection whose form depends on the family of the table.
    Reject,
}

/// The protocols of a packet, as far as they are known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Protocols {
    pub(crate) network: Option<Family>,
    pub(crate) transport: Option<u8>,
}

impl Protocols {
    /// Returns what is known after this is learned, too.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            network: self.network.or(other.network),
            transport: self.transport.or(other.transport),
        }
    }
}

impl Statement {
    pub(crate) fn needs(&self) -> Protocols {
        match &self.0 {
            Step::Exprs { needs, .. } => *needs,
            Step::Reject => Protocols::default(),
        }
    }

    /// Returns what is known about a packet that passes the statement.
    pub(crate) fn gives(&self) -> Protocols {
        let mut known = Protocols::default();
        let Step::Exprs { exprs, .. } = &self.0 else {
            return known;
        };
        if let [
            load,
            Expr::Cmp(Cmp {
                op: CmpOp::Eq,
                data,
                ..
            }),
        ] = &**exprs
        {
            match (load, &**data) {
                (
                    Expr::Meta(Meta {
                        key: MetaKey::L4Proto,
                        ..
                    }),
                    [proto],
                ) => {
                    known.transport = Some(*proto);
                }
                (Expr::Payload(load), [proto]) if [6, 9].contains(&load.offset) => {
                    known.transport = Some(*proto);
                }
                (
                    Expr::Meta(Meta {
                        key: MetaKey::NfProto,
                        ..
                    }),
                    [family],
                ) => {
                    known.network = Family::from_number(*family);
                }
                _ => {}
            }
        }
        known
    }

    fn of(lower: Lower) -> Self {
        Self(Step::Exprs {
            exprs: lower.exprs,
            needs: lower.needs,
        })
    }
}

impl From<Expr> for Statement {
    fn from(expr: Expr) -> Self {
        Self(Step::Exprs {
            exprs: vec![expr],
            needs: Protocols::default(),
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

/// `accept`
pub fn accept() -> Statement {
    Verdict::Accept.into()
}

/// `drop`
pub fn drop() -> Statement {
    Verdict::Drop.into()
}

/// `return`
pub fn return_() -> Statement {
    Verdict::Return.into()
}

/// `jump chain`
pub fn jump(chain: &Name) -> Statement {
    Verdict::Jump(chain.clone()).into()
}

/// `goto chain`
pub fn goto(chain: &Name) -> Statement {
    Verdict::Goto(chain.clone()).into()
}

/// `counter`
pub fn counter() -> Statement {
    Counter::default().into()
}

/// `log prefix "text"`
pub fn log(prefix: &Name) -> Statement {
    Log {
        prefix: Some(prefix.clone()),
        ..Log::default()
    }
    .into()
}

/// `reject`: says that nobody listens to the port.
pub fn reject() -> Statement {
    Statement(Step::Reject)
}

/// `reject with tcp reset`
pub fn reject_with_tcp_reset() -> Statement {
    let kind = RejectKind::TcpReset;
    Statement(Step::Exprs {
        exprs: vec![Reject { kind }.into()],
        needs: Protocols {
            network: None,
            transport: Some(6),
        },
    })
}

/// `notrack`
pub fn notrack() -> Statement {
    Expr::from(Notrack).into()
}

/// `masquerade`, with flags such as `fully-random`.
pub fn masquerade(flags: NatFlags) -> Statement {
    Masq {
        flags,
        ..Masq::default()
    }
    .into()
}

/// `flow add @flowtable`
pub fn flow_add(flowtable: &Name) -> Statement {
    Expr::from(FlowOffload {
        flowtable: flowtable.clone(),
    })
    .into()
}

/// `redirect to :port`
pub fn redirect(port: u16) -> Statement {
    let mut lower = Lower::default();
    let proto_min = Some(lower.constant(port.to_be_bytes().into()));
    lower.push(Redir {
        proto_min,
        ..Redir::default()
    });
    Statement::of(lower)
}

/// Where packets go to or seem to come from.
#[derive(Clone, Debug)]
pub struct Target(TargetKind);

#[derive(Clone, Debug)]
enum TargetKind {
    Addr(IpAddr, Option<u16>),
    Map(Selector),
}

impl From<IpAddr> for Target {
    fn from(addr: IpAddr) -> Self {
        Self(TargetKind::Addr(addr, None))
    }
}

impl From<SocketAddr> for Target {
    fn from(addr: SocketAddr) -> Self {
        Self(TargetKind::Addr(addr.ip(), Some(addr.port())))
    }
}

impl From<Selector> for Target {
    /// Takes the address, and the port if there is one, from a map.
    fn from(map: Selector) -> Self {
        Self(TargetKind::Map(map))
    }
}

/// `dnat to 10.0.0.1:80`, `dnat ip to ip daddr . tcp dport map @m`
///
/// A map has an address, or an address and a port, as its data.
pub fn dnat(target: impl Into<Target>) -> Statement {
    nat(NatKind::Dnat, &target.into().0, NatFlags::empty())
}

/// `snat to 10.0.0.1`, `snat ip to ip saddr map @m`
pub fn snat(target: impl Into<Target>) -> Statement {
    nat(NatKind::Snat, &target.into().0, NatFlags::empty())
}

fn nat(kind: NatKind, target: &TargetKind, flags: NatFlags) -> Statement {
    let mut lower = Lower::default();
    let register = Register::word(0);
    let (family, proto_min) = match target {
        TargetKind::Addr(addr, port) => {
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
        TargetKind::Map(map) => {
            // nft keeps room for the key and for one more value.
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
    Statement::of(lower)
}

/// `add @set { key }`
pub fn add(set: &Set, key: &Selector) -> Statement {
    dynset(DynsetOp::Add, set, key, None, None)
}

/// `update @set { key timeout T }`
pub fn update(set: &Set, key: &Selector, timeout: Option<Duration>) -> Statement {
    dynset(DynsetOp::Update, set, key, None, timeout)
}

/// `update @map { key timeout T : data }`
pub fn update_map(
    map: &Set,
    key: &Selector,
    timeout: Option<Duration>,
    data: &Selector,
) -> Statement {
    dynset(DynsetOp::Update, map, key, Some(data), timeout)
}

fn dynset(
    op: DynsetOp,
    set: &Set,
    key: &Selector,
    data: Option<&Selector>,
    timeout: Option<Duration>,
) -> Statement {
    let mut lower = Lower::default();
    let key = lower.value(key);
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
    Statement::of(lower)
}

impl Selector {
    /// `ip daddr 10.0.0.1`, `ct state new`, `iifname "cni*"`, `tcp dport 1-5`
    ///
    /// A value has to be of the selector's size; one that is not is compared
    /// as it is and leads to an error of the kernel or to no packet at all.
    /// A state or a set of flags matches if any of its bits is set.
    pub fn is(self, value: impl Into<Value>) -> Statement {
        self.compare(CmpOp::Eq, &value.into())
    }

    /// `ip daddr != 10.0.0.0/8`
    pub fn is_not(self, value: impl Into<Value>) -> Statement {
        self.compare(CmpOp::Ne, &value.into())
    }

    /// `meta mark < 5`, `tcp dport >= 1024`
    pub fn compares(self, op: CmpOp, value: impl Into<Value>) -> Statement {
        self.compare(op, &value.into())
    }

    /// `ip daddr @set`
    pub fn in_set(self, set: &Set) -> Statement {
        self.lookup(set.into(), set.has_intervals(), None, false)
    }

    /// `ip daddr != @set`
    pub fn not_in_set(self, set: &Set) -> Statement {
        self.lookup(set.into(), set.has_intervals(), None, true)
    }

    /// `ip daddr . tcp dport vmap @map`
    pub fn vmap(self, map: &Set) -> Statement {
        self.lookup(
            map.into(),
            map.has_intervals(),
            Some(Register::VERDICT),
            false,
        )
    }

    /// `meta l4proto { tcp, udp }`: a set that belongs to the rule.
    ///
    /// Each value of a concatenation is a list with one value a field.
    /// Prefixes and ranges make it a set of intervals.
    pub fn is_one_of<V: AsRef<[Value]>>(
        self,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Statement, InvalidElement> {
        let values: Vec<V> = values.into_iter().collect();
        let wide = |value: &Value| matches!(value, Value::Prefix(_) | Value::Range(_));
        let intervals = values.iter().any(|value| value.as_ref().iter().any(wide));
        let set = self.anonymous_set(intervals, &values)?;
        Ok(self.lookup(set, intervals, None, false))
    }

    fn anonymous_set<V: AsRef<[Value]>>(
        &self,
        intervals: bool,
        values: &[V],
    ) -> Result<SetRef, InvalidElement> {
        let pattern = |text| Name::new(text).expect("a constant that is a name");
        // The table is that of the rule, which the transaction knows.
        let table = TableId::new(Family::Inet, pattern("-"));
        let fields: Vec<Field> = self.parts().iter().cloned().map(Field::from).collect();
        let mut flags = SetFlags::ANONYMOUS | SetFlags::CONSTANT;
        flags.set(SetFlags::INTERVAL, intervals);
        let set = Set::set(table, pattern("__set%d"), fields).with_flags(flags);
        let elements: Result<Vec<Element>, _> = values
            .iter()
            .map(|value| set.element(value.as_ref()))
            .collect();
        Ok(SetRef::Anonymous(Arc::new(Anonymous {
            elements: elements?,
            set,
        })))
    }

    /// `meta mark set meta mark | 0x4000`
    pub fn set(self, value: &Self) -> Statement {
        let mut lower = Lower::default();
        let source = lower.value(value);
        lower.store(&self, source);
        Statement::of(lower)
    }

    /// `meta mark set 0x4000`
    pub fn set_to(self, value: impl Into<Value>) -> Statement {
        let (first, _) = self.bytes_of(&value.into(), self.order());
        self.set(&Self::constant(first))
    }

    fn lookup(
        self,
        set: SetRef,
        intervals: bool,
        destination: Option<Register>,
        invert: bool,
    ) -> Statement {
        let mut lower = Lower {
            intervals,
            ..Lower::default()
        };
        let source = lower.value(&self);
        lower.push(Lookup {
            set,
            source,
            destination,
            invert,
        });
        Statement::of(lower)
    }

    fn bytes_of(&self, value: &Value, order: ByteOrder) -> (Bytes, Bytes) {
        let field = Field {
            datatype: self.datatype(),
            bytes: self.bytes(),
            selector: None,
        };
        let (mut first, mut last) = (Bytes::new(), Bytes::new());
        if !value.write(&field, order, &mut first, &mut last) {
            let natural = |value: &Value| match value {
                Value::Addr(IpAddr::V4(addr)) => Bytes::from(addr.octets()),
                Value::Addr(IpAddr::V6(addr)) => Bytes::from(addr.octets()),
                Value::Prefix(IpNet::V4(net)) => Bytes::from(net.network().octets()),
                Value::Prefix(IpNet::V6(net)) => Bytes::from(net.network().octets()),
                Value::Bytes(bytes) | Value::Text(bytes) => bytes.clone(),
                _ => Bytes::repeat(0xff, usize::from(field.bytes)),
            };
            first = natural(value);
            last = first.clone();
        }
        (first, last)
    }

    fn compare(self, op: CmpOp, value: &Value) -> Statement {
        let mut lower = Lower::default();
        let source = Register::word(0);
        match value {
            Value::Prefix(net) if net.prefix_len() < net.max_prefix_len() => {
                let len = usize::from(net.prefix_len());
                let (first, _) = self.bytes_of(value, ByteOrder::Big);
                let data = lower.load_prefix(&self, len, first);
                lower.push(Cmp { source, op, data });
            }
            Value::Range(_) => {
                lower.value(&self);
                lower.turn(0, &self);
                let (from, to) = self.bytes_of(value, ByteOrder::Big);
                if op == CmpOp::Ne {
                    lower.push(Range {
                        source,
                        invert: true,
                        from,
                        to,
                    });
                } else {
                    lower.push(Cmp {
                        source,
                        op: CmpOp::Ge,
                        data: from,
                    });
                    lower.push(Cmp {
                        source,
                        op: CmpOp::Le,
                        data: to,
                    });
                }
            }
            Value::Text(text) if text.ends_with(b"*") => {
                lower.value(&self);
                let data = text.get(..text.len() - 1).unwrap_or(text).into();
                lower.push(Cmp { source, op, data });
            }
            _ if op == CmpOp::Eq && self.is_bitmask() => {
                let (mask, _) = self.bytes_of(value, self.order());
                let none = Bytes::repeat(0, mask.len());
                lower.value(&self.with_bits(mask, none.clone()));
                lower.push(Cmp {
                    source,
                    op: CmpOp::Ne,
                    data: none,
                });
            }
            _ => {
                lower.value(&self);
                let ordered = !matches!(op, CmpOp::Eq | CmpOp::Ne);
                if ordered {
                    lower.turn(0, &self);
                }
                let order = if ordered {
                    ByteOrder::Big
                } else {
                    self.order()
                };
                let (data, _) = self.bytes_of(value, order);
                lower.push(Cmp { source, op, data });
            }
        }
        Statement::of(lower)
    }

    fn is_bitmask(&self) -> bool {
        let bits = matches!(
            self.datatype(),
            Datatype::CtState | Datatype::CtStatus | Datatype::TcpFlag
        );
        bits && !matches!(self.0, Term::Bits { .. })
    }

    fn needs(&self) -> Protocols {
        match &self.0 {
            Term::Header(field) => match field.layer {
                Layer::Any => Protocols::default(),
                Layer::Network(family) => Protocols {
                    network: Some(family),
                    transport: None,
                },
                Layer::Transport(proto) => Protocols {
                    network: None,
                    transport: Some(proto),
                },
            },
            Term::Jenkins { of, .. } | Term::Bits { of, .. } | Term::Map { of, .. } => of.needs(),
            Term::Concat(parts) => parts
                .iter()
                .fold(Protocols::default(), |known, part| known.with(part.needs())),
            _ => Protocols::default(),
        }
    }
}

/// Turns selectors into expressions and gives out registers.
#[derive(Default)]
struct Lower {
    exprs: Vec<Expr>,
    needs: Protocols,
    /// The first word that nothing uses.
    next: u8,
    /// Whether numbers have to be in network order.
    intervals: bool,
}

impl Lower {
    fn push(&mut self, expr: impl Into<Expr>) {
        self.exprs.push(expr.into());
    }

    /// Loads a value into words of its own, and returns the first one.
    fn value(&mut self, selector: &Selector) -> Register {
        let at = self.next;
        self.next += match &selector.0 {
            Term::Concat(_) => selector.words(),
            Term::Map { of, .. } => of.words().max(SINGLE),
            _ => SINGLE,
        };
        self.load(selector, at);
        Register::word(at)
    }

    /// Loads a constant into words of its own, and returns the first one.
    fn constant(&mut self, bytes: Bytes) -> Register {
        self.value(&Selector::constant(bytes))
    }

    /// Loads a value into the words from `at` on.
    fn load(&mut self, selector: &Selector, at: u8) {
        self.needs = self.needs.with(selector.needs());
        let destination = Register::word(at);
        let access = Access::Load(destination);
        match &selector.0 {
            Term::Header(field) => {
                self.load_payload(field.base, field.offset, field.bytes.into(), destination);
            }
            Term::Payload { base, offset, len } => {
                self.load_payload(*base, *offset, *len, destination);
            }
            Term::Meta(key) => self.push(Meta { key: *key, access }),
            Term::Ct(key, direction) => {
                self.push(Ct {
                    key: *key,
                    direction: *direction,
                    access,
                });
            }
            Term::Fib(flags, result) => {
                self.push(Fib {
                    flags: *flags,
                    result: *result,
                    destination,
                });
            }
            Term::Numgen {
                mode,
                modulus,
                offset,
            } => {
                let (mode, modulus, offset) = (*mode, *modulus, *offset);
                self.push(Numgen {
                    mode,
                    modulus,
                    offset,
                    destination,
                });
            }
            Term::Jenkins {
                of,
                modulus,
                seed,
                offset,
            } => {
                let before = self.next;
                let source = self.value(of);
                self.next = before;
                let kind = HashKind::Jenkins {
                    source,
                    len: of.bytes().into(),
                    seed: *seed,
                };
                let (modulus, offset) = (*modulus, *offset);
                self.push(Hash {
                    kind,
                    modulus,
                    offset,
                    destination,
                });
            }
            Term::Symmetric { modulus, offset } => {
                let (modulus, offset) = (*modulus, *offset);
                self.push(Hash {
                    kind: HashKind::Symmetric,
                    modulus,
                    offset,
                    destination,
                });
            }
            Term::Bits { of, mask, xor } => {
                self.load(of, at);
                let op = BitwiseOp::MaskXor {
                    mask: mask.clone(),
                    xor: xor.clone(),
                };
                let (source, len) = (destination, of.bytes().into());
                self.push(Bitwise {
                    source,
                    destination,
                    len,
                    op,
                });
            }
            Term::Map { of, set, .. } => {
                self.load(of, at);
                let (set, source) = (set.clone(), destination);
                self.push(Lookup {
                    set,
                    source,
                    destination: Some(destination),
                    invert: false,
                });
            }
            Term::Concat(parts) => {
                let mut at = at;
                for part in parts {
                    self.load(part, at);
                    if self.intervals {
                        self.turn_field(at, part);
                    }
                    at += part.words();
                }
                return;
            }
            Term::Constant(bytes) => {
                self.push(Immediate {
                    destination,
                    data: Data::Value(bytes.clone()),
                });
            }
            Term::Unknown => {}
        }
    }

    fn load_payload(
        &mut self,
        base: crate::expr::PayloadBase,
        offset: u32,
        len: u32,
        destination: Register,
    ) {
        let access = PayloadAccess::Load(destination);
        self.push(Payload {
            base,
            offset,
            len,
            access,
        });
    }

    /// Loads what a prefix of `len` bits is compared with, and returns that.
    fn load_prefix(&mut self, selector: &Selector, len: usize, first: Bytes) -> Bytes {
        if let (Term::Header(field), 0, 1..) = (&selector.0, len % 8, len) {
            self.needs = self.needs.with(selector.needs());
            let bytes = u32::try_from(len / 8).unwrap_or(u32::MAX);
            self.load_payload(field.base, field.offset, bytes, Register::word(0));
            return first.get(..len / 8).unwrap_or(&first).into();
        }
        let mut mask = Bytes::repeat(0, first.len());
        for (at, byte) in mask.as_mut_slice().iter_mut().enumerate() {
            let ones = len.saturating_sub(at * 8).min(8);
            *byte = !(0xff_u16 >> ones) as u8;
        }
        let none = Bytes::repeat(0, first.len());
        self.value(&selector.clone().with_bits(mask, none));
        first
    }

    /// Turns the number in the words from `at` on to network order.
    fn turn(&mut self, at: u8, selector: &Selector) {
        let bytes = selector.bytes();
        if selector.order() == ByteOrder::Host && matches!(bytes, 2 | 4 | 8) {
            self.push_turn(at, bytes.into(), bytes.into());
        }
    }

    /// Turns one field of a concatenation to network order, as nft does.
    fn turn_field(&mut self, at: u8, selector: &Selector) {
        let bytes: u32 = selector.bytes().into();
        let number = !matches!(selector.datatype(), Datatype::Ifname | Datatype::String);
        let is_header = matches!(selector.0, Term::Header(_) | Term::Payload { .. });
        let is_host = selector.order() == ByteOrder::Host
            || selector.datatype() == Datatype::InetProto && !is_header;
        if is_host && number {
            self.push_turn(at, bytes, if bytes.is_multiple_of(4) { 4 } else { 2 });
        }
    }

    fn push_turn(&mut self, at: u8, len: u32, size: u32) {
        let source = Register::word(at);
        let op = ByteorderOp::ToNetwork;
        self.push(Byteorder {
            source,
            destination: source,
            op,
            len,
            size,
        });
    }

    /// Sets a property from a register.
    fn store(&mut self, selector: &Selector, source: Register) {
        let access = Access::Store(source);
        match &selector.0 {
            Term::Meta(key) => self.push(Meta { key: *key, access }),
            Term::Ct(key, direction) => {
                self.push(Ct {
                    key: *key,
                    direction: *direction,
                    access,
                });
            }
            Term::Header(field) => {
                self.needs = self.needs.with(selector.needs());
                let ip = field.layer == Layer::Network(Family::Ip);
                let access = PayloadAccess::Store {
                    source,
                    checksum: ip.into(),
                    checksum_offset: if ip { 10 } else { 0 },
                    checksum_flags: (field.name.ends_with("addr")).into(),
                };
                let (base, offset, len) = (field.base, field.offset, field.bytes.into());
                self.push(Payload {
                    base,
                    offset,
                    len,
                    access,
                });
            }
            _ => {}
        }
    }
}
