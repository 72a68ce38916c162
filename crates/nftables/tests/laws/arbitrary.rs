//! Generators of arbitrary expressions and objects.

#[path = "headers.rs"]
mod headers;

#[path = "stateful.rs"]
mod stateful;

use std::net::Ipv6Addr;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use vipline_nftables::expr::*;
use vipline_nftables::{
    BaseChain, Bytes, Chain, ChainType, Comment, Data, Datatype, Element, Family, Field, Hook,
    Name, Object, Policy, Rule, Set, SetFlags, SetPolicy, Table, TableId, Verdict,
};
use vipline_reconcile::Keyed;

fn name() -> impl Strategy<Value = Name> {
    "[a-z][a-z0-9/_-]{0,20}".prop_map(|text| Name::new(&text).unwrap())
}

fn register() -> impl Strategy<Value = Register> {
    (0..16_u8).prop_map(Register::word)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 1..40).prop_map(|bytes| Bytes::from(&bytes[..]))
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Accept),
        Just(Verdict::Drop),
        Just(Verdict::Continue),
        Just(Verdict::Return),
        name().prop_map(Verdict::Jump),
        name().prop_map(Verdict::Goto),
    ]
}

fn set_ref() -> impl Strategy<Value = SetRef> {
    name().prop_map(SetRef::Named)
}

fn access() -> impl Strategy<Value = Access> {
    (any::<bool>(), register()).prop_map(|(load, register)| {
        if load {
            Access::Load(register)
        } else {
            Access::Store(register)
        }
    })
}

fn loads() -> impl Strategy<Value = Expr> {
    prop_oneof![
        (0..4_u32, 0..64_u32, 1..20_u32, register()).prop_map(|(base, offset, len, register)| {
            let base = [
                PayloadBase::Link,
                PayloadBase::Network,
                PayloadBase::Transport,
            ]
            .get(base as usize)
            .copied()
            .unwrap_or(PayloadBase::Other(base));
            Payload {
                base,
                offset,
                len,
                access: PayloadAccess::Load(register),
            }
            .into()
        }),
        (0..40_u32, access()).prop_map(|(key, access)| Meta {
            key: MetaKey::from_number(key),
            access
        }
        .into()),
        (0..30_u32, any::<Option<bool>>(), access()).prop_map(|(key, reply, access)| {
            let direction = |reply| {
                if reply {
                    Direction::Reply
                } else {
                    Direction::Original
                }
            };
            let direction = reply.map(direction);
            Ct {
                key: CtKey::from_number(key),
                direction,
                access,
            }
            .into()
        }),
        (any::<u32>(), register()).prop_map(|(bits, destination)| {
            let flags = FibFlags::from_bits_retain(bits);
            Fib {
                flags,
                result: FibResult::AddrType,
                destination,
            }
            .into()
        }),
    ]
}

fn numbers() -> impl Strategy<Value = Expr> {
    prop_oneof![
        (any::<u32>(), any::<u32>(), register()).prop_map(|(modulus, offset, destination)| {
            Numgen {
                mode: NumgenMode::Random,
                modulus,
                offset,
                destination,
            }
            .into()
        }),
        (
            register(),
            any::<u32>(),
            any::<Option<u32>>(),
            any::<u32>(),
            register()
        )
            .prop_map(|(source, len, seed, modulus, destination)| {
                let kind = HashType::Jenkins { source, len, seed };
                Hash {
                    kind,
                    modulus,
                    offset: 0,
                    destination,
                }
                .into()
            }),
        (register(), bytes()).prop_map(|(destination, bytes)| {
            Immediate {
                destination,
                data: Data::Value(bytes),
            }
            .into()
        }),
    ]
}

