//! Values that an expression or an element cannot have, and elements of bytes.
#![allow(clippy::unwrap_used, reason = "a test")]

use ipnet::IpNet;
use vipline_nftables::expr::{CmpOp, CtKey, CtStatus, MetaKey};
use vipline_nftables::expression::{
    concat, ct_mark, ct_original, daddr, ether_saddr, iifname, ip_protocol, ip_saddr, ip6_saddr,
    mark, saddr, tcp_dport,
};
use vipline_nftables::{
    Data, Datatype, Element, Expression, Family, InvalidValue, Name, Rule, Set, Statement, TableId,
    Value, Verdict,
};

/// Returns the error of a rule with the statement.
fn error(statement: Statement) -> String {
    let error = Rule::new(Family::Inet, [statement]).unwrap_err();
    error.to_string()
}

#[test]
fn a_value_that_an_expression_cannot_have_is_an_error_with_both_names() {
    let net = |text: &str| text.parse::<IpNet>().unwrap();
    let addr = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    let protocol = Expression::from(MetaKey::L4Proto);
    let integer = |number| Value::Integer(number);
    for (statement, expected) in [
        (
            tcp_dport().is(integer(70_000)),
            "tcp dport 70000: a value of another size than 2 bytes",
        ),
        (
            ip_protocol().is(integer(300)),
            "ip protocol 300: a value of another size than 1 byte",
        ),
        (
            ip_saddr().is(net("2001:db8::/32")),
            "ip saddr 2001:db8::/32: a value of another size than 4 bytes",
        ),
        (
            ip6_saddr().is(addr("192.0.2.1")),
            "ip6 saddr 192.0.2.1: a value of another size than 16 bytes",
        ),
        (
            daddr(Family::Ip6).is_not(addr("192.0.2.1")),
            "ip6 daddr 192.0.2.1: a value of another size than 16 bytes",
        ),
        (
            saddr(Family::Ip).is(addr("192.0.2.9")..=addr("192.0.2.1")),
            "ip saddr 192.0.2.9-192.0.2.1: the first value of the range exceeds the last one",
        ),
        (
            saddr(Family::Ip).is(addr("192.0.2.9")..=addr("2001:db8::1")),
            "ip saddr 192.0.2.9-2001:db8::1: a value of another size than 4 bytes",
        ),
        (
            ip_saddr().is(integer(7)),
            "ip saddr 7: a value of another type",
        ),
        (
            tcp_dport().is(Value::from("ssh")),
            "tcp dport \"ssh\": a value of another type",
        ),
        (
            iifname().is("a-name-of-16-byte"),
            "iifname \"a-name-of-16-byte\": an interface name has 1 to 15 bytes, and neither \
             spaces nor / or :",
        ),
        (
            iifname().is("*"),
            "iifname \"*\": an interface name has 1 to 15 bytes, and neither spaces nor / or :",
        ),
        (
            iifname().is(integer(5)),
            "iifname 5: a value of another type",
        ),
        (
            iifname().set_to("eth*"),
            "iifname \"eth*\": an interval where only a single value is possible",
        ),
        (
            ip_saddr().compares(CmpOp::Lt, net("192.0.2.0/24")),
            "ip saddr 192.0.2.0/24: such values have no order",
        ),
        (
            protocol.is(300_u16),
            "meta l4proto 300: a value of another size than 1 byte",
        ),
        (
            ct_original(CtKey::DstIp).is("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap()),
            "ct original ip daddr 2001:db8::1: a value of another size than 4 bytes",
        ),
        (
            mark().and(Value::Integer(1 << 40)).is(1),
            "meta mark 1099511627776: a value of another size than 4 bytes",
        ),
        (
            mark().set(&ether_saddr()),
            "meta mark set ether saddr: a value of another size than 4 bytes",
        ),
        (
            concat((ip_saddr(), tcp_dport())).is((ip_addr("192.0.2.1"), Value::Integer(70_000))),
            "ip saddr . tcp dport 192.0.2.1 . 70000: a value of another size than 2 bytes",
        ),
        (
            concat((ip_saddr(), tcp_dport()))
                .untyped()
                .is(CtStatus::DNAT),
            "ip saddr . tcp dport 32: the number of fields is not 2",
        ),
        (
            tcp_dport().is_in([integer(22), integer(70_000)]),
            "tcp dport 70000: a value of another size than 2 bytes",
        ),
    ] {
        assert_eq!(error(statement), expected);
    }
}

fn ip_addr(text: &str) -> std::net::Ipv4Addr {
    text.parse().unwrap()
}

#[test]
fn values_read_as_in_nft() {
    let text =
        |family, statements: Vec<Statement>| Rule::new(family, statements).unwrap().to_string();
    let net: ipnet::Ipv4Net = "192.0.2.0/24".parse().unwrap();
    let rule = vec![
        tcp_dport().is_in([22, 80]),
        ip_saddr().is(net),
        ct_mark().is(0x10),
        concat((ip_saddr(), tcp_dport())).is((net.addr(), 22)),
    ];
    assert_eq!(
        text(Family::Ip, rule),
        "tcp dport { 22, 80 } ip saddr 192.0.2.0/24 ct mark 0x00000010 \
         ip saddr . tcp dport 192.0.2.0 . 22"
    );
    let rule = vec![tcp_dport().is_not_in([22, 80])];
    assert_eq!(text(Family::Ip, rule), "tcp dport != { 22, 80 }");
}

#[test]
fn an_element_of_bytes_has_the_lengths_of_its_map() {
    let name = |text| Name::new(text).unwrap();
    let table = TableId::new(Family::Ip, name("t"));
    let fields = [Datatype::Ipv4Addr, Datatype::InetService];
    let map = Set::map(table, name("m"), fields, Datatype::Mark);
    assert_eq!((map.key_bytes(), map.data_bytes()), (8, 4));
    let key = [192, 0, 2, 1, 0, 80, 0, 0];
    let value = |len: usize| Some(Data::Value(vec![1; len].into()));
    let element = Element::from_bytes(&map, &key[..], value(4)).unwrap();
    let values = [std::net::Ipv4Addr::new(192, 0, 2, 1).into(), 80_u16.into()];
    assert_eq!(
        element.key_bytes(),
        map.element(&values).unwrap().key_bytes()
    );
    let refused = |key: &[u8], data| match Element::from_bytes(&map, key, data) {
        Err(InvalidValue::Element { part, .. }) => part,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&key[..6], value(4)), "key");
    assert_eq!(refused(&key, value(3)), "data");
    assert_eq!(refused(&key, Some(Data::Verdict(Verdict::Drop))), "data");
}
