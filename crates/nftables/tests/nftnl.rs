//! Comparison of the native encoder with libnftnl.
//!
//! Messages are compared as trees, because the order of attributes is only
//! significant in lists. Two other differences are not significant either:
//! libnftnl omits the expression list of a rule without expressions, and the
//! NUL at the end of names in `objref`.
//! The tests of `kernel.rs` also run here, with the libnftnl encoder.
#![cfg(feature = "nftnl")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "kernel.rs"]
mod kernel;

#[path = "laws/arbitrary.rs"]
mod arbitrary;

#[allow(dead_code, reason = "the texts are for agreement.rs")]
#[path = "agreement/rules.rs"]
mod rules;

#[path = "agreement/actions.rs"]
mod actions;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kernel::samples;
use proptest::prelude::*;
use vipline_netlink::message::Messages;
use vipline_nftables::expr::{Bitwise, BitwiseOp, Cmp, CmpOp, Dynset, DynsetOp, Expr, Register};
use vipline_nftables::expr::{Counter, Limit, Lookup, Match, SetRef, Target};
use vipline_nftables::{
    BaseChain, Bytes, Chain, ChainType, Committed, Compat, Datatype, Encoder, Error, Family, Field,
    Hook, Name, Object, Rule, Set, SetFlags, Table, TableFlags, TableId, Transaction, nftnl,
};
use vipline_reconcile::Edit;

const FAMILIES: [Family; 3] = [Family::Ip, Family::Ip6, Family::Inet];

/// `NFTA_RULE_EXPRESSIONS`, nested.
const EXPRESSIONS: u16 = 1 << 15 | 4;
/// `NFTA_OBJREF_IMM_NAME`
const OBJREF_IMM_NAME: u16 = 2;
/// `NFTA_OBJREF_SET_NAME`
const OBJREF_SET_NAME: u16 = 4;

/// An attribute with its flags: bytes, or attributes sorted by type.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Tree {
    Leaf(u16, Vec<u8>),
    Nest(u16, Vec<Self>),
}

impl Tree {
    fn kind(&self) -> u16 {
        match self {
            Self::Leaf(kind, _) | Self::Nest(kind, _) => *kind,
        }
    }

    /// Decodes attributes. Attributes of the same type keep their order.
    fn all(mut bytes: &[u8]) -> Vec<Self> {
        const NESTED: u16 = 1 << 15;
        let mut trees = Vec::new();
        while let [a, b, c, d, ..] = *bytes {
            let len = usize::from(u16::from_ne_bytes([a, b]));
            let kind = u16::from_ne_bytes([c, d]);
            let value = &bytes[4..len];
            trees.push(match kind & NESTED {
                0 => Self::Leaf(kind, value.to_vec()),
                _ => Self::Nest(kind, Self::all(value)),
            });
            assert!(bytes[len..len.next_multiple_of(4)].iter().all(|b| *b == 0));
            bytes = &bytes[len.next_multiple_of(4)..];
        }
        assert!(bytes.is_empty());
        trees.sort_by_key(Self::kind);
        trees
    }

    /// Removes insignificant differences from the attributes of a rule.
    fn without_differences(mut attrs: Vec<Self>) -> Vec<Self> {
        attrs.retain(|attr| *attr != Self::Nest(EXPRESSIONS, Vec::new()));
        for attr in &mut attrs {
            if let Self::Nest(EXPRESSIONS, exprs) = attr {
                exprs.iter_mut().for_each(Self::end_names);
            }
        }
        attrs
    }

    /// Removes the NUL at the end of names in `objref`.
    fn end_names(&mut self) {
        let Self::Nest(_, parts) = self else { return };
        let [Self::Leaf(_, name), Self::Nest(_, data)] = &mut parts[..] else {
            return;
        };
        if name != b"objref\0" {
            return;
        }
        for attr in data {
            if let Self::Leaf(OBJREF_IMM_NAME | OBJREF_SET_NAME, name) = attr {
                let end = name.len() - usize::from(name.ends_with(&[0]));
                name.truncate(end);
            }
        }
    }
}

