//! Messages of this workspace and those that libnftnl makes of the same objects.
//!
//! They are compared as trees, because the order of attributes is significant in lists only.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nftnl::expr::{Nat, NatType, Register};
use nftnl::{MsgType, ProtoFamily, nft_expr};
use vipline_netlink::message::Messages;
use vipline_nftables::expr::{CtState, CtStatus, NatFlags};
use vipline_nftables::expression::*;
use vipline_nftables::statement::*;
use vipline_nftables::{
    BaseChain, Chain, ChainType, Family, Hook, Name, Object, Policy, Rule, Statement, Table,
    TableId, Transaction,
};
use vipline_reconcile::Edit;

/// An attribute: bytes, or attributes sorted by type.
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

    /// Returns whether the attribute can be `NFTA_BITWISE_OP` with the default,
    /// `NFT_BITWISE_BOOL`, which the callers of libnftnl need not set.
    fn is_bitwise_bool(&self) -> bool {
        *self == Self::Leaf(6, vec![0; 4])
    }

    /// Decodes attributes. Attributes of the same type keep their order.
    fn all(mut bytes: &[u8]) -> Vec<Self> {
        const NESTED: u16 = 1 << 15;
        let mut trees = Vec::new();
        while let [a, b, c, d, ..] = *bytes {
            let len = usize::from(u16::from_ne_bytes([a, b]));
            let kind = u16::from_ne_bytes([c, d]);
            let value = &bytes[4..len];
            let tree = match kind & NESTED {
                0 => Self::Leaf(kind, value.to_vec()),
                _ => Self::Nest(kind, Self::all(value)),
            };
            trees.extend(Some(tree).filter(|tree| !tree.is_bitwise_bool()));
            bytes = &bytes[len.next_multiple_of(4).min(bytes.len())..];
        }
        trees.sort_by_key(Self::kind);
        trees
    }
}

/// Type, family and attributes of a message. The caller of libnftnl chooses the flags.
type Parts = (u16, u8, Vec<Tree>);

/// Returns the messages of a batch, without those that begin and end it.
fn parts<'a>(datagrams: impl IntoIterator<Item = &'a [u8]>) -> Vec<Parts> {
    let datagrams = datagrams.into_iter();
    let messages = datagrams.flat_map(|bytes| Messages::new(bytes).map(Result::unwrap));
    let messages = messages.filter(|message| message.ty >> 8 != 0);
    let parts = messages.map(|message| {
        let (header, attrs) = message.payload.split_at(4);
        (message.ty, header[0], Tree::all(attrs))
    });
    parts.collect()
}

/// Returns the messages that add an object.
fn ours(object: impl Into<Object>) -> Vec<Parts> {
    let transaction = Transaction::from_edits(&[Edit::Add(object.into())]);
    parts([transaction.encode(1, None).bytes()])
}