fn tests() -> impl Strategy<Value = Expr> {
    prop_oneof![
        (register(), register(), any::<u32>(), bytes(), bytes()).prop_map(
            |(source, destination, len, mask, xor)| {
                Bitwise {
                    source,
                    destination,
                    len,
                    op: BitwiseOp::MaskXor { mask, xor },
                }
                .into()
            }
        ),
        (register(), register(), any::<u32>(), any::<u32>()).prop_map(
            |(source, destination, len, size)| {
                let op = ByteorderOp::ToNetwork;
                Byteorder {
                    source,
                    destination,
                    op,
                    len,
                    size,
                }
                .into()
            }
        ),
        (register(), bytes()).prop_map(|(source, data)| Cmp {
            source,
            op: CmpOp::Ne,
            data
        }
        .into()),
        (register(), any::<bool>(), bytes(), bytes()).prop_map(|(source, invert, from, to)| {
            Range {
                source,
                invert,
                from,
                to,
            }
            .into()
        }),
        (
            set_ref(),
            register(),
            proptest::option::of(register()),
            any::<bool>()
        )
            .prop_map(|(set, source, destination, invert)| {
                Lookup {
                    set,
                    source,
                    destination,
                    invert,
                }
                .into()
            }),
        (
            set_ref(),
            register(),
            proptest::option::of(register()),
            1..u64::from(u32::MAX)
        )
            .prop_map(|(set, key, data, ms)| {
                let timeout = Some(Duration::from_millis(ms));
                let (op, exprs) = (DynsetOp::Update, vec![Counter::default().into()]);
                Dynset {
                    set,
                    op,
                    key,
                    data,
                    timeout,
                    exprs,
                    invert: false,
                }
                .into()
            }),
    ]
}

fn actions() -> impl Strategy<Value = Expr> {
    prop_oneof![
        verdict().prop_map(|verdict| Immediate::from(verdict).into()),
        any::<(u64, u64)>().prop_map(|(packets, bytes)| Counter { packets, bytes }.into()),
        any::<(u64, u64, bool)>().prop_map(|(bytes, consumed, over)| Quota {
            bytes,
            consumed,
            over
        }
        .into()),
        any::<(u64, u32)>()
            .prop_map(|(rate, burst)| Limit::per_minute(rate).with_burst(burst).into()),
        (
            proptest::option::of(name()),
            any::<Option<u16>>(),
            any::<u32>()
        )
            .prop_map(|(prefix, group, flags)| {
                let flags = LogFlags::from_bits_retain(flags);
                Log {
                    prefix,
                    group,
                    flags,
                    ..Log::default()
                }
                .into()
            }),
        (proptest::option::of(register()), any::<bool>()).prop_map(|(addr_min, dnat)| {
            let kind = if dnat { NatType::Dnat } else { NatType::Snat };
            let (family, flags) = (Family::Ip6, NatFlags::PERSISTENT);
            let (addr_max, proto_min, proto_max) = (None, None, None);
            Nat {
                kind,
                family,
                addr_min,
                addr_max,
                proto_min,
                proto_max,
                flags,
            }
            .into()
        }),
        any::<u8>().prop_map(|code| Reject {
            kind: RejectType::Icmpx(code)
        }
        .into()),
        name().prop_map(|flowtable| FlowOffload { flowtable }.into()),
        (name(), bytes()).prop_filter_map("no known name", |(name, bytes)| {
            let known = Expr::NAMES.contains(&name.as_str());
            (!known).then_some(Expr::Other { name, bytes })
        }),
    ]
}

fn rewrites() -> impl Strategy<Value = Expr> {
    let port = || proptest::option::of(register());
    let flags = || Just(NatFlags::FULLY_RANDOM);
    prop_oneof![
        Just(Notrack.into()),
        (port(), flags()).prop_map(|(proto_min, flags)| Masq {
            flags,
            proto_min,
            proto_max: None
        }
        .into()),
        (port(), flags()).prop_map(|(proto_min, flags)| Redir {
            proto_min,
            proto_max: None,
            flags
        }
        .into()),
        (name(), 0..4_u32, bytes()).prop_map(|(name, revision, info)| Match {
            name,
            revision,
            info
        }
        .into()),
        (name(), 0..4_u32, bytes()).prop_map(|(name, revision, info)| Target {
            name,
            revision,
            info
        }
        .into()),
        (port(), port()).prop_map(|(addr, port)| {
            Tproxy {
                family: Some(Family::Ip),
                addr,
                port,
            }
            .into()
        }),
        (any::<u32>(), name()).prop_map(|(kind, name)| {
            Objref {
                source: ObjrefSource::Named { kind, name },
            }
            .into()
        }),
    ]
}

pub(crate) fn expr() -> impl Strategy<Value = Expr> {
    prop_oneof![
        loads(),
        headers::loads(),
        numbers(),
        tests(),
        actions(),
        headers::actions(),
        rewrites()
    ]
}

fn comment() -> impl Strategy<Value = Option<Comment>> {
    proptest::option::of("[ -!#-~]{1,128}".prop_map(|text| Comment::new(&text).unwrap()))
}

