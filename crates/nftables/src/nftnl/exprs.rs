//! Conversion of rules and expressions to libnftnl objects.
#![forbid(unsafe_code)]

use super::attributes::*;
use super::objects::records;
use super::{AnyExpr, Object, actions, loads, unsupported};
use crate::expr::*;
use crate::rule::set_of;
use crate::wire::rule::NFT_RULE_COMPAT_F_INV;
use crate::wire::{element, userdata};
use crate::{Chain, Data, Error, Rule};

// enum nft_lookup_flags, nft_dynset_flags, nft_limit_flags, nft_quota_flags
const INVERTED: u32 = 1;
// enum nft_dynset_flags
const NFT_DYNSET_F_EXPR: u32 = 2;

/// Returns an object that names all rules of a chain.
pub(super) fn rules_of(chain: &Chain) -> Object<super::Rule> {
    let mut object = Object::<super::Rule>::new();
    object.text(NFTNL_RULE_TABLE, chain.table.name.as_str());
    object.text(NFTNL_RULE_CHAIN, chain.name.as_str());
    object
}

/// Returns a rule with all attributes.
///
/// `anonymous` are the IDs of the rule's anonymous sets, in order.
pub(super) fn rule(
    chain: &Chain,
    rule: &Rule,
    anonymous: &[u32],
) -> Result<Object<super::Rule>, Error> {
    if !rule.chains.is_empty() {
        return Err(unsupported("anonymous chains"));
    }
    let mut object = rules_of(chain);
    let mut anonymous = anonymous.iter().copied();
    for expr in &rule.exprs {
        object.push(match expr {
            Expr::Lookup(lookup) if matches!(lookup.set, SetRef::Anonymous(_)) => {
                self::lookup(lookup, anonymous.next())?
            }
            expr if matches!(set_of(expr), Some(SetRef::Anonymous(_))) => {
                return Err(unsupported("meters and anonymous object maps"));
            }
            expr => self::expr(expr)?,
        });
    }
    if let Some(compat) = rule.compat {
        let flags = if compat.invert {
            NFT_RULE_COMPAT_F_INV
        } else {
            0
        };
        object.number(NFTNL_RULE_COMPAT_PROTO, compat.protocol.into());
        object.number(NFTNL_RULE_COMPAT_FLAGS, flags);
    }
    if let Some(comment) = &rule.comment {
        let records = records(|out| userdata::put_comment(out, comment));
        object.opaque(NFTNL_RULE_USERDATA, &records);
    }
    Ok(object)
}

/// Returns an expression.
pub(super) fn expr(expr: &Expr) -> Result<AnyExpr, Error> {
    match expr {
        Expr::Payload(expr) => payload(expr),
        Expr::Meta(expr) => meta(expr),
        Expr::Ct(expr) => ct(expr),
        Expr::Exthdr(expr) => loads::exthdr(expr),
        Expr::Rt(expr) => loads::rt(expr),
        Expr::Socket(expr) => loads::socket(expr),
        Expr::Xfrm(expr) => loads::xfrm(expr),
        Expr::Osf(expr) => loads::osf(expr),
        Expr::Fib(expr) => fib(expr),
        Expr::Numgen(expr) => numgen(expr),
        Expr::Hash(expr) => hash(expr),
        Expr::Immediate(expr) => immediate(expr),
        Expr::Bitwise(expr) => bitwise(expr),
        Expr::Byteorder(expr) => byteorder(expr),
        Expr::Cmp(expr) => cmp(expr),
        Expr::Range(expr) => range(expr),
        Expr::Lookup(expr) => lookup(expr, None),
        Expr::Dynset(expr) => dynset(expr),
        Expr::Objref(expr) => objref(expr),
        Expr::Counter(expr) => counter(expr),
        Expr::Quota(expr) => quota(expr),
        Expr::Limit(expr) => limit(expr),
        Expr::Connlimit(expr) => actions::connlimit(expr),
        Expr::Last(expr) => actions::last(expr),
        Expr::Log(expr) => log(expr),
        Expr::Nat(expr) => nat(expr),
        Expr::Masq(expr) => masq(expr),
        Expr::Redir(expr) => redir(expr),
        Expr::Tproxy(expr) => tproxy(expr),
        Expr::Reject(expr) => reject(expr),
        Expr::Synproxy(expr) => actions::synproxy(expr),
        Expr::Dup(expr) => actions::dup(expr),
        Expr::Fwd(expr) => actions::fwd(expr),
        Expr::Queue(expr) => actions::queue(expr),
        Expr::Notrack(_) => Builder::<Notrack>::new()?.done(),
        Expr::FlowOffload(expr) => flow_offload(expr),
        // libnftnl would free a structure that it did not allocate.
        Expr::Match(expr) => Err(unsupported(format_args!("match {}", expr.name))),
        Expr::Target(expr) => Err(unsupported(format_args!("target {}", expr.name))),
        Expr::Other { name, .. } => Err(unsupported(format_args!("the raw attributes of {name}"))),
    }
}

