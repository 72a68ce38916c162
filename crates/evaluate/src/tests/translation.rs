//! Translation of addresses and ports.

use vipline_nftables::expr::{PayloadBase, RejectType};

use super::*;
use crate::Discard;

#[test]
fn a_forwarded_packet_loses_one_hop() {
    let forwarded = |ttl| {
        let packet = to("10.0.0.5:53").with_ttl(ttl);
        let end = outcome([filter(Hook::Forward, Vec::new())], &packet);
        let bytes = end
            .packet
            .read(PayloadBase::Network, 8, 1)
            .unwrap()
            .unwrap();
        (end.disposition, bytes[0])
    };
    assert_eq!(forwarded(64), (Disposition::Sent("eth1".into()), 63));
    assert_eq!(forwarded(1), (Disposition::Expired, 0));
    let delivered = outcome([], &to("192.0.2.1:53").with_ttl(1));
    assert_eq!(delivered.disposition, Disposition::Delivered);
}

#[test]
fn hooks_after_a_translation_see_the_new_destination() {
    let target = NatTarget::from(end("10.0.0.7:8053"));
    let objects = [
        // The priority of a chain of type nat does not order it among filters.
        hooked(
            ChainType::Nat,
            Hook::Prerouting,
            50,
            vec![rule([dnat(target)])],
        ),
        hooked(
            ChainType::Filter,
            Hook::Prerouting,
            0,
            vec![rule([udp_dport().is(8053_u16), mark().set_to(1_u32)])],
        ),
        filter(
            Hook::Forward,
            vec![rule([
                ip_daddr().is(ip("10.0.0.7")),
                oifname().is("eth1"),
                ct_mark().set_to(9_u32),
            ])],
        ),
        hooked(
            ChainType::Nat,
            Hook::Postrouting,
            100,
            vec![rule([mark().is(1_u32), masquerade(NatFlags::empty())])],
        ),
    ];
    let end = outcome(objects.clone(), &to("192.0.2.1:53"));
    assert_eq!(end.disposition, Disposition::Sent("eth1".into()));
    let text = "udp 10.0.0.1:4000 -> 10.0.0.7:8053";
    assert_eq!(end.packet.to_string(), text);
    let connection = end.connection.unwrap();
    assert_eq!(connection.mark, 9);
    let both = CtStatus::SNAT | CtStatus::DNAT | CtStatus::CONFIRMED;
    assert!(connection.status.contains(both));
    // A reply and a later packet are translated without the rules.
    let known = |direction| Tracking::Known {
        connection: Box::new(connection.clone()),
        state: CtState::ESTABLISHED,
        direction,
    };
    let reply = Packet::udp(self::end("10.0.0.7:8053"), self::end("10.0.0.1:4000"));
    let reply = reply
        .with_input("eth1")
        .with_tracking(known(Direction::Reply));
    let end = outcome(objects.clone(), &reply);
    assert_eq!(end.packet.to_string(), "udp 192.0.2.1:53 -> 192.0.2.9:4000");
    assert_eq!(end.disposition, Disposition::Sent("eth0".into()));
    let later = to("192.0.2.1:53").with_tracking(known(Direction::Original));
    let end = outcome(objects, &later);
    assert_eq!(end.packet.to_string(), text);
    assert!(end.trace.rules().all(|step| step.hook != Hook::Postrouting));
}

#[test]
fn the_first_translation_of_a_connection_decides() {
    let to_port = |port: u16| rule([dnat(SocketAddr::new(ip("10.0.0.7"), port))]);
    let objects = [
        hooked(ChainType::Nat, Hook::Prerouting, -100, vec![to_port(1)]),
        hooked(ChainType::Nat, Hook::Prerouting, -90, vec![to_port(2)]),
    ];
    let end = outcome(objects, &to("192.0.2.1:53"));
    assert_eq!(end.packet.destination_port(), Some(1));
    assert_eq!(end.trace.matches().count(), 1);
}

#[test]
fn a_random_source_port_is_unknown_to_later_rules() {
    let random = masquerade(NatFlags::FULLY_RANDOM);
    let objects = [hooked(
        ChainType::Nat,
        Hook::Postrouting,
        100,
        vec![rule([random])],
    )];
    let end = outcome(objects, &to("10.0.0.7:53"));
    assert_eq!(end.packet.to_string(), "udp 10.0.0.1:* -> 10.0.0.7:53");
    assert_eq!(end.connection.unwrap().reply.destination_port, None);
}

#[test]
fn addresses_of_a_range_are_equally_probable() {
    let range = NatTarget::range(ip("10.0.0.7")..=ip("10.0.0.9"), Some(90..=95));
    let objects = [hooked(
        ChainType::Nat,
        Hook::Prerouting,
        -100,
        vec![rule([dnat(range)])],
    )];
    let outcomes = evaluate(objects, &to("192.0.2.1:53")).unwrap();
    let packets = outcomes
        .iter()
        .map(|it| format!("{} {}", it.probability, it.packet));
    let expected = [7, 8, 9].map(|it| format!("1/3 udp 192.0.2.9:4000 -> 10.0.0.{it}:90"));
    assert_eq!(packets.collect::<Vec<_>>(), expected);
}

