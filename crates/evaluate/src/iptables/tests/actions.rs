//! Each target.

use super::*;
use crate::RuleResult;

/// Evaluates a rule of chain `PREROUTING` of table mangle or nat.
fn prerouting(table: &str, target: &str, packet: &Packet) -> Outcome {
    let saved = format!("*{table}\n-A PREROUTING -p tcp {target}\nCOMMIT\n");
    outcome(&saved, packet)
}

#[test]
fn marks_are_set_and_copied() {
    let packet = || tcp("10.0.0.1:80").with_mark(0xf0);
    let marks = |target: &str| {
        let outcome = prerouting("mangle", target, &packet());
        (outcome.packet.mark(), outcome.connection.unwrap().mark)
    };
    for (target, expected) in [
        ("-j MARK --set-xmark 0x4000/0x4000", (0x40f0, 0)),
        ("-j MARK --set-xmark 0x1/0xff", (1, 0)),
        ("-j CONNMARK --set-xmark 0x5/0xffffffff", (0xf0, 5)),
        (
            "-j CONNMARK --save-mark --nfmask 0x70 --ctmask 0xff",
            (0xf0, 0x70),
        ),
        (
            "-j CONNMARK --restore-mark --nfmask 0xf --ctmask 0xf",
            (0xf0, 0),
        ),
        ("-j CONNMARK --restore-mark", (0, 0)),
    ] {
        assert_eq!(marks(target), expected, "{target}");
    }
}

#[test]
fn headers_are_changed() {
    let packet = || tcp("10.0.0.1:80").with_ttl(64).with_traffic_class(3);
    let byte = |target: &str, at| {
        let outcome = prerouting("mangle", target, &packet());
        let bytes = outcome
            .packet
            .read(vipline_nftables::expr::PayloadBase::Network, at, 1);
        bytes.unwrap().unwrap()[0]
    };
    assert_eq!(byte("-j DSCP --set-dscp 0x2e", 1), 0xbb);
    assert_eq!(byte("-j TOS --set-tos 0x10/0xff", 1), 0x10);
    assert_eq!(byte("-j TTL --ttl-dec 5", 8), 59);
    assert_eq!(byte("-j TTL --ttl-set 9", 8), 9);
}

#[test]
fn destinations_are_translated() {
    let packet = tcp("10.9.0.1:80");
    for (target, expected) in [
        ("-j DNAT --to-destination 10.1.0.2", "10.1.0.2:80"),
        ("-j DNAT --to-destination 10.1.0.2:8080", "10.1.0.2:8080"),
        (
            "-j DNAT --to-destination 10.1.0.2:5000-5010/78",
            "10.1.0.2:5002",
        ),
        ("-j REDIRECT --to-ports 81", "10.0.0.1:81"),
        ("-j NETMAP --to 10.1.0.0/24", "10.1.0.1:80"),
    ] {
        let outcome = prerouting("nat", target, &packet);
        let text = format!("tcp 10.0.0.9:40000 -> {expected}");
        assert_eq!(outcome.packet.to_string(), text, "{target}");
    }
    let saved = "*nat\n-A PREROUTING -p tcp -j DNAT --to-destination 10.1.0.2-10.1.0.4\nCOMMIT\n";
    let outcomes = evaluate(saved, &packet, &host()).unwrap();
    let shares = outcomes.iter().map(|it| it.probability.to_string());
    assert!(shares.eq(["1/3", "1/3", "1/3"]));
}

#[test]
fn sources_are_translated() {
    let packet = tcp("10.1.0.9:80");
    for (target, expected) in [
        ("-j SNAT --to-source 192.0.2.1", "192.0.2.1:40000"),
        ("-j SNAT --to-source 192.0.2.1:7", "192.0.2.1:7"),
        ("-j MASQUERADE", "10.1.0.1:40000"),
        ("-j MASQUERADE --random", "10.1.0.1:*"),
        ("-j NETMAP --to 192.0.2.0/24", "192.0.2.9:40000"),
    ] {
        let saved = format!("*nat\n-A POSTROUTING -p tcp {target}\nCOMMIT\n");
        let outcome = outcome(&saved, &packet);
        let text = format!("tcp {expected} -> 10.1.0.9:80");
        assert_eq!(outcome.packet.to_string(), text, "{target}");
    }
}

#[test]
fn destination_ports_are_compared_without_the_source_port_that_masquerading_selects() {
    for (protocol, name) in [(6, "tcp"), (17, "udp"), (132, "sctp")] {
        let packet = Packet::with_protocol(protocol, end("10.0.0.1:40000"), end("10.0.0.1:80"));
        for module in [name, "multiport"] {
            let saved = format!(
                "*nat\n-A POSTROUTING -p {name} -j MASQUERADE --random\nCOMMIT\n\
                 *filter\n-A INPUT -p {name} -m {module} --{port} 80 -j DROP\nCOMMIT\n",
                port = if module == name { "dport" } else { "dports" },
            );
            let outcome = outcome(&saved, &packet);
            assert_eq!(outcome.disposition, Disposition::Dropped, "{saved}");
            assert_eq!(outcome.packet.source_port(), None);
        }
    }
}