/// A message: headers and attributes.
type Parts = (u16, u16, u32, Vec<u8>, Vec<Tree>);

fn messages(bytes: &[u8]) -> Vec<Parts> {
    const NEW_RULE: u16 = 10 << 8 | 6;
    let parts = |message: vipline_netlink::message::Message<'_>| {
        let (header, attrs) = message.payload.split_at(4);
        let mut attrs = Tree::all(attrs);
        if message.ty == NEW_RULE {
            attrs = Tree::without_differences(attrs);
        }
        (
            message.ty,
            message.flags,
            message.seq,
            header.to_vec(),
            attrs,
        )
    };
    Messages::new(bytes)
        .map(|message| parts(message.unwrap()))
        .collect()
}

/// Asserts that both encoders produce the same messages.
#[track_caller]
fn assert_agreed(transaction: &Transaction) {
    let ours = transaction.encode(7, Some(3));
    let theirs = nftnl::encode(transaction, 7, Some(3)).unwrap();
    let [ours_read, theirs_read] = [&ours, &theirs].map(|batch| messages(batch.bytes()));
    for (seq, (one, other)) in (7..).zip(ours_read.iter().zip(&theirs_read)) {
        let operation = ours.operation(seq, None).unwrap();
        assert_eq!(one, other, "{operation}");
        assert_eq!(theirs.operation(seq, None), Some(operation));
    }
    assert_eq!(ours_read.len(), theirs_read.len());
}

/// Asserts that both encoders agree on adding, changing and removing objects.
#[track_caller]
fn assert_agreed_on(objects: &[Object]) {
    let objects = || objects.iter().cloned();
    assert_agreed(&Transaction::from_edits(
        &objects().map(Edit::Add).collect::<Vec<_>>(),
    ));
    assert_agreed(&Transaction::from_edits(
        &objects().map(Edit::Remove).collect::<Vec<_>>(),
    ));
    let inside = objects().filter(|object| !matches!(object, Object::Table(_)));
    assert_agreed(&Transaction::from_edits(
        &inside.map(Edit::Remove).collect::<Vec<_>>(),
    ));
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn table() -> TableId {
    TableId::new(Family::Inet, name("t"))
}

/// Returns a chain with one rule.
fn chain(exprs: Vec<Expr>) -> Object {
    let rule = Rule::from_exprs(exprs);
    Chain::new(table(), name("c")).with_rules([rule]).into()
}

fn adding(object: impl Into<Object>) -> Transaction {
    Transaction::from_edits(&[Edit::Add(object.into())])
}

#[test]
fn both_encoders_agree_on_every_kind_of_object() {
    for table in samples::tables() {
        assert_agreed_on(&samples::objects(&table));
    }
    let owned = Table::new(table()).with_flags(TableFlags::OWNER);
    let base = BaseChain::new(ChainType::Filter, Hook::Ingress, -7).with_device(name("eth0"));
    let ingress = Chain::new(table(), name("i")).with_base(base);
    assert_agreed_on(&[owned.into(), ingress.into()]);
    for (packets, bytes) in [(0, 0), (5, 300)] {
        let mut base = BaseChain::new(ChainType::Filter, Hook::Input, 0);
        base.counter = Some(Counter { packets, bytes });
        let rules = [false, true].map(|invert| {
            let protocol = 6;
            Rule::from_exprs([]).with_compat(Compat { protocol, invert })
        });
        let chain = Chain::new(table(), name("c")).with_base(base);
        assert_agreed_on(&[chain.with_rules(rules).into()]);
    }
}

#[test]
fn both_encoders_agree_on_every_expression() {
    assert_agreed_on(&samples::expressions(&samples::table()));
    for family in FAMILIES {
        let samples = rules::Samples::new(family);
        assert_agreed_on(&samples.objects(&samples.cases()));
    }
    let by = Bytes::from([0, 0, 0, 3]);
    let [source, destination] = [0, 1].map(Register::word);
    let shift = |op| {
        let len = 4;
        Bitwise {
            source,
            destination,
            len,
            op,
        }
        .into()
    };
    let dynset = |exprs| {
        let (set, op, key) = (SetRef::Named(name("s")), DynsetOp::Delete, source);
        let (data, timeout, invert) = (None, None, true);
        Dynset {
            set,
            op,
            key,
            data,
            timeout,
            exprs,
            invert,
        }
        .into()
    };
    let lookup = Lookup {
        set: SetRef::Named(name("s")),
        source,
        destination: Some(Register::VERDICT),
        invert: true,
    };
    assert_agreed(&adding(chain(vec![
        shift(BitwiseOp::ShiftLeft(by.clone())),
        shift(BitwiseOp::ShiftRight(by)),
        dynset(Vec::new()),
        dynset(vec![Counter::default().into()]),
        dynset(vec![Counter::default().into(), Limit::per_second(9).into()]),
        lookup.into(),
    ])));
}

/// Expressions that nft 1.0.6 does not write, or not in family `ip`.
const NOT_OF_NFT: [&str; 4] = ["fwd", "last", "match", "target"];

/// nft recorded these messages with libnftnl.
#[test]
fn both_encoders_agree_on_captured_expressions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let mut seen = BTreeSet::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let byte = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
            let message: Vec<u8> = (0..line.len()).step_by(2).map(byte).collect();
            for expr in expressions(&message) {
                seen.insert(expr.name().to_owned());
                assert_agreed(&adding(chain(vec![expr])));
            }
        }
    }
    assert!(
        seen.iter().map(String::as_str).eq(Expr::NAMES
            .iter()
            .copied()
            .filter(|name| !NOT_OF_NFT.contains(name))
            .collect::<BTreeSet<_>>())
    );
}