/// Builder of an expression.
pub(super) struct Builder<E: ExprType>(Object<E>);

impl<E: ExprType> Builder<E> {
    pub(super) fn new() -> Result<Self, Error> {
        Object::<E>::new().map(Self)
    }

    pub(super) fn number<N: Number>(mut self, attr: Attr<E, N>, number: N) -> Self {
        self.0.number(attr, number);
        self
    }

    pub(super) fn number_if<N: Number>(self, attr: Attr<E, N>, number: Option<N>) -> Self {
        match number {
            Some(number) => self.number(attr, number),
            None => self,
        }
    }

    pub(super) fn register(self, attr: Attr<E, u32>, register: Register) -> Self {
        self.number(attr, register.number())
    }

    pub(super) fn register_if(self, attr: Attr<E, u32>, register: Option<Register>) -> Self {
        self.number_if(attr, register.map(Register::number))
    }

    pub(super) fn text(mut self, attr: Attr<E, str>, text: &str) -> Self {
        self.0.text(attr, text);
        self
    }

    pub(super) fn value(mut self, attr: Attr<E, Value>, value: &[u8]) -> Result<Self, Error> {
        self.0.short(attr, value)?;
        Ok(self)
    }

    pub(super) fn done(self) -> Result<AnyExpr, Error> {
        Ok(self.0.into_any())
    }
}

/// Returns `None` for zero.
fn non_zero<N: Default + PartialEq>(number: N) -> Option<N> {
    Some(number).filter(|number| *number != N::default())
}

fn payload(payload: &Payload) -> Result<AnyExpr, Error> {
    let base = match payload.base {
        PayloadBase::Link => 0,
        PayloadBase::Network => 1,
        PayloadBase::Transport => 2,
        PayloadBase::Other(number) => number,
    };
    let object = Builder::<Payload>::new()?
        .number(NFTNL_EXPR_PAYLOAD_BASE, base)
        .number(NFTNL_EXPR_PAYLOAD_OFFSET, payload.offset)
        .number(NFTNL_EXPR_PAYLOAD_LEN, payload.len);
    match payload.access {
        PayloadAccess::Load(register) => object.register(NFTNL_EXPR_PAYLOAD_DREG, register),
        PayloadAccess::Store {
            source,
            checksum,
            checksum_offset,
            checksum_flags,
        } => object
            .register(NFTNL_EXPR_PAYLOAD_SREG, source)
            .number(NFTNL_EXPR_PAYLOAD_CSUM_TYPE, checksum)
            .number(NFTNL_EXPR_PAYLOAD_CSUM_OFFSET, checksum_offset)
            .number(NFTNL_EXPR_PAYLOAD_FLAGS, checksum_flags),
    }
    .done()
}

fn meta(meta: &Meta) -> Result<AnyExpr, Error> {
    let object = Builder::<Meta>::new()?.number(NFTNL_EXPR_META_KEY, meta.key.number());
    match meta.access {
        Access::Load(register) => object.register(NFTNL_EXPR_META_DREG, register),
        Access::Store(register) => object.register(NFTNL_EXPR_META_SREG, register),
    }
    .done()
}

fn ct(ct: &Ct) -> Result<AnyExpr, Error> {
    let object = Builder::<Ct>::new()?.number(NFTNL_EXPR_CT_KEY, ct.key.number());
    let direction = ct.direction.map(|direction| match direction {
        Direction::Original => 0,
        Direction::Reply => 1,
    });
    match ct.access {
        Access::Load(register) => object.register(NFTNL_EXPR_CT_DREG, register),
        Access::Store(register) => object.register(NFTNL_EXPR_CT_SREG, register),
    }
    .number_if(NFTNL_EXPR_CT_DIR, direction)
    .done()
}