pub(crate) fn table() -> TableId {
    TableId::new(Family::Inet, Name::new("laws").unwrap())
}

fn chain(is_any: bool) -> impl Strategy<Value = Object> {
    let base = (any::<i32>(), any::<bool>(), stateful::devices());
    let base = base.prop_map(move |(priority, drop, devices)| {
        let policy = if drop { Policy::Drop } else { Policy::Accept };
        let mut base = BaseChain::new(ChainType::Filter, Hook::Forward, priority);
        base.policy = policy;
        if is_any {
            base.devices = devices;
        }
        base
    });
    let rule = (vec(expr(), 0..6), comment()).prop_map(|(exprs, comment)| {
        let mut rule = Rule::from_exprs(exprs);
        rule.comment = comment;
        rule
    });
    let parts = (
        name(),
        proptest::option::of(base),
        vec(rule, 0..4),
        comment(),
    );
    parts.prop_map(|(name, base, rules, comment)| {
        let mut chain = Chain::new(table(), name).with_rules(rules);
        (chain.base, chain.comment) = (base, comment);
        chain.into()
    })
}

/// A set with elements of one or two fields, with or without intervals.
fn set(is_any: bool) -> impl Strategy<Value = Vec<Object>> {
    let v6 = any::<u128>().prop_map(Ipv6Addr::from);
    let keys = vec((v6, any::<u16>(), verdict(), comment()), 0..8);
    (name(), any::<(bool, bool, bool)>(), comment(), keys).prop_map(
        move |(name, (two_fields, is_map, is_special), about, keys)| {
            let mut fields = vec![Field::from(Datatype::Ipv6Addr)];
            if two_fields {
                fields.push(Datatype::InetService.into());
            }
            let mut set = match is_map {
                true => Set::verdict_map(table(), name, fields),
                false => Set::new(table(), name, fields).with_flags(SetFlags::INTERVAL),
            };
            if is_special && is_any {
                let exprs = [Counter::default().into(), Limit::per_second(5).into()];
                set = set.with_policy(SetPolicy::Memory).with_auto_merge();
                set = set.with_exprs(exprs);
            }
            if let Some(about) = about {
                set = set.with_comment(about);
            }
            let mut objects = vec![Object::from(set.clone())];
            for (v6, port, verdict, comment) in keys {
                // Single addresses only: elements of an interval set must not overlap.
                let key = [v6.into(), port.into()];
                let len = if two_fields { 2 } else { 1 };
                let mut element = set.element(&key[..len]).unwrap();
                if is_map {
                    element = element.with_verdict(verdict).unwrap();
                }
                if let Some(comment) = comment {
                    element = element.with_comment(comment);
                }
                objects.push(element.into());
            }
            objects
        },
    )
}

fn unique(objects: Vec<Object>) -> Vec<Object> {
    let mut keys = std::collections::HashSet::new();
    objects
        .into_iter()
        .filter(|object| keys.insert(format!("{:?}", object.key())))
        .collect()
}

/// A table with chains, sets and elements.
#[allow(dead_code, reason = "only one of the tests uses it")]
pub(crate) fn objects() -> impl Strategy<Value = Vec<Object>> {
    objects_of(false)
}

/// Objects of all kinds.
#[allow(dead_code, reason = "only one of the tests uses it")]
pub(crate) fn all_objects() -> impl Strategy<Value = Vec<Object>> {
    objects_of(true)
}

fn objects_of(is_any: bool) -> impl Strategy<Value = Vec<Object>> {
    let count = if is_any { 3 } else { 0 };
    let others = (
        vec(stateful::stateful(), 0..=count),
        vec(stateful::flowtable(), 0..=count),
    );
    (vec(chain(is_any), 0..4), vec(set(is_any), 0..4), others).prop_map(|(chains, sets, others)| {
        let mut objects = vec![Object::from(Table::new(table()))];
        objects.extend(others.0);
        objects.extend(others.1);
        objects.extend(chains);
        objects.extend(sets.into_iter().flatten());
        let objects = unique(objects);
        // A set that is generated twice would have elements of two types.
        let is_of = |element: &Element, object: &Object| match object {
            Object::Set(set) => set == element.set(),
            _ => false,
        };
        let fits = |object: &&Object| match object {
            Object::Element(element) => objects.iter().any(|object| is_of(element, object)),
            _ => true,
        };
        objects.iter().filter(fits).cloned().collect()
    })
}