/// Returns the expressions of a rule message.
fn expressions(message: &[u8]) -> Vec<Expr> {
    const EXPRESSIONS: u16 = 4;
    let attrs = vipline_netlink::attr::Attrs::new(&message[4..]).map(Result::unwrap);
    attrs
        .filter(|attr| attr.kind == EXPRESSIONS)
        .flat_map(|attr| {
            attr.attrs()
                .map(|expr| Expr::decode(expr.unwrap().value).unwrap())
        })
        .collect()
}

/// Returns whether the libnftnl encoder supports an expression.
fn is_supported(expr: &Expr) -> bool {
    !matches!(expr, Expr::Other { .. } | Expr::Match(_) | Expr::Target(_))
}

proptest! {
    #[test]
    fn both_encoders_agree_on_arbitrary_expressions(expr in arbitrary::expr()) {
        let is_known = is_supported(&expr);
        let transaction = adding(chain(vec![expr]));
        match is_known {
            true => assert_agreed(&transaction),
            false => prop_assert!(nftnl::encode(&transaction, 1, None).is_err()),
        }
    }

    #[test]
    fn both_encoders_agree_on_arbitrary_objects(objects in arbitrary::objects()) {
        let objects: Vec<Object> = objects.into_iter().map(|object| match object {
            Object::Chain(mut chain) => {
                let mut rules = chain.rules.to_vec();
                rules.iter_mut().for_each(|rule| rule.exprs.retain(is_supported));
                chain.rules = rules.into();
                Object::Chain(chain)
            }
            object => object,
        }).collect();
        assert_agreed_on(&objects);
    }
}

