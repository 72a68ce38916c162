//! Texts of rules.

use std::net::Ipv4Addr;

use crate::expr::{CtStatus, Expr, FibFlags, FibResult, Match, PayloadBase, Target};
use crate::expression::{
    Expression, ct_status, fib, icmp_type, ip_daddr, l4proto, tcp_flags, th_dport,
};
use crate::statement::drop;
use crate::{Bytes, Family, Name, Rule, Statement};

#[track_caller]
fn assert_text(statements: impl IntoIterator<Item = Statement>, text: &str) {
    assert_eq!(Rule::new(Family::Ip, statements).unwrap().to_string(), text);
}

#[test]
fn a_protocol_header_implies_the_protocol_match() {
    assert_text(
        [icmp_type().is(8_u8), drop()],
        "icmp type echo-request drop",
    );
    assert_text([tcp_flags().is(2_u8)], "tcp flags syn");
    assert_text([l4proto().is(17_u8), th_dport().is(53_u16)], "udp dport 53");
    assert_text(
        [l4proto().is(99_u8), th_dport().is(53_u16)],
        "meta l4proto 99 th dport 53",
    );
}

#[test]
fn several_bits_are_in_parentheses() {
    let bits = CtStatus::SNAT | CtStatus::DNAT;
    let status = ct_status().and(bits).is(CtStatus::DNAT);
    assert_text([status], "ct status & (snat | dnat) == dnat");
}

#[test]
fn a_route_exists_or_is_missing() {
    let route = fib(FibFlags::SADDR | FibFlags::PRESENT, FibResult::Oif);
    assert_text([route.is(0_u8), drop()], "fib saddr oif missing drop");
}

#[test]
fn an_expression_without_nft_syntax_is_a_comment() {
    let (name, bytes) = (Name::new("synproxy").unwrap(), Bytes::from([1, 0xab]));
    let rule = Rule::from_exprs([Expr::Other { name, bytes }]);
    assert_eq!(rule.to_string(), "/* synproxy 01ab */");
    let (name, info) = (Name::new("mark").unwrap(), Bytes::from([1, 0xab]));
    let revision = 1;
    let rule = Rule::from_exprs([
        Match {
            name: name.clone(),
            revision,
            info: info.clone(),
        }
        .into(),
        Target {
            name,
            revision,
            info,
        }
        .into(),
    ]);
    assert_eq!(
        rule.to_string(),
        "/* match mark 1 01ab */ /* target mark 1 01ab */"
    );
}

#[test]
fn a_mask_with_gaps_is_not_a_prefix() {
    assert_text(
        [ip_daddr()
            .and(Ipv4Addr::new(255, 0, 255, 0))
            .is(Ipv4Addr::new(10, 0, 1, 0))],
        "ip daddr & 255.0.255.0 == 10.0.1.0",
    );
}

#[test]
fn fields_of_stacked_vlan_headers_have_names_after_the_types() {
    let frame = |offset, len| Expression::payload(PayloadBase::Link, offset, len, None);
    let outer = frame(12, 2).is(0x88a8_u16);
    let inner = frame(16, 2).is(0x8100_u16);
    let id = |offset| frame(offset, 2).and(0x0fff_u16).is(42_u16);
    assert_text(
        [outer.clone(), id(14), inner.clone(), id(18)],
        "ether type 0x88a8 vlan id 42 vlan type 0x8100 vlan id 42",
    );
    assert_text(
        [outer, frame(14, 1).and(0xe0_u8).is(0x60_u8), id(18)],
        "ether type 0x88a8 vlan pcp 3 @ll,144,16 & 0xfff == 0x2a",
    );
    assert_text(
        [inner, id(14)],
        "@ll,128,16 0x8100 @ll,112,16 & 0xfff == 0x2a",
    );
}
