//! Assignments of header fields: like nft, and with the checksum.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use testkit::netns::Netns;
use testkit::nft;
use vipline_nftables::expr::{Expr, PayloadBase};
use vipline_nftables::expression::{
    icmp_type, icmpv6_type, sctp_dport, sctp_sport, tcp_dport, tcp_flags, tcp_sport, th_dport,
    udp_dport, udp_sport,
};
use vipline_nftables::{
    BaseChain, Chain, ChainType, Client, Datatype, Expression, Family, Hook, InvalidValue, Name,
    Object, Rule, Statement, Table, TableId, Transaction, Value,
};
use vipline_reconcile::Edit;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Returns a value of an expression, and its text in nft syntax.
fn value(of: &Expression) -> (Value, &'static str) {
    let bytes = |bytes: &[u8]| Value::Bytes(bytes.into());
    match of.datatype() {
        Datatype::Ipv4Addr => (Value::Addr("192.0.2.1".parse().unwrap()), "192.0.2.1"),
        Datatype::Ipv6Addr => (Value::Addr("2001:db8::1".parse().unwrap()), "2001:db8::1"),
        Datatype::EtherAddr => (bytes(&[2, 0, 0, 0, 0, 1]), "02:00:00:00:00:01"),
        _ => (Value::Integer(7), "7"),
    }
}

/// Returns all fields of network headers that have a name in tables of a family, and those of
/// transport headers.
fn fields(family: Family) -> Vec<Expression> {
    let mut fields = Vec::new();
    for offset in 0..40 {
        for len in 1..=16 {
            let field = Expression::payload(PayloadBase::Network, offset, len, Some(family));
            if !field.to_string().starts_with('@') {
                fields.push(field);
            }
        }
    }
    fields.extend([tcp_sport(), tcp_dport(), udp_sport(), udp_dport()].map(Expression::untyped));
    fields.extend([sctp_sport(), sctp_dport()].map(Expression::untyped));
    fields.extend([tcp_flags(), icmp_type(), icmpv6_type()].map(Expression::untyped));
    fields
}

/// Returns the kernel expressions of the only rule of the table after `nft` added it.
fn of_nft(family: Family, rule: &str) -> Vec<Expr> {
    let netns = Netns::new().unwrap();
    let word = family.as_str();
    let script = format!("add table {word} t\nadd chain {word} t c\nadd rule {word} t c {rule}\n");
    netns.run(|| nft::succeeds(&["-f", "-"], &script));
    let mut client = netns.run(Client::open).unwrap();
    let table = TableId::new(family, name("t"));
    let dump = client.dump(&table).unwrap();
    let chains = dump.objects().filter_map(|object| match object {
        Object::Chain(chain) => Some(chain.rules.to_vec()),
        _ => None,
    });
    let [rule] = chains.flatten().collect::<Vec<_>>().try_into().unwrap();
    rule.exprs
}

fn of_ours(family: Family, statement: Statement) -> Vec<Expr> {
    Rule::new(family, [statement]).unwrap().exprs
}

#[test]
fn every_field_is_stored_as_nft_stores_it() {
    let mut count = 0;
    for family in [Family::Ip, Family::Ip6] {
        for field in fields(family) {
            let (value, text) = value(&field);
            let rule = format!("{field} set {text}");
            let expected = of_nft(family, &rule);
            assert_eq!(
                of_ours(family, field.set_to(value)),
                expected,
                "{family} {rule}"
            );
            count += 1;
        }
    }
    // The named fields of IPv4 and IPv6 headers, and 9 of transport headers in each family.
    assert_eq!(count, 8 + 5 + 2 * 9);
}

#[test]
fn what_cannot_be_stored_is_an_error() {
    let error = |statement| -> InvalidValue { Rule::new(Family::Ip, [statement]).unwrap_err() };
    let port = error(th_dport().set_to(53));
    assert_eq!(
        port.to_string(),
        "th dport 53: the checksum of this header depends on the protocol: \
         assign the port of TCP or UDP"
    );
    let parts = |error| match error {
        InvalidValue::Statement {
            expression, value, ..
        } => [expression, value],
        other => panic!("{other}"),
    };
    let single = Expression::payload(PayloadBase::Network, 8, 1, Some(Family::Ip));
    let loaded = Expression::payload(PayloadBase::Network, 1, 1, Some(Family::Ip));
    let ttl = parts(error(single.set(&loaded)));
    assert_eq!(ttl.each_ref().map(|it| &**it), ["ip ttl", "set @nh,8,8"]);
    let number = error(vipline_nftables::expression::numgen_random(2).set_to(1));
    let number = parts(number);
    assert_eq!(
        number.each_ref().map(|it| &**it),
        ["numgen random mod 2", "1"]
    );
}

/// Adds the complement of the sum of 16-bit words that IP and UDP headers carry.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|word| {
        let [high, low] = [word[0], word.get(1).copied().unwrap_or_default()];
        u32::from(u16::from_be_bytes([high, low]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap()).to_be_bytes()
}

/// Sends a datagram with its checksum to a port of 127.0.0.1. Sockets of UDP leave the
/// checksum to the device, and the loopback device to nobody; raw sockets send the bytes.
fn send_with_checksum(port: u16) {
    let (from, to) = ([127, 0, 0, 1], [127, 0, 0, 1]);
    let payload = b"data";
    let len = u16::try_from(8 + payload.len()).unwrap();
    let mut udp = Vec::new();
    for word in [4000, port, len, 0] {
        udp.extend(word.to_be_bytes());
    }
    udp.extend(payload);
    let pseudo = [&from[..], &to, &[0, 17], &len.to_be_bytes(), &udp].concat();
    udp[6..8].copy_from_slice(&checksum(&pseudo));
    let total = (20 + len).to_be_bytes();
    let ip = [0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0];
    let packet = [&ip[..], &from, &to, &udp].concat();
    let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap();
    let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    sendto(&socket, &packet, SendFlags::empty(), &to).unwrap();
}

/// Returns whether a datagram arrives whose port a rule replaces.
fn arrives(statements: impl IntoIterator<Item = Statement>) -> bool {
    let netns = Netns::new().unwrap();
    let mut client = netns.run(Client::open).unwrap();
    let table = TableId::new(Family::Ip, name("t"));
    let base = BaseChain::new(ChainType::Filter, Hook::Output, 0);
    let chain = Chain::new(table.clone(), name("c"))
        .with_base(base)
        .with_rules([Rule::new(Family::Ip, statements).unwrap()]);
    let objects = [Table::new(table).into(), chain.into()];
    let edits = objects.map(Edit::Add);
    client.commit(&Transaction::from_edits(&edits)).unwrap();
    netns.run(|| {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 2000)).unwrap();
        server
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        send_with_checksum(1000);
        server.recv(&mut [0; 16]).is_ok()
    })
}

#[test]
fn a_packet_with_an_assigned_port_arrives() {
    let port = || udp_dport().is(1000);
    assert!(arrives([port(), udp_dport().set_to(2000)]));
    // The same bytes without a checksum: what the receiver drops.
    let bytes = Expression::payload(PayloadBase::Transport, 2, 2, None);
    let raw = match bytes.to_string().as_str() {
        "th dport" => Expression::payload(PayloadBase::Network, 22, 2, None),
        other => panic!("{other}"),
    };
    assert!(!arrives([port(), raw.set_to(2000_u16)]));
}