#[test]
fn both_encoders_split_long_lists_alike() {
    let (set, mut objects) = samples::dispatch(&samples::table());
    objects.extend(samples::dispatch_elements(&set, 5000));
    assert_agreed_on(&objects);
    let ports = Set::set(table(), name("p"), [Datatype::InetService.into()]);
    let ports = ports.with_flags(SetFlags::INTERVAL);
    let ports = (0..=u16::MAX).map(|port| ports.element(&[port.into()]).unwrap().into());
    assert_agreed_on(&ports.collect::<Vec<_>>());
}

#[test]
fn a_batch_without_generation_requests_none() {
    let transaction = adding(Table::new(table()));
    let batch = nftnl::encode(&transaction, u32::MAX, None).unwrap();
    assert_eq!(batch.bytes(), transaction.encode(u32::MAX, None).bytes());
}

#[test]
fn libnftnl_omits_an_empty_expression_list() {
    let transaction = adding(chain(Vec::new()));
    let [ours, theirs] = [
        transaction.encode(1, None),
        nftnl::encode(&transaction, 1, None).unwrap(),
    ]
    .map(|batch| batch.bytes().len());
    assert_eq!(ours, theirs + 4);
    assert_agreed(&transaction);
}

/// Returns the error for an object that libnftnl does not support.
#[track_caller]
fn unsupported(object: impl Into<Object>) -> String {
    let transaction = adding(object);
    let error = nftnl::encode(&transaction, 1, None).unwrap_err();
    assert!(
        matches!(error, Error::LibnftnlUnsupported { .. }),
        "{error}"
    );
    assert_eq!(error.committed(), Committed::No);
    error.to_string()
}

#[test]
fn unsupported_features_are_reported() {
    let other = Expr::Other {
        name: name("synproxy"),
        bytes: Bytes::from([4, 0, 1, 0]),
    };
    let words = unsupported(chain(vec![other]));
    assert_eq!(
        words,
        "libnftnl does not support the raw attributes of synproxy"
    );
    let (info, revision) = (Bytes::from([0; 8]), 0);
    let (one, target) = (
        Match {
            name: name("udp"),
            revision,
            info: info.clone(),
        },
        Target {
            name: name("LOG"),
            revision,
            info,
        },
    );
    let words = [one.into(), target.into()].map(|expr| unsupported(chain(vec![expr])));
    assert_eq!(
        words,
        [
            "libnftnl does not support match udp",
            "libnftnl does not support target LOG"
        ]
    );
    let long = |len| {
        let (source, op) = (Register::word(0), CmpOp::Eq);
        let data = Bytes::repeat(1, len);
        chain(vec![Cmp { source, op, data }.into()])
    };
    assert_agreed(&adding(long(64)));
    assert_eq!(
        unsupported(long(65)),
        "libnftnl does not support an attribute of 65 bytes (limit: 64)"
    );
    let fields = |count| {
        let fields = vec![Field::from(Datatype::InetProto); count];
        Set::set(table(), name("s"), fields).with_flags(SetFlags::INTERVAL)
    };
    assert_agreed(&adding(fields(15)));
    assert_eq!(
        unsupported(fields(16)),
        "libnftnl does not support an attribute of 16 bytes (limit: 15)"
    );
}

#[test]
fn an_unsupported_transaction_is_not_sent() {
    let netns = testkit::netns::Netns::new().unwrap();
    let open = || vipline_nftables::Client::open_with(Encoder::Nftnl);
    let mut client = netns.run(open).unwrap();
    let other = Expr::Other {
        name: name("synproxy"),
        bytes: Bytes::new(),
    };
    let table = Object::from(Table::new(table()));
    let edits = [table, chain(vec![other])].map(Edit::Add);
    let error = client.commit(&Transaction::from_edits(&edits)).unwrap_err();
    assert!(
        matches!(error, Error::LibnftnlUnsupported { .. }),
        "{error}"
    );
    assert_eq!(client.counters().sends, 0);
    client
        .commit(&Transaction::from_edits(&edits[..1]))
        .unwrap();
    assert_eq!(client.counters().sends, 1);
}
