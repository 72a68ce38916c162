//! Expressions of rules that `nft` loads: decoded with a type, copied without a loss,
//! and written as text that `nft` loads to the same rule.
//!
//! `vm.rs` checks the groups of rules that require other kernels.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "expressions/groups.rs"]
mod groups;

use groups::Group;
use testkit::netns::Netns;
use vipline_netlink::attr::{nest, put_be32};
use vipline_nftables::expr::{
    Expr, Last, Payload, PayloadAccess, PayloadBase, Register, Socket, SocketKey,
};
use vipline_nftables::{
    Chain, Client, Family, Name, Object, Rule, Ruleset, Table, TableId, Transaction,
};
use vipline_reconcile::Edit;

#[test]
fn every_rule_is_typed_copied_and_written_as_text() {
    let mut problems = Vec::new();
    for group in Group::all() {
        if !group.name.starts_with("guest: ") {
            let of_group = groups::problems(&group);
            problems.extend(
                of_group
                    .iter()
                    .map(|text| format!("{}: {text}", group.name)),
            );
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Returns an expression without a type: it loads the source address of an IPv4 packet
/// in a VXLAN tunnel.
fn inner() -> Expr {
    let mut bytes = Vec::new();
    // `NFTA_INNER_NUM`, `NFTA_INNER_TYPE`, `NFTA_INNER_FLAGS`, `NFTA_INNER_HDRSIZE`
    for (kind, number) in [(1, 0), (2, 1), (3, 0xf), (4, 8)] {
        put_be32(&mut bytes, kind, number);
    }
    let payload = Expr::from(Payload {
        base: PayloadBase::Network,
        offset: 12,
        len: 4,
        access: PayloadAccess::Load(Register::word(0)),
    });
    // `NFTA_INNER_EXPR`
    nest(&mut bytes, 5, |out| payload.encode(out));
    Expr::Other {
        name: Name::new("inner").unwrap(),
        bytes: bytes.into(),
    }
}

/// Commits objects in a namespace of their own, and returns the dump.
fn installed(table: &TableId, objects: impl IntoIterator<Item = Object>) -> Ruleset {
    let netns = Netns::new().unwrap();
    let mut client = netns.run(Client::open).unwrap();
    let edits: Vec<_> = objects.into_iter().map(Edit::Add).collect();
    client.commit(&Transaction::from_edits(&edits)).unwrap();
    client.dump(table).unwrap()
}

#[test]
fn expressions_that_nft_does_not_write_are_copied() {
    let table = TableId::new(Family::Inet, Name::new("t").unwrap());
    let socket = Socket {
        key: SocketKey::Cgroupv2(2),
        destination: Register::word(0),
    };
    let exprs = [Last::default().into(), socket.into(), inner()];
    let rules = exprs.map(|expr| Rule::from_exprs([expr]));
    let chain = Chain::new(table.clone(), Name::new("c").unwrap()).with_rules(rules);
    let first = installed(&table, [Table::new(table.clone()).into(), chain.into()]);
    let copy = installed(&table, first.objects());
    let rules = |ruleset: &Ruleset| ruleset.chain(&table, "c").unwrap().rules.clone();
    assert_eq!(rules(&first), rules(&copy));
    let names: Vec<&str> = first
        .chain(&table, "c")
        .unwrap()
        .rules
        .iter()
        .map(|rule| rule.exprs[0].name())
        .collect();
    assert_eq!(names, ["last", "socket", "inner"]);
    assert!(matches!(rules(&first)[2].exprs[0], Expr::Other { .. }));
}