fn fib(fib: &Fib) -> Result<AnyExpr, Error> {
    let result = match fib.result {
        FibResult::Oif => 1,
        FibResult::Oifname => 2,
        FibResult::AddrType => 3,
    };
    Builder::<Fib>::new()?
        .number(NFTNL_EXPR_FIB_FLAGS, fib.flags.bits())
        .number(NFTNL_EXPR_FIB_RESULT, result)
        .register(NFTNL_EXPR_FIB_DREG, fib.destination)
        .done()
}

fn numgen(numgen: &Numgen) -> Result<AnyExpr, Error> {
    let mode = match numgen.mode {
        NumgenMode::Incremental => 0,
        NumgenMode::Random => 1,
    };
    Builder::<Numgen>::new()?
        .register(NFTNL_EXPR_NG_DREG, numgen.destination)
        .number(NFTNL_EXPR_NG_MODULUS, numgen.modulus)
        .number(NFTNL_EXPR_NG_TYPE, mode)
        .number(NFTNL_EXPR_NG_OFFSET, numgen.offset)
        .done()
}

fn hash(hash: &Hash) -> Result<AnyExpr, Error> {
    let object = Builder::<Hash>::new()?
        .register(NFTNL_EXPR_HASH_DREG, hash.destination)
        .number(NFTNL_EXPR_HASH_MODULUS, hash.modulus)
        .number(NFTNL_EXPR_HASH_OFFSET, hash.offset);
    match hash.kind {
        HashType::Jenkins { source, len, seed } => object
            .number(NFTNL_EXPR_HASH_TYPE, 0)
            .register(NFTNL_EXPR_HASH_SREG, source)
            .number(NFTNL_EXPR_HASH_LEN, len)
            .number_if(NFTNL_EXPR_HASH_SEED, seed),
        HashType::Symmetric => object.number(NFTNL_EXPR_HASH_TYPE, 1),
    }
    .done()
}

fn immediate(immediate: &Immediate) -> Result<AnyExpr, Error> {
    let object = Builder::<Immediate>::new()?.register(NFTNL_EXPR_IMM_DREG, immediate.destination);
    match &immediate.data {
        Data::Value(value) => object.value(NFTNL_EXPR_IMM_DATA, value)?,
        Data::Verdict(verdict) => {
            let object = object.number(NFTNL_EXPR_IMM_VERDICT, verdict.code() as u32);
            match verdict.chain() {
                Some(chain) => object.text(NFTNL_EXPR_IMM_CHAIN, chain.as_str()),
                None => object,
            }
        }
    }
    .done()
}

fn bitwise(bitwise: &Bitwise) -> Result<AnyExpr, Error> {
    let object = Builder::<Bitwise>::new()?
        .register(NFTNL_EXPR_BITWISE_SREG, bitwise.source)
        .register(NFTNL_EXPR_BITWISE_DREG, bitwise.destination)
        .number(NFTNL_EXPR_BITWISE_LEN, bitwise.len);
    match &bitwise.op {
        BitwiseOp::MaskXor { mask, xor } => object
            .number(NFTNL_EXPR_BITWISE_OP, 0)
            .value(NFTNL_EXPR_BITWISE_MASK, mask)?
            .value(NFTNL_EXPR_BITWISE_XOR, xor)?,
        BitwiseOp::ShiftLeft(by) => object
            .number(NFTNL_EXPR_BITWISE_OP, 1)
            .value(NFTNL_EXPR_BITWISE_DATA, by)?,
        BitwiseOp::ShiftRight(by) => object
            .number(NFTNL_EXPR_BITWISE_OP, 2)
            .value(NFTNL_EXPR_BITWISE_DATA, by)?,
    }
    .done()
}

fn byteorder(byteorder: &Byteorder) -> Result<AnyExpr, Error> {
    let op = match byteorder.op {
        ByteorderOp::ToHost => 0,
        ByteorderOp::ToNetwork => 1,
    };
    Builder::<Byteorder>::new()?
        .register(NFTNL_EXPR_BYTEORDER_SREG, byteorder.source)
        .register(NFTNL_EXPR_BYTEORDER_DREG, byteorder.destination)
        .number(NFTNL_EXPR_BYTEORDER_OP, op)
        .number(NFTNL_EXPR_BYTEORDER_LEN, byteorder.len)
        .number(NFTNL_EXPR_BYTEORDER_SIZE, byteorder.size)
        .done()
}