#[test]
fn a_source_in_the_range_is_kept() {
    let rules = vec![rule([snat(NatTarget::range(
        ip("192.0.2.1")..=ip("192.0.2.9"),
        None,
    ))])];
    let objects = [hooked(ChainType::Nat, Hook::Postrouting, 100, rules)];
    let end = outcome(objects, &to("10.0.0.7:53"));
    assert_eq!(end.packet.source(), ip("192.0.2.9"));
    assert!(!end.connection.unwrap().status.contains(CtStatus::SNAT));
}

#[test]
fn a_packet_of_a_process_is_routed_again_after_translation() {
    let target = rule([ip_daddr().is(ip("192.0.2.50")), dnat(ip("10.0.0.7"))]);
    let objects = [hooked(ChainType::Nat, Hook::Output, -100, vec![target])];
    let packet = Packet::udp(end("192.0.2.1:1"), end("192.0.2.50:53"));
    let sent = outcome(objects, &packet);
    assert_eq!(sent.disposition, Disposition::Sent("eth1".into()));
    let objects = [hooked(
        ChainType::Nat,
        Hook::Output,
        -100,
        vec![rule([redirect(99)])],
    )];
    let local = outcome(objects, &packet);
    assert_eq!(local.disposition, Disposition::Delivered);
    assert_eq!(local.packet.destination(), ip("127.0.0.1"));
    assert_eq!(local.packet.input().map(|it| &*it.name), Some("lo"));
}

#[test]
fn an_outcome_displays_as_the_path_of_the_packet() {
    let objects = [
        hooked(
            ChainType::Nat,
            Hook::Prerouting,
            -100,
            vec![rule([udp_dport().is(53_u16), dnat(end("10.0.0.7:8053"))])],
        ),
        filter(Hook::Forward, vec![rule([udp_dport().is(1_u16), drop()])]),
    ];
    let text = "\
1: udp 192.0.2.9:4000 -> 10.0.0.7:8053 sent through eth1
  prerouting ip t nat-prerouting--100 rule 1: udp dport 53 dnat to 10.0.0.7:8053
  prerouting: translated 192.0.2.9:4000 -> 192.0.2.1:53 to 192.0.2.9:4000 -> 10.0.0.7:8053
  routed through eth1
  forward ip t filter-forward-0: policy accept
";
    assert_eq!(outcome(objects, &to("192.0.2.1:53")).to_string(), text);
}

#[test]
fn random_numbers_in_keys_that_no_element_has_are_one_choice() {
    let key = concat((ip_daddr(), numgen_random(500)));
    let slots = Set::new(table(), name("slots"), key.clone().into_fields());
    let element = slots.element(&[ip("192.0.2.1").into(), 7_u32.into()]);
    let in_slots = || rule([key.clone().in_set(&slots), drop()]);
    let objects = |count| {
        let rules = vec![in_slots(); count];
        let element = element.clone().unwrap();
        [
            Object::from(slots.clone()),
            element.into(),
            filter(Hook::Prerouting, rules),
        ]
    };
    // Three choices of 500 numbers would visit more rules than the maximum.
    let passed = outcome(objects(3), &to("10.0.0.7:53"));
    assert_eq!(passed.probability, Probability::ONE);
    let outcomes = evaluate(objects(1), &to("192.0.2.1:53")).unwrap();
    let dropped = outcomes
        .iter()
        .filter(|it| it.disposition == Disposition::Dropped);
    let dropped: Vec<_> = dropped.map(|it| it.probability.to_string()).collect();
    assert_eq!(dropped, ["1/500"]);
}