/// Returns the messages of a batch of libnftnl.
fn theirs(fill: impl FnOnce(&mut nftnl::Batch)) -> Vec<Parts> {
    let mut batch = nftnl::Batch::new();
    fill(&mut batch);
    let batch = batch.finalize();
    parts(batch.iter())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn table(family: Family) -> (TableId, nftnl::Table) {
    let theirs = match family {
        Family::Ip => ProtoFamily::Ipv4,
        Family::Ip6 => ProtoFamily::Ipv6,
        Family::Inet => ProtoFamily::Inet,
        other => panic!("{other}"),
    };
    let id = TableId::new(family, name("t"));
    (id, nftnl::Table::new(c("t"), theirs))
}

#[test]
fn tables_and_chains_are_equal() {
    for family in [Family::Ip, Family::Ip6, Family::Inet] {
        let (id, of_nftnl) = table(family);
        let expected = theirs(|batch| batch.add(&of_nftnl, MsgType::Add));
        // A table without flags is the same with and without the attribute.
        let without_flags = |parts: Vec<Parts>| -> Vec<Parts> {
            let keep = |tree: &Tree| tree.kind() != 2;
            let one =
                |(ty, family, trees): Parts| (ty, family, trees.into_iter().filter(keep).collect());
            parts.into_iter().map(one).collect()
        };
        let found = ours(Table::new(id.clone()));
        assert_eq!(without_flags(found), without_flags(expected));

        let mut chain = nftnl::Chain::new(c("c"), &of_nftnl);
        let expected = theirs(|batch| batch.add(&chain, MsgType::Add));
        assert_eq!(ours(Chain::new(id.clone(), name("c"))), expected);

        chain.set_hook(nftnl::Hook::PreRouting, -100);
        chain.set_type(nftnl::ChainType::Nat);
        chain.set_policy(nftnl::Policy::Accept);
        let base = BaseChain::new(ChainType::Nat, Hook::Prerouting, -100);
        let base = Chain::new(id, name("c")).with_base(base.with_policy(Policy::Accept));
        let expected = theirs(|batch| batch.add(&chain, MsgType::Add));
        assert_eq!(ours(base), expected);
    }
}

/// A rule of this workspace, and the function that adds its expressions to a rule of libnftnl.
type Case = (Family, Vec<Statement>, fn(&mut nftnl::Rule<'_>));

/// Adds expressions to a rule of libnftnl.
macro_rules! exprs {
    ($($($expr:expr),+ $(,)?)?) => {
        |rule: &mut nftnl::Rule<'_>| {
            $($(rule.add_expr(&$expr);)+)?
        }
    };
}

fn cases() -> Vec<Case> {
    use Family::{Inet, Ip, Ip6};
    let web = IpAddr::from([10, 0, 0, 1]);
    vec![
        (
            Inet,
            vec![tcp_dport().is(22), counter(), accept()],
            exprs!(
                nft_expr!(meta l4proto),
                nft_expr!(cmp == 6_u8),
                nft_expr!(payload tcp dport),
                nft_expr!(cmp == 22_u16.to_be()),
                nft_expr!(counter),
                nft_expr!(verdict accept),
            ),
        ),
        (
            Ip,
            vec![ip_saddr().is(Ipv4Addr::new(192, 0, 2, 1)), drop()],
            exprs!(
                nft_expr!(payload ipv4 saddr),
                nft_expr!(cmp == Ipv4Addr::new(192, 0, 2, 1)),
                nft_expr!(verdict drop),
            ),
        ),
        (
            Ip6,
            vec![ip6_daddr().is_not(Ipv6Addr::LOCALHOST), return_()],
            exprs!(
                nft_expr!(payload ipv6 daddr),
                nft_expr!(cmp != Ipv6Addr::LOCALHOST),
                nft_expr!(verdict return),
            ),
        ),
        (
            Ip,
            vec![
                ct_state().is(CtState::ESTABLISHED | CtState::RELATED),
                accept(),
            ],
            exprs!(
                nft_expr!(ct state),
                nft_expr!(bitwise mask 6_u32, xor 0_u32),
                nft_expr!(cmp != 0_u32),
                nft_expr!(verdict accept),
            ),
        ),
        (
            Ip,
            vec![ct_status().is(CtStatus::DNAT), jump(&name("d"))],
            exprs!(
                nft_expr!(ct status),
                nft_expr!(bitwise mask 0x20_u32, xor 0_u32),
                nft_expr!(cmp != 0_u32),
                nft_expr!(verdict jump c("d")),
            ),
        ),
        (
            Ip,
            vec![mark().set_to(0x4000_u32), goto(&name("d"))],
            exprs!(
                nft_expr!(immediate data 0x4000_u32),
                nft_expr!(meta mark set),
                nft_expr!(verdict goto c("d")),
            ),
        ),
        (
            Ip6,
            vec![ct_mark().set_to(7_u32)],
            exprs!(nft_expr!(immediate data 7_u32), nft_expr!(ct mark set)),
        ),
        (
            Ip,
            vec![masquerade(NatFlags::empty())],
            exprs!(nft_expr!(masquerade)),
        ),
        (
            Ip,
            vec![dnat(web)],
            exprs!(
                nft_expr!(immediate data Ipv4Addr::new(10, 0, 0, 1)),
                Nat {
                    nat_type: NatType::DNat,
                    family: ProtoFamily::Ipv4,
                    ip_register: Register::Reg1,
                    port_register: None,
                },
            ),
        ),
    ]
}

#[test]
fn rules_are_equal() {
    let cases = cases();
    for (family, statements, add) in &cases {
        let (id, of_nftnl) = table(*family);
        let chain = nftnl::Chain::new(c("c"), &of_nftnl);
        let mut rule = nftnl::Rule::new(&chain);
        add(&mut rule);
        let expected = theirs(|batch| batch.add(&rule, MsgType::Add));
        let ours_rule = Rule::new(*family, statements.clone()).unwrap();
        let text = ours_rule.to_string();
        let mut found = ours(Chain::new(id, name("c")).with_rules([ours_rule]));
        // The message before it adds the chain.
        assert_eq!(found.split_off(1), expected, "{text}");
    }
    println!("{} rules are encoded like those of libnftnl", cases.len());
}