fn cmp(cmp: &Cmp) -> Result<AnyExpr, Error> {
    let op = match cmp.op {
        CmpOp::Eq => 0,
        CmpOp::Ne => 1,
        CmpOp::Lt => 2,
        CmpOp::Le => 3,
        CmpOp::Gt => 4,
        CmpOp::Ge => 5,
    };
    Builder::<Cmp>::new()?
        .register(NFTNL_EXPR_CMP_SREG, cmp.source)
        .number(NFTNL_EXPR_CMP_OP, op)
        .value(NFTNL_EXPR_CMP_DATA, &cmp.data)?
        .done()
}

fn range(range: &Range) -> Result<AnyExpr, Error> {
    Builder::<Range>::new()?
        .register(NFTNL_EXPR_RANGE_SREG, range.source)
        .number(NFTNL_EXPR_RANGE_OP, range.invert.into())
        .value(NFTNL_EXPR_RANGE_FROM_DATA, &range.from)?
        .value(NFTNL_EXPR_RANGE_TO_DATA, &range.to)?
        .done()
}

/// Returns a lookup, with the ID of an anonymous set.
fn lookup(lookup: &Lookup, id: Option<u32>) -> Result<AnyExpr, Error> {
    Builder::<Lookup>::new()?
        .register(NFTNL_EXPR_LOOKUP_SREG, lookup.source)
        .register_if(NFTNL_EXPR_LOOKUP_DREG, lookup.destination)
        .text(NFTNL_EXPR_LOOKUP_SET, lookup.set.name().as_str())
        .number_if(NFTNL_EXPR_LOOKUP_FLAGS, lookup.invert.then_some(INVERTED))
        .number_if(NFTNL_EXPR_LOOKUP_SET_ID, id)
        .done()
}

fn dynset(dynset: &Dynset) -> Result<AnyExpr, Error> {
    let op = match dynset.op {
        DynsetOp::Add => 0,
        DynsetOp::Update => 1,
        DynsetOp::Delete => 2,
    };
    let inverted = if dynset.invert { INVERTED } else { 0 };
    let flags = match *dynset.exprs {
        [] => inverted,
        _ => inverted | NFT_DYNSET_F_EXPR,
    };
    let mut object = Builder::<Dynset>::new()?
        .register(NFTNL_EXPR_DYNSET_SREG_KEY, dynset.key)
        .register_if(NFTNL_EXPR_DYNSET_SREG_DATA, dynset.data)
        .number(NFTNL_EXPR_DYNSET_OP, op)
        .text(NFTNL_EXPR_DYNSET_SET_NAME, dynset.set.name().as_str())
        .number_if(NFTNL_EXPR_DYNSET_FLAGS, non_zero(flags))
        .number_if(
            NFTNL_EXPR_DYNSET_TIMEOUT,
            dynset.timeout.map(element::milliseconds),
        );
    for expr in &dynset.exprs {
        object.0.push(self::expr(expr)?);
    }
    object.done()
}

fn objref(objref: &Objref) -> Result<AnyExpr, Error> {
    let object = Builder::<Objref>::new()?;
    match &objref.source {
        ObjrefSource::Named { kind, name } => object
            .number(NFTNL_EXPR_OBJREF_IMM_TYPE, *kind)
            .text(NFTNL_EXPR_OBJREF_IMM_NAME, name.as_str()),
        ObjrefSource::Map { set, key } => object
            .register(NFTNL_EXPR_OBJREF_SET_SREG, *key)
            .text(NFTNL_EXPR_OBJREF_SET_NAME, set.name().as_str()),
    }
    .done()
}

fn counter(counter: &Counter) -> Result<AnyExpr, Error> {
    Builder::<Counter>::new()?
        .number_if(NFTNL_EXPR_CTR_BYTES, non_zero(counter.bytes))
        .number_if(NFTNL_EXPR_CTR_PACKETS, non_zero(counter.packets))
        .done()
}

fn quota(quota: &Quota) -> Result<AnyExpr, Error> {
    let flags = if quota.over { INVERTED } else { 0 };
    Builder::<Quota>::new()?
        .number(NFTNL_EXPR_QUOTA_BYTES, quota.bytes)
        .number(NFTNL_EXPR_QUOTA_CONSUMED, quota.consumed)
        .number(NFTNL_EXPR_QUOTA_FLAGS, flags)
        .done()
}

