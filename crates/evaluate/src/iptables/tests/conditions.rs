//! Each match in a rule of chain `INPUT`.

use super::*;

#[test]
fn addresses_interfaces_and_protocols_are_compared() {
    assert_matches(
        &tcp("10.0.0.1:80"),
        &[
            ("-s 10.0.0.8/30", true),
            ("! -s 10.0.0.8/30", false),
            ("-d 10.0.0.1/32 -i eth+ -p tcp", true),
            ("-i eth1", false),
            ("! -p udp", true),
            ("-m iprange --src-range 10.0.0.2-10.0.0.9", true),
            ("-m iprange ! --dst-range 10.0.0.1-10.0.0.9", false),
            ("-m addrtype --dst-type LOCAL", true),
            ("-m addrtype ! --dst-type LOCAL --src-type UNICAST", false),
            (
                "-m addrtype --src-type UNICAST,LOCAL --dst-type LOCAL",
                true,
            ),
            ("-m addrtype --dst-type LOCAL --limit-iface-in", true),
            ("-m rpfilter", true),
            ("-m rpfilter --invert", false),
        ],
    );
    let other = Packet::udp(end("10.0.0.9:1"), end("10.1.0.1:2")).with_input("eth0");
    let limited = "-m addrtype --dst-type LOCAL --limit-iface-in";
    assert_eq!(matches(limited, &other), Ok(false));
    let spoofed = Packet::udp(end("10.1.0.9:1"), end("10.0.0.1:2")).with_input("eth0");
    assert_eq!(matches("-m rpfilter", &spoofed), Ok(false));
    assert_eq!(matches("-m rpfilter --loose", &spoofed), Ok(true));
}

#[test]
fn transport_headers_are_compared() {
    assert_matches(
        &tcp("10.0.0.1:80"),
        &[
            ("-p tcp -m tcp --dport 80", true),
            ("-p tcp -m tcp ! --dport 80", false),
            ("-p tcp -m tcp --sport 1:100", false),
            ("-p tcp -m tcp --tcp-flags SYN,ACK SYN", true),
            ("-p tcp -m multiport --dports 22,79:81", true),
            ("-p tcp -m multiport ! --ports 80", false),
            ("-p tcp -m multiport --sports 80", false),
            ("-p udp -m udp --dport 80", false),
        ],
    );
    let addrs = ["10.0.0.9", "10.0.0.1"].map(|addr| addr.parse().unwrap());
    let echo = Packet::icmp(addrs[0], addrs[1], 8, 0).with_input("eth0");
    assert_matches(
        &echo,
        &[
            ("-p icmp -m icmp --icmp-type 8", true),
            ("-p icmp -m icmp ! --icmp-type 8", false),
            ("-p icmp -m icmp --icmp-type any", true),
            ("-p icmp -m icmp --icmp-type 3/1", false),
        ],
    );
    let sctp = Packet::with_protocol(132, end("10.0.0.9:1"), end("10.0.0.1:80"));
    let sctp = sctp.with_input("eth0");
    assert_eq!(matches("-p sctp -m sctp --dport 80", &sctp), Ok(true));
    let chunks = "-p sctp -m sctp --dport 80 --chunk-types any DATA";
    assert!(matches!(matches(chunks, &sctp), Err(Cause::Unknown(_))));
}

#[test]
fn options_of_tcp_are_searched() {
    let mut bytes = vec![0x45, 0, 0, 44, 0, 1, 0, 0, 64, 6, 0, 0];
    bytes.extend([10, 0, 0, 9, 10, 0, 0, 1, 1, 0, 0, 80]);
    bytes.extend([0; 8]);
    bytes.extend([0x60, 2, 0, 0, 0, 0, 0, 0, 2, 4, 5, 0xb4]);
    let packet = Packet::from_bytes(&bytes).unwrap().with_input("eth0");
    assert_matches(
        &packet,
        &[
            ("-p tcp -m tcp --tcp-option 2", true),
            ("-p tcp -m tcp ! --tcp-option 2", false),
            ("-p tcp -m tcp --tcp-option 8", false),
        ],
    );
}