#[test]
fn packets_are_rejected_queued_and_untracked() {
    let end = |target: &str| {
        let saved = format!("*filter\n-A INPUT -p tcp {target}\nCOMMIT\n");
        outcome(&saved, &tcp("10.0.0.1:80")).disposition
    };
    assert_eq!(end("-j REJECT"), Disposition::Rejected(RejectType::Icmp(3)));
    let reset = end("-j REJECT --reject-with tcp-reset");
    assert_eq!(reset, Disposition::Rejected(RejectType::TcpReset));
    assert_eq!(end("-j NFQUEUE --queue-num 5").to_string(), "queued to 5");
    assert_eq!(end("-j LOG --log-prefix x"), Disposition::Delivered);
    for target in ["NOTRACK", "CT --notrack"] {
        let saved = format!("*raw\n-A PREROUTING -j {target}\nCOMMIT\n");
        assert_eq!(outcome(&saved, &tcp("10.0.0.1:80")).connection, None);
    }
}

#[test]
fn entries_of_sets_are_added_and_deleted() {
    let saved = "*filter\n-A INPUT -j SET --add-set seen src,dst --exist --timeout 5\n\
                 -A INPUT -j SET --del-set old src\n\
                 -A INPUT -m set --match-set seen src,dst -j DROP\nCOMMIT\n";
    let outcome = outcome(saved, &tcp("10.0.0.1:80"));
    // The third rule finds the entry that the first added.
    assert_eq!(outcome.disposition, Disposition::Dropped);
    let lists: Vec<String> = outcome
        .lists
        .iter()
        .map(|update| match update {
            ListUpdate::Set {
                name,
                op,
                entry,
                timeout,
            } => {
                let addrs: Vec<_> = entry.fields.iter().map(|it| it.addr.to_string()).collect();
                format!("{op:?} {name} {} {timeout:?}", addrs.join(","))
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        "Update seen 10.0.0.9,10.0.0.1 Some(5s)",
        "Delete old 10.0.0.9 None",
    ];
    assert_eq!(lists, expected);
}

#[test]
fn a_change_of_a_set_applies_to_later_lookups_with_the_same_key() {
    let saved = "*mangle\n-A INPUT -j SET --del-set old src\n-A INPUT -j MARK --set-mark 5\n\
                 -A INPUT -m set --match-set old src -j DROP\nCOMMIT\n";
    let packet = tcp("10.0.0.1:80");
    let same = |is_same: bool| {
        let environment = Answers(host(), move |question| match question {
            Question::SameEntry {
                set,
                changed,
                wanted,
            } => {
                assert_eq!((*set, changed.mark, wanted.mark), ("old", 0, 5));
                Some(is_same)
            }
            Question::Set(_) => Some(true),
            _ => None,
        });
        evaluate(saved, &packet, &environment).unwrap()[0]
            .disposition
            .clone()
    };
    assert_eq!(same(true), Disposition::Delivered);
    assert_eq!(same(false), Disposition::Dropped);
    let error = evaluate(saved, &packet, &host()).unwrap_err();
    let unknown = Cause::unknown("whether a change of IP set old applies to the packet");
    assert_eq!(error.cause, unknown);
}

#[test]
fn chains_are_called_and_left() {
    let saved = "*filter\n:INPUT DROP [0:0]\n:a - [0:0]\n:b - [0:0]\n-A INPUT -j a\n\
                 -A INPUT -p tcp -j ACCEPT\n-A a -p udp -j ACCEPT\n-A a -g b\n-A a -j DROP\n\
                 -A b -j RETURN\n-A b -j DROP\nCOMMIT\n";
    let outcome = outcome(saved, &tcp("10.0.0.1:80"));
    assert_eq!(outcome.disposition, Disposition::Delivered);
    let steps: Vec<_> = outcome
        .trace
        .rules()
        .map(|it| (it.text(), it.result != RuleResult::NoMatch))
        .collect();
    let expected = [
        ("-A INPUT -j a", true),
        ("-A a -p udp -j ACCEPT", false),
        ("-A a -g b", true),
        ("-A b -j RETURN", true),
        ("-A INPUT -p tcp -j ACCEPT", true),
    ];
    let expected = expected.map(|(text, is_match)| (text.to_owned(), is_match));
    assert_eq!(steps, expected);
}
