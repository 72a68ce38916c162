//! Rules and expressions as objects of libnftnl.
#![forbid(unsafe_code)]

use super::attributes::*;
use super::objects::records;
use super::{Attr, Object, inexpressible};
use crate::expr::*;
use crate::{Chain, Data, Error, Rule, element, userdata};

// enum nft_lookup_flags, nft_dynset_flags, nft_limit_flags, nft_quota_flags
const INVERTED: u32 = 1;
// enum nft_dynset_flags
const NFT_DYNSET_F_EXPR: u32 = 2;

/// Returns all rules of a chain.
pub(super) fn rules_of(chain: &Chain) -> Object<super::Rule> {
    let mut object = Object::<super::Rule>::new();
    object.text(NFTNL_RULE_TABLE, chain.table.name.as_str());
    object.text(NFTNL_RULE_CHAIN, chain.name.as_str());
    object
}

/// Returns a new rule.
///
/// `anonymous` are the numbers of the sets that belong to it, in their order.
pub(super) fn rule(
    chain: &Chain,
    rule: &Rule,
    anonymous: &[u32],
) -> Result<Object<super::Rule>, Error> {
    let mut object = rules_of(chain);
    let mut anonymous = anonymous.iter().copied();
    for expr in &rule.exprs {
        object.push(match expr {
            Expr::Lookup(lookup) if matches!(lookup.set, SetRef::Anonymous(_)) => {
                self::lookup(lookup, anonymous.next())?
            }
            expr => self::expr(expr)?,
        });
    }
    if let Some(comment) = &rule.comment {
        let records = records(|out| userdata::put_comment(out, comment));
        object.opaque(NFTNL_RULE_USERDATA, &records);
    }
    Ok(object)
}

/// Returns an expression.
pub(super) fn expr(expr: &Expr) -> Result<Object<super::Expr>, Error> {
    match expr {
        Expr::Payload(expr) => payload(expr),
        Expr::Meta(expr) => meta(expr),
        Expr::Ct(expr) => ct(expr),
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
        Expr::Log(expr) => log(expr),
        Expr::Nat(expr) => nat(expr),
        Expr::Masq(expr) => masq(expr),
        Expr::Redir(expr) => redir(expr),
        Expr::Tproxy(expr) => tproxy(expr),
        Expr::Reject(expr) => reject(expr),
        Expr::Notrack(_) => Object::<super::Expr>::new("notrack"),
        Expr::FlowOffload(expr) => flow_offload(expr),
        Expr::Other { name, .. } => Err(inexpressible(format_args!("bytes of {name}"))),
    }
}

/// An object whose attributes are set on the way.
struct Builder(Object<super::Expr>);

impl Builder {
    fn new(name: &str) -> Result<Self, Error> {
        Object::<super::Expr>::new(name).map(Self)
    }

    fn register(mut self, attr: Attr<super::Expr, u32>, register: Register) -> Self {
        self.0.number(attr, register.number());
        self
    }

    fn register_if(self, attr: Attr<super::Expr, u32>, register: Option<Register>) -> Self {
        match register {
            Some(register) => self.register(attr, register),
            None => self,
        }
    }

    fn number(mut self, attr: Attr<super::Expr, u32>, number: u32) -> Self {
        self.0.number(attr, number);
        self
    }

    fn number_if(self, attr: Attr<super::Expr, u32>, number: Option<u32>) -> Self {
        match number {
            Some(number) => self.number(attr, number),
            None => self,
        }
    }

    fn long(mut self, attr: Attr<super::Expr, u64>, number: u64) -> Self {
        self.0.number(attr, number);
        self
    }

    fn text(mut self, attr: Attr<super::Expr, str>, text: &str) -> Self {
        self.0.text(attr, text);
        self
    }

    fn value(mut self, attr: Attr<super::Expr, Value>, value: &[u8]) -> Result<Self, Error> {
        self.0.short(attr, value)?;
        Ok(self)
    }

    fn done(self) -> Result<Object<super::Expr>, Error> {
        Ok(self.0)
    }
}