#[test]
fn headers_are_compared_if_they_are_known() {
    let plain = tcp("10.0.0.1:80");
    let unknown = Cause::unknown("byte 8 of the network header");
    assert_eq!(matches("-m ttl --ttl-lt 64", &plain), Err(unknown));
    let packet = plain
        .with_ttl(63)
        .with_traffic_class(0xb9)
        .with_payload(b"abc");
    let frame = [&[2; 6][..], &[0x42, 1, 2, 3, 4, 5], &[8, 0]].concat();
    let packet = packet.with_link_header(&frame).with_packet_type(0);
    assert_matches(
        &packet,
        &[
            ("-m ttl --ttl-lt 64", true),
            ("-m ttl ! --ttl-eq 63", false),
            ("-m dscp --dscp 0x2e", true),
            ("-m tos --tos 0xb8/0xfc", true),
            ("-m ecn --ecn-ip-ect 1", true),
            ("-m length --length 43", true),
            ("-m length ! --length 0:100", false),
            ("-m mac --mac-source 42:01:02:03:04:05", true),
            ("-m pkttype --pkt-type multicast", false),
            ("-m mark --mark 0x0", true),
        ],
    );
}

#[test]
fn the_connection_is_compared() {
    let packet = tcp("10.0.0.1:80");
    assert_matches(
        &packet,
        &[
            ("-m conntrack --ctstate NEW", true),
            ("-m conntrack ! --ctstate NEW,RELATED", false),
            ("-m conntrack --ctdir ORIGINAL", true),
            ("-m conntrack --ctdir REPLY", false),
            (
                "-m conntrack --ctorigdst 10.0.0.0/24 --ctorigdstport 80",
                true,
            ),
            ("-m conntrack --ctproto 17", false),
            ("-m connmark --mark 0x0", true),
            ("-m state --state NEW", true),
        ],
    );
    let untracked = packet.clone().with_tracking(Tracking::Untracked);
    assert_matches(
        &untracked,
        &[
            ("-m conntrack --ctstate UNTRACKED", true),
            ("-m conntrack --ctdir ORIGINAL", false),
            ("-m conntrack --ctstate UNTRACKED --ctdir REPLY", true),
            ("-m connmark --mark 0x0", false),
        ],
    );
    let mut connection = Connection::new(&packet);
    connection.mark = 5;
    connection.status = CtStatus::DNAT | CtStatus::ASSURED;
    let known = packet.with_tracking(Tracking::Known {
        connection: Box::new(connection),
        state: CtState::ESTABLISHED,
        direction: Direction::Original,
    });
    assert_matches(
        &known,
        &[
            ("-m conntrack --ctstate RELATED,ESTABLISHED", true),
            ("-m conntrack --ctstate DNAT", true),
            ("-m conntrack --ctstate SNAT", false),
            ("-m conntrack --ctstatus ASSURED", true),
            ("-m conntrack ! --ctstatus EXPECTED", true),
            ("-m connmark --mark 0x1/0x1", true),
            ("-m connmark ! --mark 0x5", false),
        ],
    );
    let expire = matches("-m conntrack --ctexpire 5", &known);
    assert!(matches!(expire, Err(Cause::Unknown(_))));
}

#[test]
fn a_lookup_in_a_set_has_the_values_of_each_dimension() {
    let packet = tcp("10.0.0.1:80").with_mark(7);
    let environment = Answers(host(), |question| match question {
        Question::Set(lookup) => {
            assert_eq!((lookup.name, lookup.return_nomatch), ("pods", false));
            let entry = lookup.entry;
            assert_eq!((entry.protocol, entry.mark), (6, 7));
            let fields = entry.fields.iter();
            let fields = fields.map(|it| (it.is_source, it.addr.to_string(), it.port));
            let expected = [
                (true, "10.0.0.9".to_owned(), Some(40_000)),
                (false, "10.0.0.1".to_owned(), Some(80)),
            ];
            assert!(fields.eq(expected));
            assert_eq!(entry.fields[0].interface.as_deref(), Some("eth0"));
            assert_eq!(entry.fields[1].interface, None);
            Some(true)
        }
        _ => None,
    });
    for (condition, expected) in [
        ("-m set --match-set pods src,dst", true),
        ("-m set ! --match-set pods src,dst", false),
    ] {
        assert_eq!(matches_with(condition, &packet, &environment), Ok(expected));
    }
    let counted = matches("-m set --match-set pods src --packets-gt 5", &packet);
    assert!(matches!(counted, Err(Cause::Unsupported(_))));
}

