//! The cost of reading many rules, as counts of bytes and datagrams.
//!
//! Runs in a network namespace.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::Ipv4Addr;

use testkit::allocation::{Counting, allocated};
use testkit::netns::Netns;
use vipline_nftables::expr::Expr;
use vipline_nftables::expression::{ip_saddr, tcp_dport};
use vipline_nftables::statement::accept;
use vipline_nftables::{
    Chain, Client, Edit, Family, Name, Object, Rule, Table, TableId, Transaction,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of rules.
const RULES: u16 = 1000;

/// The kernel fills datagrams of 32 KiB, and describes one of these rules in about 450 bytes.
const RULES_PER_DATAGRAM: u64 = 50;

#[test]
fn a_rule_that_is_read_allocates_only_its_expressions() {
    let table = TableId::new(Family::Ip, Name::new("filter").unwrap());
    let rule = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let statements = [
            ip_saddr().is(Ipv4Addr::new(10, 1, high, low)),
            tcp_dport().is(number),
            accept(),
        ];
        Rule::new(Family::Ip, statements).unwrap()
    };
    let chain = Chain::new(table.clone(), Name::new("input").unwrap());
    let chain = chain.with_rules((0..RULES).map(rule));
    let objects: [Object; 2] = [Table::new(table.clone()).into(), chain.into()];
    let mut client = Netns::new().unwrap().run(Client::open).unwrap();
    let transaction = Transaction::from_edits(&objects.map(Edit::Add));
    client.commit(&transaction).unwrap();

    let before = client.counters().receives;
    let (mut rules, mut exprs) = (0, 0);
    let (bytes, dump) = allocated(|| {
        client.rules(&table, None, |rule| {
            rules += 1;
            exprs += rule.decode().unwrap().exprs.len();
        })
    });
    assert!(dump.unwrap().complete().is_some());
    assert_eq!(rules, RULES);
    let receives = client.counters().receives - before;
    assert!(
        receives <= u64::from(RULES) / RULES_PER_DATAGRAM,
        "{receives}"
    );
    // The request may grow the buffers of the client.
    let exprs = (exprs * size_of::<Expr>()) as u64;
    assert!((exprs..exprs + 1024).contains(&bytes), "{bytes} of {exprs}");
}