fn payload(payload: &Payload) -> Result<Object<super::Expr>, Error> {
    let base = match payload.base {
        PayloadBase::Link => 0,
        PayloadBase::Network => 1,
        PayloadBase::Transport => 2,
        PayloadBase::Other(number) => number,
    };
    let object = Builder::new("payload")?
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

fn meta(meta: &Meta) -> Result<Object<super::Expr>, Error> {
    let object = Builder::new("meta")?.number(NFTNL_EXPR_META_KEY, meta.key.number());
    match meta.access {
        Access::Load(register) => object.register(NFTNL_EXPR_META_DREG, register),
        Access::Store(register) => object.register(NFTNL_EXPR_META_SREG, register),
    }
    .done()
}

fn ct(ct: &Ct) -> Result<Object<super::Expr>, Error> {
    let object = Builder::new("ct")?.number(NFTNL_EXPR_CT_KEY, ct.key.number());
    let mut object = match ct.access {
        Access::Load(register) => object.register(NFTNL_EXPR_CT_DREG, register),
        Access::Store(register) => object.register(NFTNL_EXPR_CT_SREG, register),
    };
    match ct.direction {
        Some(Direction::Original) => object.0.number(NFTNL_EXPR_CT_DIR, 0),
        Some(Direction::Reply) => object.0.number(NFTNL_EXPR_CT_DIR, 1),
        None => {}
    }
    object.done()
}

fn fib(fib: &Fib) -> Result<Object<super::Expr>, Error> {
    let result = match fib.result {
        FibResult::Oif => 1,
        FibResult::Oifname => 2,
        FibResult::AddrType => 3,
    };
    Builder::new("fib")?
        .number(NFTNL_EXPR_FIB_FLAGS, fib.flags.bits())
        .number(NFTNL_EXPR_FIB_RESULT, result)
        .register(NFTNL_EXPR_FIB_DREG, fib.destination)
        .done()
}

fn numgen(numgen: &Numgen) -> Result<Object<super::Expr>, Error> {
    let mode = match numgen.mode {
        NumgenMode::Incremental => 0,
        NumgenMode::Random => 1,
    };
    Builder::new("numgen")?
        .register(NFTNL_EXPR_NG_DREG, numgen.destination)
        .number(NFTNL_EXPR_NG_MODULUS, numgen.modulus)
        .number(NFTNL_EXPR_NG_TYPE, mode)
        .number(NFTNL_EXPR_NG_OFFSET, numgen.offset)
        .done()
}

fn hash(hash: &Hash) -> Result<Object<super::Expr>, Error> {
    let object = Builder::new("hash")?
        .register(NFTNL_EXPR_HASH_DREG, hash.destination)
        .number(NFTNL_EXPR_HASH_MODULUS, hash.modulus)
        .number(NFTNL_EXPR_HASH_OFFSET, hash.offset);
    match hash.kind {
        HashKind::Jenkins { source, len, seed } => object
            .number(NFTNL_EXPR_HASH_TYPE, 0)
            .register(NFTNL_EXPR_HASH_SREG, source)
            .number(NFTNL_EXPR_HASH_LEN, len)
            .number_if(NFTNL_EXPR_HASH_SEED, seed),
        HashKind::Symmetric => object.number(NFTNL_EXPR_HASH_TYPE, 1),
    }
    .done()
}

fn immediate(immediate: &Immediate) -> Result<Object<super::Expr>, Error> {
    let object = Builder::new("immediate")?.register(NFTNL_EXPR_IMM_DREG, immediate.destination);
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

fn bitwise(bitwise: &Bitwise) -> Result<Object<super::Expr>, Error> {
    let object = Builder::new("bitwise")?
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

fn byteorder(byteorder: &Byteorder) -> Result<Object<super::Expr>, Error> {
    let op = match byteorder.op {
        ByteorderOp::ToHost => 0,
        ByteorderOp::ToNetwork => 1,
    };
    Builder::new("byteorder")?
        .register(NFTNL_EXPR_BYTEORDER_SREG, byteorder.source)
        .register(NFTNL_EXPR_BYTEORDER_DREG, byteorder.destination)
        .number(NFTNL_EXPR_BYTEORDER_OP, op)
        .number(NFTNL_EXPR_BYTEORDER_LEN, byteorder.len)
        .number(NFTNL_EXPR_BYTEORDER_SIZE, byteorder.size)
        .done()
}

fn cmp(cmp: &Cmp) -> Result<Object<super::Expr>, Error> {
    let op = match cmp.op {
        CmpOp::Eq => 0,
        CmpOp::Ne => 1,
        CmpOp::Lt => 2,
        CmpOp::Le => 3,
        CmpOp::Gt => 4,
        CmpOp::Ge => 5,
    };
    Builder::new("cmp")?
        .register(NFTNL_EXPR_CMP_SREG, cmp.source)
        .number(NFTNL_EXPR_CMP_OP, op)
        .value(NFTNL_EXPR_CMP_DATA, &cmp.data)?
        .done()
}

fn range(range: &Range) -> Result<Object<super::Expr>, Error> {
    Builder::new("range")?
        .register(NFTNL_EXPR_RANGE_SREG, range.source)
        .number(NFTNL_EXPR_RANGE_OP, range.invert.into())
        .value(NFTNL_EXPR_RANGE_FROM_DATA, &range.from)?
        .value(NFTNL_EXPR_RANGE_TO_DATA, &range.to)?
        .done()
}

/// Returns a lookup, with the number of its set if it came just before.
fn lookup(lookup: &Lookup, id: Option<u32>) -> Result<Object<super::Expr>, Error> {
    Builder::new("lookup")?
        .register(NFTNL_EXPR_LOOKUP_SREG, lookup.source)
        .register_if(NFTNL_EXPR_LOOKUP_DREG, lookup.destination)
        .text(NFTNL_EXPR_LOOKUP_SET, lookup.set.name().as_str())
        .number_if(NFTNL_EXPR_LOOKUP_FLAGS, lookup.invert.then_some(INVERTED))
        .number_if(NFTNL_EXPR_LOOKUP_SET_ID, id)
        .done()
}

fn dynset(dynset: &Dynset) -> Result<Object<super::Expr>, Error> {
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
    let mut object = Builder::new("dynset")?
        .register(NFTNL_EXPR_DYNSET_SREG_KEY, dynset.key)
        .register_if(NFTNL_EXPR_DYNSET_SREG_DATA, dynset.data)
        .number(NFTNL_EXPR_DYNSET_OP, op)
        .text(NFTNL_EXPR_DYNSET_SET_NAME, dynset.set.name().as_str())
        .number_if(NFTNL_EXPR_DYNSET_FLAGS, (flags != 0).then_some(flags));
    if let Some(timeout) = dynset.timeout {
        object = object.long(NFTNL_EXPR_DYNSET_TIMEOUT, element::milliseconds(timeout));
    }
    for expr in &dynset.exprs {
        object.0.push(self::expr(expr)?);
    }
    object.done()
}

fn objref(objref: &Objref) -> Result<Object<super::Expr>, Error> {
    let object = Builder::new("objref")?;
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

fn counter(counter: &Counter) -> Result<Object<super::Expr>, Error> {
    let mut object = Builder::new("counter")?;
    if counter.bytes != 0 {
        object = object.long(NFTNL_EXPR_CTR_BYTES, counter.bytes);
    }
    if counter.packets != 0 {
        object = object.long(NFTNL_EXPR_CTR_PACKETS, counter.packets);
    }
    object.done()
}

fn quota(quota: &Quota) -> Result<Object<super::Expr>, Error> {
    let flags = if quota.over { INVERTED } else { 0 };
    Builder::new("quota")?
        .long(NFTNL_EXPR_QUOTA_BYTES, quota.bytes)
        .long(NFTNL_EXPR_QUOTA_CONSUMED, quota.consumed)
        .number(NFTNL_EXPR_QUOTA_FLAGS, flags)
        .done()
}

fn limit(limit: &Limit) -> Result<Object<super::Expr>, Error> {
    let kind = match limit.kind {
        LimitKind::Packets => 0,
        LimitKind::Bytes => 1,
    };
    let flags = if limit.over { INVERTED } else { 0 };
    Builder::new("limit")?
        .long(NFTNL_EXPR_LIMIT_RATE, limit.rate)
        .long(NFTNL_EXPR_LIMIT_UNIT, limit.unit)
        .number(NFTNL_EXPR_LIMIT_BURST, limit.burst)
        .number(NFTNL_EXPR_LIMIT_TYPE, kind)
        .number(NFTNL_EXPR_LIMIT_FLAGS, flags)
        .done()
}

fn log(log: &Log) -> Result<Object<super::Expr>, Error> {
    let mut object = Builder::new("log")?
        .number_if(NFTNL_EXPR_LOG_SNAPLEN, log.snaplen)
        .number_if(NFTNL_EXPR_LOG_LEVEL, log.level.map(|level| level as u32));
    if let Some(prefix) = &log.prefix {
        object = object.text(NFTNL_EXPR_LOG_PREFIX, prefix.as_str());
    }
    if let Some(group) = log.group {
        object.0.number(NFTNL_EXPR_LOG_GROUP, group);
    }
    if let Some(threshold) = log.queue_threshold {
        object.0.number(NFTNL_EXPR_LOG_QTHRESHOLD, threshold);
    }
    let flags = log.flags.bits();
    object
        .number_if(NFTNL_EXPR_LOG_FLAGS, (flags != 0).then_some(flags))
        .done()
}

/// Returns the bits of flags, if there are any.
fn nat_flags(flags: NatFlags) -> Option<u32> {
    Some(flags.bits()).filter(|bits| *bits != 0)
}

fn nat(nat: &Nat) -> Result<Object<super::Expr>, Error> {
    let kind = match nat.kind {
        NatKind::Snat => 0,
        NatKind::Dnat => 1,
    };
    Builder::new("nat")?
        .number(NFTNL_EXPR_NAT_TYPE, kind)
        .number(NFTNL_EXPR_NAT_FAMILY, nat.family.number().into())
        .register_if(NFTNL_EXPR_NAT_REG_ADDR_MIN, nat.addr_min)
        .register_if(NFTNL_EXPR_NAT_REG_ADDR_MAX, nat.addr_max)
        .register_if(NFTNL_EXPR_NAT_REG_PROTO_MIN, nat.proto_min)
        .register_if(NFTNL_EXPR_NAT_REG_PROTO_MAX, nat.proto_max)
        .number_if(NFTNL_EXPR_NAT_FLAGS, nat_flags(nat.flags))
        .done()
}

fn masq(masq: &Masq) -> Result<Object<super::Expr>, Error> {
    Builder::new("masq")?
        .number_if(NFTNL_EXPR_MASQ_FLAGS, nat_flags(masq.flags))
        .register_if(NFTNL_EXPR_MASQ_REG_PROTO_MIN, masq.proto_min)
        .register_if(NFTNL_EXPR_MASQ_REG_PROTO_MAX, masq.proto_max)
        .done()
}

fn redir(redir: &Redir) -> Result<Object<super::Expr>, Error> {
    Builder::new("redir")?
        .register_if(NFTNL_EXPR_REDIR_REG_PROTO_MIN, redir.proto_min)
        .register_if(NFTNL_EXPR_REDIR_REG_PROTO_MAX, redir.proto_max)
        .number_if(NFTNL_EXPR_REDIR_FLAGS, nat_flags(redir.flags))
        .done()
}

fn tproxy(tproxy: &Tproxy) -> Result<Object<super::Expr>, Error> {
    let family = tproxy.family.map_or(0, |family| family.number().into());
    Builder::new("tproxy")?
        .number(NFTNL_EXPR_TPROXY_FAMILY, family)
        .register_if(NFTNL_EXPR_TPROXY_REG_ADDR, tproxy.addr)
        .register_if(NFTNL_EXPR_TPROXY_REG_PORT, tproxy.port)
        .done()
}

fn reject(reject: &Reject) -> Result<Object<super::Expr>, Error> {
    let (kind, code) = match reject.kind {
        RejectKind::Icmp(code) => (0, code),
        RejectKind::TcpReset => (1, 0),
        RejectKind::Icmpx(code) => (2, code),
    };
    let mut object = Builder::new("reject")?.number(NFTNL_EXPR_REJECT_TYPE, kind);
    object.0.number(NFTNL_EXPR_REJECT_CODE, code);
    object.done()
}

fn flow_offload(offload: &FlowOffload) -> Result<Object<super::Expr>, Error> {
    Builder::new("flow_offload")?
        .text(NFTNL_EXPR_FLOW_TABLE_NAME, offload.flowtable.as_str())
        .done()
}
