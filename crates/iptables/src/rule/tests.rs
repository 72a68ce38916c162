//! Tests of rules.

use super::*;
use crate::RuleProblem;
use crate::Transport;
use crate::matches::Mark;

#[test]
fn saved_rules_are_printed_unchanged() {
    let table = [
        "",
        "-j ACCEPT",
        r#"-d 10.96.0.20/32 -p tcp -m comment --comment "a/b cluster IP" -m tcp --dport 80 -j KUBE-SVC-X"#,
        "-s 10.0.0.0/255.0.255.0 ! -d 10.0.0.0/14 -i eth+ ! -o lo ! -p 200 ! -f -g X",
        "! -s 0.0.0.0/0 ! -i +",
        "-s fd00::1/128 -d ::0.1.0.0/128 -p ipv6-icmp",
        "-m comment --comment word -m comment --comment \"\" -j RETURN",
        "-m foo --bar \"-j\" x ! --baz -m mark --mark 0x1 -j FOO --opt \"a b\"",
        "-p tcp -m tcp --new-option 5 --dport 80 -j DROP",
        "-m mark --mark 0x1/x -j MARK --new 5",
        "-m iprange --src-range 10.0.0.1-10.0.0.5 -j TRACE",
    ];
    for text in table {
        assert_eq!(Rule::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn unsupported_parts_are_preserved_beside_typed_parts() {
    let other = |text| Match::Other(Cow::Borrowed(text));
    let table = [
        (
            "-p tcp -m tcp --new-option 5 --dport 80 -m mark --mark 0x1 -j FOO --opt \"a b\"",
            Rule::new()
                .with_protocol(Transport::Tcp)
                .with_match(other("-m tcp --new-option 5 --dport 80"))
                .with_match(Mark::is(1, u32::MAX))
                .with_target(Target::Other("-j FOO --opt \"a b\"".into())),
        ),
        (
            "-m mark -m foo x \"-j\" -j MARK --set-mark",
            Rule::new()
                .with_match(other("-m mark"))
                .with_match(other("-m foo x \"-j\""))
                .with_target(Target::Other("-j MARK --set-mark".into())),
        ),
        (
            "-j ULOG",
            Rule::new().with_target(Target::Other("-j ULOG".into())),
        ),
    ];
    for (text, rule) in table {
        assert_eq!(Rule::parse(text).as_ref(), Ok(&rule));
        assert_eq!(rule.to_string(), text);
    }
}

#[test]
fn order_and_aliases_of_options_are_normalized() {
    let table = [
        (
            "-m comment --comment x -m tcp -p tcp -d 10.0.0.1 --dport 80 -j X",
            "-d 10.0.0.1/32 -p tcp -m comment --comment x -m tcp --dport 80 -j X",
        ),
        (
            "--source 10.0.0.1 --dst 10.0.0.2/8 --in-interface a --out-interface b --protocol 6 --match tcp --jump ACCEPT",
            "-s 10.0.0.1/32 -d 10.0.0.0/8 -i a -o b -p tcp -m tcp -j ACCEPT",
        ),
        (
            "-p tcp --dport=80 --goto X",
            "-p tcp -m tcp --dport 80 -g X",
        ),
        (
            "-j ACCEPT -p udp -m udp \"--dport\" \"80\"",
            "-p udp -m udp --dport 80 -j ACCEPT",
        ),
        (
            "-p tcp -m tcp -m mark --mark 1 --dport 80",
            "-p tcp -m tcp --dport 80 -m mark --mark 0x1",
        ),
        (
            "-p tcp -m mark --mark 1 --dport 80",
            "-p tcp -m mark --mark 0x1 -m tcp --dport 80",
        ),
        (
            "-p udp --dport 80 -m udp",
            "-p udp -m udp --dport 80 -m udp",
        ),
        ("-s 0/0 -d ::/0 -i + -p all -j ACCEPT", "-j ACCEPT"),
        ("--fragment", "-f"),
        ("-s10.0.0.1 -jACCEPT", "-s 10.0.0.1/32 -j ACCEPT"),
        ("--jump=ACCEPT --protocol=tcp", "-p tcp -j ACCEPT"),
        (
            "--dest 10.0.0.1 --proto tcp --dpo 80",
            "-d 10.0.0.1/32 -p tcp -m tcp --dport 80",
        ),
        (
            "-p tcp -j DNAT --to 10.0.0.1:80",
            "-p tcp -j DNAT --to-destination 10.0.0.1:80",
        ),
        (
            "-p tcp -j DNAT --to=10.0.0.1:80",
            "-p tcp -j DNAT --to-destination 10.0.0.1:80",
        ),
        ("-p tcp --dport http", "-p tcp -m tcp --dport 80"),
        (
            "-m state --state NEW,ESTAB",
            "-m state --state NEW,ESTABLISHED",
        ),
        (
            "-j REJECT --reject icmp-ne",
            "-j REJECT --reject-with icmp-net-unreachable",
        ),
    ];
    for (text, printed) in table {
        assert_eq!(Rule::parse(text).unwrap().to_string(), printed);
    }
}

#[test]
fn unsupported_rules_are_preserved() {
    let table = [
        "-s host.example -j ACCEPT",
        "-4 -p tcp",
        "-p tcp --new 1",
        "-s 10.0.0.1 -s 10.0.0.2",
        "-j ACCEPT -j DROP",
        "-j A -g B",
        "! -p all",
        "-m mark -p tcp -j ACCEPT",
        "-m recent --set --name \"a b\" -p tcp",
        "! -m tcp",
        "-j MARK -s -m tcp",
        "-m mark --mark 1 -s host.example -j ACCEPT",
        "-j ACCEPT -m comment --comment",
    ];
    for text in table {
        let rule = Rule::parse(text).unwrap();
        assert_eq!(rule.to_string(), text);
        assert_eq!(rule.matches, [Match::Other(text.into())]);
    }
}

#[test]
fn rules_that_iptables_refuses_have_errors_with_a_position() {
    let table = [
        ("-m tcp --dport 80", "\"tcp\" at byte 3: requires -p tcp"),
        ("! -p tcp -m tcp", "\"tcp\" at byte 12: requires -p tcp"),
        (
            "-j ACCEPT -m recent --set --rttl",
            "\"--rttl\" at byte 26: requires --rcheck or --update",
        ),
        (
            "-i interface-with-long-name -j ACCEPT",
            "\"interface-with-long-name\" at byte 3: longer than 15 bytes",
        ),
        (
            "-j DNAT --to-destination 10.0.0.1:80",
            "\"DNAT\" at byte 3: requires -p tcp, udp, sctp, dccp or icmp",
        ),
        (
            "-j REJECT --reject-with tcp-reset",
            "\"REJECT\" at byte 3: requires -p tcp",
        ),
    ];
    for (text, error) in table {
        assert_eq!(Rule::parse(text).unwrap_err().to_string(), error);
    }
    let rule = Rule::new().with_match(crate::matches::Ttl::default());
    assert!(rule.check(Family::V4).is_ok());
    let error = rule.check(Family::V6).unwrap_err();
    assert_eq!(error.problem(), Some(RuleProblem::WrongFamily));
}

#[test]
fn lists_of_addresses_are_several_rules() {
    let rules = Rule::parse_all("-d 1.1.1.1,2.2.2.2 -s 1.2.3.4,4.4.4.4/8 -j DROP").unwrap();
    let printed: Vec<_> = rules.iter().map(Rule::to_string).collect();
    assert_eq!(
        printed,
        [
            "-s 1.2.3.4/32 -d 1.1.1.1/32 -j DROP",
            "-s 1.2.3.4/32 -d 2.2.2.2/32 -j DROP",
            "-s 4.0.0.0/8 -d 1.1.1.1/32 -j DROP",
            "-s 4.0.0.0/8 -d 2.2.2.2/32 -j DROP",
        ]
    );
    let rule = Rule::parse("-s 1.2.3.4,4.4.4.4 -j DROP").unwrap();
    assert!(matches!(&rule.matches[..], [Match::Other(_)]));
    let error = Rule::parse_all("! -s 1.2.3.4,4.4.4.4").unwrap_err();
    let text = "\"-s\" at byte 2: not allowed with several addresses";
    assert_eq!(error.to_string(), text);
}

#[test]
fn invalid_rules_have_errors_with_a_position() {
    let table = [
        ("-s", "\"-s\" at byte 0: missing value"),
        ("-p tcp !", "\"!\" at byte 7: missing value"),
        ("-p tcp foo", "\"foo\" at byte 7: expected an option"),
        ("-m foo \"a b", "\"\\\"a\" at byte 7: unclosed quote"),
        (
            "-m comment --comment \"a b",
            "\"\\\"a\" at byte 21: unclosed quote",
        ),
        ("-j ACCEPT -m", "\"-m\" at byte 10: missing value"),
    ];
    for (text, error) in table {
        assert_eq!(Rule::parse(text).unwrap_err().to_string(), error);
    }
}

#[test]
fn for_family_sets_defaults() {
    let rule = |text| Rule::parse(text).unwrap();
    let table = [
        (
            "-j REJECT",
            Family::V4,
            "-j REJECT --reject-with icmp-port-unreachable",
        ),
        (
            "-j REJECT",
            Family::V6,
            "-j REJECT --reject-with icmp6-port-unreachable",
        ),
        (
            "-m recent --set --name a",
            Family::V4,
            "-m recent --set --name a --mask 255.255.255.255 --rsource",
        ),
    ];
    for (text, family, printed) in table {
        assert_eq!(rule(text).for_family(family), rule(printed));
    }
}

#[test]
fn rules_are_built_in_one_expression() {
    let chain = ChainName::new("X").unwrap();
    let rule = Rule::new()
        .with_not_source(std::net::IpAddr::from([10, 0, 0, 1]))
        .with_in_interface("eth0")
        .with_protocol(Transport::Tcp)
        .with_comment("a b")
        .with_match(Match::dport(Transport::Tcp, 80..=90))
        .with_goto(chain);
    let text =
        "! -s 10.0.0.1/32 -i eth0 -p tcp -m comment --comment \"a b\" -m tcp --dport 80:90 -g X";
    assert_eq!(rule.to_string(), text);
    assert_eq!(Rule::parse(text), Ok(rule));
}