fn limit(limit: &Limit) -> Result<AnyExpr, Error> {
    let kind = match limit.kind {
        LimitType::Packets => 0,
        LimitType::Bytes => 1,
    };
    let flags = if limit.over { INVERTED } else { 0 };
    Builder::<Limit>::new()?
        .number(NFTNL_EXPR_LIMIT_RATE, limit.rate)
        .number(NFTNL_EXPR_LIMIT_UNIT, limit.unit)
        .number(NFTNL_EXPR_LIMIT_BURST, limit.burst)
        .number(NFTNL_EXPR_LIMIT_TYPE, kind)
        .number(NFTNL_EXPR_LIMIT_FLAGS, flags)
        .done()
}

fn log(log: &Log) -> Result<AnyExpr, Error> {
    let mut object = Builder::<Log>::new()?
        .number_if(NFTNL_EXPR_LOG_GROUP, log.group)
        .number_if(NFTNL_EXPR_LOG_SNAPLEN, log.snaplen)
        .number_if(NFTNL_EXPR_LOG_QTHRESHOLD, log.queue_threshold)
        .number_if(NFTNL_EXPR_LOG_LEVEL, log.level.map(|level| level as u32))
        .number_if(NFTNL_EXPR_LOG_FLAGS, non_zero(log.flags.bits()));
    if let Some(prefix) = &log.prefix {
        object = object.text(NFTNL_EXPR_LOG_PREFIX, prefix.as_str());
    }
    object.done()
}

fn nat(nat: &Nat) -> Result<AnyExpr, Error> {
    let kind = match nat.kind {
        NatType::Snat => 0,
        NatType::Dnat => 1,
    };
    Builder::<Nat>::new()?
        .number(NFTNL_EXPR_NAT_TYPE, kind)
        .number(NFTNL_EXPR_NAT_FAMILY, nat.family.number().into())
        .register_if(NFTNL_EXPR_NAT_REG_ADDR_MIN, nat.addr_min)
        .register_if(NFTNL_EXPR_NAT_REG_ADDR_MAX, nat.addr_max)
        .register_if(NFTNL_EXPR_NAT_REG_PROTO_MIN, nat.proto_min)
        .register_if(NFTNL_EXPR_NAT_REG_PROTO_MAX, nat.proto_max)
        .number_if(NFTNL_EXPR_NAT_FLAGS, non_zero(nat.flags.bits()))
        .done()
}

fn masq(masq: &Masq) -> Result<AnyExpr, Error> {
    Builder::<Masq>::new()?
        .number_if(
            NFTNL_EXPR_MASQ_FLAGS,
            non_zero(masq.flags.bits_with_port(masq.proto_min)),
        )
        .register_if(NFTNL_EXPR_MASQ_REG_PROTO_MIN, masq.proto_min)
        .register_if(NFTNL_EXPR_MASQ_REG_PROTO_MAX, masq.proto_max)
        .done()
}

fn redir(redir: &Redir) -> Result<AnyExpr, Error> {
    Builder::<Redir>::new()?
        .register_if(NFTNL_EXPR_REDIR_REG_PROTO_MIN, redir.proto_min)
        .register_if(NFTNL_EXPR_REDIR_REG_PROTO_MAX, redir.proto_max)
        .number_if(
            NFTNL_EXPR_REDIR_FLAGS,
            non_zero(redir.flags.bits_with_port(redir.proto_min)),
        )
        .done()
}

fn tproxy(tproxy: &Tproxy) -> Result<AnyExpr, Error> {
    let family = tproxy.family.map_or(0, |family| family.number().into());
    Builder::<Tproxy>::new()?
        .number(NFTNL_EXPR_TPROXY_FAMILY, family)
        .register_if(NFTNL_EXPR_TPROXY_REG_ADDR, tproxy.addr)
        .register_if(NFTNL_EXPR_TPROXY_REG_PORT, tproxy.port)
        .done()
}

fn reject(reject: &Reject) -> Result<AnyExpr, Error> {
    let (kind, code) = match reject.kind {
        RejectType::Icmp(code) => (0, code),
        RejectType::TcpReset => (1, 0),
        RejectType::Icmpx(code) => (2, code),
    };
    Builder::<Reject>::new()?
        .number(NFTNL_EXPR_REJECT_TYPE, kind)
        .number(NFTNL_EXPR_REJECT_CODE, code)
        .done()
}

fn flow_offload(offload: &FlowOffload) -> Result<AnyExpr, Error> {
    Builder::<FlowOffload>::new()?
        .text(NFTNL_EXPR_FLOW_TABLE_NAME, offload.flowtable.as_str())
        .done()
}