#[test]
fn a_route_that_discards_the_new_destination_decides() {
    let host = [
        ("10.0.0.13/32", Discard::Unreachable),
        ("10.0.0.14/32", Discard::Blackhole),
        ("10.0.0.15/32", Discard::Prohibit),
        ("10.0.0.16/32", Discard::Throw),
    ];
    let host = host
        .into_iter()
        .fold(host_with_default(), |host, (net, kind)| {
            host.with_discard(net.parse().unwrap(), kind)
        });
    let outcome = |packet: &Packet, endpoint: &str| {
        let hooks = [Hook::Prerouting, Hook::Output].map(|hook| {
            let target = NatTarget::from(end(endpoint));
            hooked(ChainType::Nat, hook, -100, vec![rule([dnat(target)])])
        });
        let ruleset: Ruleset = hooks.into_iter().collect();
        let mut outcomes = Evaluator::new(&ruleset).evaluate(packet, &host).unwrap();
        assert_eq!(outcomes.len(), 1);
        outcomes.pop().unwrap()
    };
    let service = end("203.0.113.9:53");
    let received = Packet::udp(end("192.0.2.9:4000"), service).with_input("eth0");
    let [udp, tcp] = [Packet::udp, Packet::tcp].map(|it| it(end("192.0.2.1:4000"), service));
    let unreachable = Disposition::Rejected(RejectType::Icmp(1));
    let prohibited = Disposition::Rejected(RejectType::Icmp(13));
    let dropped = Disposition::Dropped;
    let unroutable = Disposition::Unroutable;
    // A datagram of a process fails, and TCP waits for its timeout.
    for (endpoint, by_received, by_datagram, by_tcp) in [
        ("10.0.0.13:53", &unreachable, &unreachable, &dropped),
        ("10.0.0.14:53", &dropped, &unreachable, &dropped),
        ("10.0.0.15:53", &prohibited, &prohibited, &dropped),
        ("10.0.0.16:53", &unroutable, &unroutable, &unroutable),
    ] {
        let of = |packet| outcome(packet, endpoint).disposition;
        assert_eq!(of(&received), *by_received, "{endpoint}");
        assert_eq!(of(&udp), *by_datagram, "{endpoint}");
        assert_eq!(of(&tcp), *by_tcp, "{endpoint}");
    }
    let trace = outcome(&received, "10.0.0.14:53").trace.to_string();
    let line = "routed to blackhole 10.0.0.14/32\n";
    assert!(trace.ends_with(line), "{trace}");
}

fn host_with_default() -> Host {
    host().with_route("0.0.0.0/0".parse().unwrap(), "eth0")
}

#[test]
fn the_base_chain_of_a_table_that_was_added_last_runs_first() {
    let nat = |text: &str, to: &str| {
        let rules = [rule([dnat(NatTarget::from(end(to)))])];
        let base = BaseChain::new(ChainType::Nat, Hook::Prerouting, -100);
        Object::from(chain(text, rules).with_base(base))
    };
    let (a, b) = (nat("a", "10.0.0.7:8053"), nat("b", "10.0.0.8:8053"));
    for (chains, expected) in [
        ([a.clone(), b.clone()], "10.0.0.8:8053"),
        ([b, a], "10.0.0.7:8053"),
    ] {
        let end = outcome(chains, &to("192.0.2.1:53")).packet.to_string();
        assert!(end.ends_with(expected), "{end}");
    }
}

#[test]
fn outcomes_do_not_depend_on_the_unknown_order_of_base_chains() {
    let in_table = |name: &str, kind, rules: Vec<Rule>| {
        let table = TableId::new(FAMILY, Name::new(name).unwrap());
        let chain = Chain::new(table, Name::new("p").unwrap()).with_rules(rules);
        let base = BaseChain::new(kind, Hook::Prerouting, -100);
        Object::from(chain.with_base(base))
    };
    let nat = |name: &str, port: u16, to: &str| {
        let target = NatTarget::from(end(to));
        let rules = vec![rule([udp_dport().is(port), dnat(target)])];
        in_table(name, ChainType::Nat, rules)
    };
    let packet = to("192.0.2.1:53");
    let of = |chains: Vec<Object>| evaluate(chains, &packet);
    let proxy = || nat("kube-proxy", 53, "10.0.0.7:8053");
    let error = of(vec![proxy(), nat("zzz", 53, "10.0.0.8:8053")]).unwrap_err();
    let text = "unknown: order of base chains ip zzz p and ip kube-proxy p, which have equal \
                priorities in hook prerouting";
    assert_eq!(error.to_string(), text);
    for other in [
        nat("zzz", 54, "10.0.0.8:8053"),
        nat("zzz", 53, "10.0.0.7:8053"),
        in_table("zzz", ChainType::Nat, Vec::new()),
        in_table("zzz", ChainType::Filter, vec![rule([accept()])]),
    ] {
        assert_eq!(of(vec![proxy(), other]).unwrap().len(), 1);
    }
    let filter = |name: &str, verdict| in_table(name, ChainType::Filter, vec![rule([verdict])]);
    let both = of(vec![filter("a", drop()), filter("b", drop())]).unwrap();
    assert_eq!(both[0].disposition, Disposition::Dropped);
    let differ = of(vec![filter("a", drop()), filter("b", reject())]);
    assert!(differ.is_err(), "the client gets an error at once or not");
}

#[test]
fn masquerading_by_two_programs_does_not_depend_on_their_order() {
    let masquerading = |name: &str, flags: NatFlags| {
        let table = TableId::new(FAMILY, Name::new(name).unwrap());
        let chain = Chain::new(table, Name::new("p").unwrap());
        let chain = chain.with_rules([rule([masquerade(flags)])]);
        let base = BaseChain::new(ChainType::Nat, Hook::Postrouting, 100);
        Object::from(chain.with_base(base))
    };
    let chains = [
        masquerading("cni", NatFlags::empty()),
        masquerading("kube-proxy", NatFlags::FULLY_RANDOM),
    ];
    let end = outcome(chains, &to("10.0.0.5:53"));
    assert_eq!(end.disposition, Disposition::Sent("eth1".into()));
}
