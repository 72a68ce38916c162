//! Laws: what is encoded decodes to the same, and no bytes make a panic.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::Ipv6Addr;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use vipline_netlink::message::Messages;
use vipline_nftables::expr::*;
use vipline_nftables::wire;
use vipline_nftables::{
    Assembler, BaseChain, Bytes, Chain, ChainKind, Comment, Data, Datatype, Family, Field, Hook,
    Name, Object, Policy, Rule, Ruleset, Set, SetFlags, Table, TableId, Transaction, Value,
    Verdict,
};
use vipline_reconcile::{Edit, Keyed, diff};

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
                let kind = HashKind::Jenkins { source, len, seed };
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
            let kind = if dnat { NatKind::Dnat } else { NatKind::Snat };
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
            kind: RejectKind::Icmpx(code)
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

fn expr() -> impl Strategy<Value = Expr> {
    prop_oneof![loads(), numbers(), tests(), actions(), rewrites()]
}

fn comment() -> impl Strategy<Value = Option<Comment>> {
    proptest::option::of("[ -!#-~]{1,128}".prop_map(|text| Comment::new(&text).unwrap()))
}

fn table() -> TableId {
    TableId::new(Family::Inet, Name::new("laws").unwrap())
}

fn chain() -> impl Strategy<Value = Object> {
    let base = (any::<i32>(), any::<bool>()).prop_map(|(priority, drop)| {
        let policy = if drop { Policy::Drop } else { Policy::Accept };
        BaseChain::new(ChainKind::Filter, Hook::Forward, priority).with_policy(policy)
    });
    let rule = (vec(expr(), 0..6), comment()).prop_map(|(exprs, comment)| Rule { exprs, comment });
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
fn set() -> impl Strategy<Value = Vec<Object>> {
    let v6 = any::<u128>().prop_map(Ipv6Addr::from);
    let keys = vec((v6, any::<u16>(), verdict(), comment()), 0..8);
    (name(), any::<(bool, bool)>(), comment(), keys).prop_map(
        |(name, (two_fields, is_map), about, keys)| {
            let mut fields = vec![Field::from(Datatype::Ipv6Addr)];
            if two_fields {
                fields.push(Datatype::InetService.into());
            }
            let mut set = match is_map {
                true => Set::verdict_map(table(), name, fields),
                false => Set::set(table(), name, fields).with_flags(SetFlags::INTERVAL),
            };
            if let Some(about) = about {
                set = set.with_comment(about);
            }
            let mut objects = vec![Object::from(set.clone())];
            for (v6, port, verdict, comment) in keys {
                // Whole addresses only: those of an interval set do not overlap.
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

/// What a transaction that adds objects says, as the kernel would dump it.
fn echoed(objects: &[Object]) -> Ruleset {
    let edits: Vec<_> = objects.iter().cloned().map(Edit::Add).collect();
    let transaction = Transaction::from_edits(&edits);
    let batch = transaction.encode(7, Some(3));
    let mut assembler = Assembler::new(&[table()]);
    for message in Messages::new(batch.bytes()) {
        let message = message.unwrap();
        // The messages that enclose the batch are not about tables.
        if message.ty > 0xff {
            assembler.take(message.ty, message.payload).unwrap();
        }
    }
    assembler.finish()
}

fn unique(objects: Vec<Object>) -> Vec<Object> {
    let mut keys = std::collections::HashSet::new();
    objects
        .into_iter()
        .filter(|object| keys.insert(format!("{:?}", object.key())))
        .collect()
}

proptest! {
    #[test]
    fn an_expression_decodes_to_itself(expr in expr()) {
        let mut out = Vec::new();
        expr.encode(&mut out);
        let decoded = Expr::decode(&out).unwrap();
        let mut again = Vec::new();
        decoded.encode(&mut again);
        prop_assert_eq!(again, out);
    }

    #[test]
    fn objects_decode_to_themselves(chains in vec(chain(), 0..4), sets in vec(set(), 0..4)) {
        let mut objects = vec![Object::from(Table::new(table()))];
        objects.extend(chains);
        objects.extend(sets.into_iter().flatten());
        let objects = unique(objects);
        // A set that came twice would have elements of two kinds.
        let sets: Vec<&Set> = objects.iter().filter_map(|object| match object {
            Object::Set(set) => Some(set),
            _ => None,
        }).collect();
        let objects: Vec<Object> = objects.iter().filter(|object| match object {
            Object::Element(element) => sets.iter().any(|set| **set == *element.set()),
            _ => true,
        }).cloned().collect();
        let edits = diff(echoed(&objects), &objects);
        prop_assert!(edits.is_empty(), "{edits:?}");
    }

    #[test]
    fn no_bytes_make_an_expression_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Expr::decode(&bytes);
    }

    #[test]
    fn no_cut_or_changed_expression_panics(expr in expr(), cut in any::<prop::sample::Index>(), with in any::<u8>()) {
        let mut out = Vec::new();
        expr.encode(&mut out);
        let at = cut.index(out.len());
        let _ = Expr::decode(&out[..at]);
        out[at] = with;
        if let Ok(expr) = Expr::decode(&out) {
            let _ = Rule { exprs: vec![expr], comment: None }.to_string();
        }
    }

    #[test]
    fn any_rule_has_text(exprs in vec(expr(), 0..8)) {
        let _ = Rule { exprs, comment: None }.to_string();
    }

    #[test]
    fn no_bytes_make_the_assembler_panic(messages in vec((0..20_u16, vec(any::<u8>(), 0..200)), 0..6)) {
        let mut assembler = Assembler::new(&[table()]);
        for (kind, mut payload) in messages {
            payload.splice(0..0, [1, 0, 0, 0]);
            let _ = assembler.take(u16::from(wire::SUBSYSTEM) << 8 | kind, &payload);
            let _ = wire::generation(&payload);
        }
        let _ = assembler.finish().to_string();
    }

    #[test]
    fn a_value_fits_or_is_refused(number in any::<u64>()) {
        let set = Set::set(table(), Name::new("s").unwrap(), [Datatype::InetService.into()]);
        let fits = set.element(&[Value::from(number)]).is_ok();
        prop_assert_eq!(fits, number <= u64::from(u16::MAX));
    }
}