#[test]
fn recent_lists_are_compared_and_updated() {
    let packet = tcp("10.0.0.1:80");
    let listed = |is_listed| Answers(host(), move |_| Some(is_listed));
    let result = |rule: &str, is_listed| {
        let saved = format!("*filter\n-A INPUT {rule} -j DROP\nCOMMIT\n");
        let outcomes = evaluate(&saved, &packet, &listed(is_listed)).unwrap();
        let is_match = outcomes[0].disposition == Disposition::Dropped;
        (is_match, outcomes[0].lists.len())
    };
    let cases = [
        ("-m recent --set --name a", [(true, 1), (true, 1)]),
        ("-m recent ! --set --name a", [(false, 1), (false, 1)]),
        ("-m recent --rcheck --name a", [(false, 0), (true, 0)]),
        ("-m recent ! --rcheck --name a", [(true, 0), (false, 0)]),
        ("-m recent --update --name a", [(false, 0), (true, 1)]),
        ("-m recent --remove --name a", [(false, 0), (true, 1)]),
    ];
    for (rule, expected) in cases {
        assert_eq!([false, true].map(|it| result(rule, it)), expected, "{rule}");
    }
    // The first rule adds the address that the second finds; one packet is counted.
    let saved = "*filter\n-A INPUT -m recent --set --name a\n\
                 -A INPUT -m recent --rcheck --hitcount 2 --name a -j ACCEPT\n\
                 -A INPUT -m recent --rcheck --name a -j DROP\nCOMMIT\n";
    let outcomes = evaluate(saved, &packet, &listed(false)).unwrap();
    assert_eq!(outcomes[0].disposition, Disposition::Dropped);
}

#[test]
fn limits_are_assumptions() {
    let packet = tcp("10.0.0.1:80");
    let above = "-p tcp -m connlimit --connlimit-above 3";
    let upto = "-m hashlimit --hashlimit-upto 5/sec --hashlimit-mode srcip --hashlimit-name h";
    for (condition, over, under) in [
        ("-m limit --limit 5/sec", false, true),
        (above, true, false),
        (upto, false, true),
        ("-m quota --quota 100", false, true),
    ] {
        assert!(matches!(
            matches(condition, &packet),
            Err(Cause::Unknown(_))
        ));
        let with = |is_over| host().with_limits_exceeded(is_over);
        assert_eq!(
            matches_with(condition, &packet, &with(true)),
            Ok(over),
            "{condition}"
        );
        assert_eq!(
            matches_with(condition, &packet, &with(false)),
            Ok(under),
            "{condition}"
        );
    }
}

#[test]
fn each_packet_exceeds_a_limit_of_zero() {
    let packet = tcp("10.0.0.1:80");
    let environment = host().with_limits_exceeded(false);
    for (condition, expected) in [
        ("-p tcp -m connlimit --connlimit-above 0", true),
        ("-p tcp -m connlimit --connlimit-upto 0", false),
        ("-m quota --quota 0", false),
        ("-m quota ! --quota 0", true),
    ] {
        let is_match = matches_with(condition, &packet, &environment);
        assert_eq!(is_match, Ok(expected), "{condition}");
    }
}

#[test]
fn every_other_match_is_a_question_with_its_text() {
    let packet = tcp("10.0.0.1:80");
    for condition in [
        "-m socket --nowildcard",
        "-m physdev --physdev-is-bridged",
        "-m cpu --cpu 1",
        "-m ipvs --ipvs",
        "-m time --timestart 01:00:00",
    ] {
        let asked = std::cell::Cell::new(false);
        let environment = Answers(host(), |question| match question {
            Question::Match { text, .. } => {
                assert!(text.starts_with(condition), "{text}");
                asked.set(true);
                Some(true)
            }
            _ => None,
        });
        assert_eq!(matches_with(condition, &packet, &environment), Ok(true));
        assert!(asked.get(), "{condition}");
    }
}

#[test]
fn a_period_has_the_share_of_its_length() {
    let rule = "-m statistic --mode nth --every 3 --packet 0";
    let saved = format!("*filter\n-A INPUT {rule} -j DROP\nCOMMIT\n");
    let outcomes = evaluate(&saved, &tcp("10.0.0.1:80"), &host()).unwrap();
    let shares = outcomes.iter().map(|it| it.probability.to_string());
    assert!(shares.eq(["1/3", "2/3"]));
    let never = "-m statistic --mode random ! --probability 1.00000000000";
    assert_eq!(matches(never, &tcp("10.0.0.1:80")), Ok(false));
}

#[test]
fn the_time_of_the_packet_is_compared() {
    // 25 November 2026, 00:30:01 UTC, a Wednesday.
    let packet = tcp("10.0.0.1:80").with_time(1_795_566_601_000_000_000);
    assert_matches(
        &packet,
        &[
            ("-m time --timestart 00:30:01 --timestop 00:30:01", true),
            ("-m time --timestart 00:30:02 --timestop 23:00:00", false),
            ("-m time --timestart 23:00:00 --timestop 00:45:00", true),
            ("-m time --timestart 23:00:00 --timestop 00:15:00", false),
            ("-m time --weekdays Wed", true),
            ("-m time ! --weekdays Wed", false),
            (
                "-m time --timestart 23:00:00 --timestop 01:00:00 --weekdays Tue",
                false,
            ),
            (
                "-m time --timestart 23:00:00 --timestop 01:00:00 --weekdays Tue --contiguous",
                true,
            ),
            ("-m time --monthdays 24,25", true),
            ("-m time --monthdays 26", false),
            ("-m time --datestart 2026-11-25T00:30:02", false),
            ("-m time --datestop 2026-11-25T00:30:01", true),
        ],
    );
    let zone = matches("-m time --kerneltz --weekdays Wed", &packet);
    assert!(matches!(zone, Err(Cause::Unknown(_))));
}

#[test]
fn the_owner_of_a_socket_is_compared() {
    let packet = Packet::tcp(end("10.0.0.1:1"), end("10.0.0.9:80")).with_owner(5, 7);
    let is_dropped = |condition: &str, packet: &Packet| {
        let saved = format!("*filter\n-A OUTPUT {condition} -j DROP\nCOMMIT\n");
        outcome(&saved, packet).disposition == Disposition::Dropped
    };
    for (condition, expected) in [
        ("-m owner --uid-owner 0-5", true),
        ("-m owner --gid-owner 5", false),
        ("-m owner ! --socket-exists", false),
    ] {
        assert_eq!(is_dropped(condition, &packet), expected, "{condition}");
    }
}

#[test]
fn types_of_ipv6_addresses_are_compared() {
    let packet = Packet::udp(end("[fd00::9]:1"), end("[fd00::1]:2")).with_input("eth0");
    assert_matches(
        &packet,
        &[
            ("-m addrtype --dst-type LOCAL", true),
            ("-m addrtype --src-type LOCAL", false),
            (
                "-m addrtype --src-type UNICAST ! --dst-type MULTICAST",
                true,
            ),
            ("-m addrtype --dst-type UNICAST,LOCAL", true),
            ("-m hl --hl-eq 5", false),
        ][..4],
    );
    let hop = packet.with_ttl(5);
    assert_eq!(matches("-m hl --hl-eq 5", &hop), Ok(true));
}
