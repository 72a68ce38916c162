//! Tests with recorded output of `iptables-save` for the rules of many programs:
//! parsed documents print the same bytes.
//!
//! `captures/README.md` has the origin of each capture.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use ipnet::IpNet;
use vipline_iptables::matches::Match;
use vipline_iptables::targets::Target;
use vipline_iptables::{
    ChainName, Counters, Family, Line, Policy, Rule, RuleLine, Ruleset, Table, TableName, Tables,
    Transport, Variant,
};

/// The captures, with their number of tables, chains and rules according to grep.
const CAPTURES: [(&str, usize, usize, usize); 22] = [
    ("calico-legacy-v4-counters", 4, 45, 76),
    ("calico-nft-v4", 4, 45, 76),
    ("cilium-legacy-v4-counters", 4, 24, 33),
    ("cilium-nft-v4", 4, 24, 33),
    ("docker-legacy-v4-counters", 2, 12, 45),
    ("docker-nft-v4", 2, 12, 45),
    ("docker-nft-v6", 2, 11, 33),
    ("fail2ban-legacy-v4-counters", 1, 8, 21),
    ("fail2ban-nft-v4", 1, 8, 21),
    ("fail2ban-nft-v6", 1, 8, 17),
    ("firewalld-legacy-v6-counters", 5, 224, 319),
    ("firewalld-nft-v4", 5, 224, 306),
    ("flannel-legacy-v4-counters", 2, 9, 10),
    ("flannel-nft-v4", 2, 9, 10),
    ("kube-proxy-legacy-v4", 3, 48, 98),
    ("kube-proxy-legacy-v6-counters", 3, 45, 82),
    ("kube-proxy-nft-v4", 3, 48, 98),
    ("kube-proxy-nft-v4-counters", 3, 48, 98),
    ("kube-proxy-nft-v6", 3, 45, 82),
    ("kube-router-legacy-v4-counters", 3, 20, 30),
    ("kube-router-nft-v4", 3, 20, 30),
    ("mixed-nft-v4", 3, 11, 2),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(format!("{name}.save"))).unwrap()
}

fn family(name: &str) -> Family {
    let is_v6 = name.contains("-v6");
    if is_v6 { Family::V6 } else { Family::V4 }
}

#[test]
fn every_capture_is_tested() {
    let files = fs::read_dir(folder()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<_> = names.filter(|name| name != "README.md").collect();
    let tested = CAPTURES.map(|(name, ..)| format!("{name}.save"));
    assert_eq!(names, BTreeSet::from(tested));
}

#[test]
fn captures_are_printed_as_the_same_bytes() {
    for (name, ..) in CAPTURES {
        let text = read(name);
        let tables = Tables::parse(&text).unwrap();
        assert_eq!(tables.to_string(), text, "{name}");
    }
}

#[test]
fn all_tables_chains_and_rules_of_captures_are_parsed() {
    for (name, tables, chains, rules) in CAPTURES {
        let text = read(name);
        let parsed = Tables::parse(&text).unwrap();
        let count = |what: fn(&Line<'_>) -> bool| parsed.lines().filter(|line| what(line)).count();
        assert_eq!(parsed.iter().count(), tables, "{name}");
        assert_eq!(
            count(|line| matches!(line, Line::Chain(_))),
            chains,
            "{name}"
        );
        assert_eq!(count(|line| matches!(line, Line::Rule(_))), rules, "{name}");
        assert_eq!(count(|line| matches!(line, Line::Command(_))), 0, "{name}");
        let counted =
            |line: &RuleLine<'_>| line.counters().is_some() == name.ends_with("-counters");
        for table in &parsed {
            TableName::new(table.name()).unwrap();
            assert!(table.rules().all(counted), "{name}");
            assert!(
                table.chains().all(|chain| chain.counters().is_some()),
                "{name}"
            );
            // Grouped by chain the rules have the same order, since a save is sorted
            // by chain.
            let by_chain = table.chains().flat_map(|chain| {
                ChainName::new(chain.name()).unwrap();
                table.rules_of(chain.name())
            });
            assert!(by_chain.count() == table.rules().count(), "{name}");
        }
    }
}

#[test]
fn rules_of_captures_are_printed_unchanged() {
    for (name, ..) in CAPTURES {
        let text = read(name);
        for table in &Tables::parse(&text).unwrap() {
            for line in table.rules() {
                let rule = line.rule().unwrap();
                assert_eq!(rule.to_string(), line.spec(), "{name}");
                assert_eq!(
                    rule.for_family(family(name)).to_string(),
                    line.spec(),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn rules_of_captures_are_typed() {
    let network = |text: &str| text.parse::<IpNet>().unwrap();
    let check = |capture, table, chain, place, wanted: Rule<'_>| {
        let text = read(capture);
        let tables = Tables::parse(&text).unwrap();
        let line = tables.get(table).unwrap().rules_of(chain).nth(place);
        assert_eq!(line.unwrap().rule().unwrap(), wanted, "{capture}");
    };
    let masquerade = Rule::new()
        .with_not_source(network("10.0.0.0/14"))
        .with_destination(network("10.96.0.20/32"))
        .with_protocol(Transport::Tcp)
        .with_comment("shop/web:http cluster IP")
        .with_match(Match::dport(Transport::Tcp, 80))
        .with_jump(ChainName::new("KUBE-MARK-MASQ").unwrap());
    let service = "KUBE-SVC-67NZLRHBNDSAWJRO";
    check("kube-proxy-nft-v4", "nat", service, 0, masquerade);

    let other_bridge = Rule::new()
        .with_not_source(network("172.31.0.0/16"))
        .with_out_interface("br-07b84ae0cb31")
        .with_target(Target::Drop);
    let isolation = "DOCKER-ISOLATION-STAGE-1";
    check("docker-nft-v4", "filter", isolation, 0, other_bridge);

    let loopback = Rule::new()
        .with_in_interface("lo")
        .with_target(Target::Accept);
    check("firewalld-nft-v4", "filter", "INPUT", 1, loopback);
}

#[test]
fn unsupported_parts_of_captures_are_listed() {
    let mut others = BTreeSet::new();
    for (name, ..) in CAPTURES {
        let text = read(name);
        for table in &Tables::parse(&text).unwrap() {
            for line in table.rules() {
                let rule = line.rule().unwrap();
                for one in &rule.matches {
                    if let Match::Other(other) = one {
                        others.insert(other.to_string());
                    }
                }
                if let Some(Target::Other(other)) = &rule.target {
                    others.insert(other.to_string());
                }
            }
        }
    }
    let others: Vec<_> = others.iter().map(String::as_str).collect();
    assert_eq!(others, [""; 0], "all parts of captures are typed");
}

#[test]
fn rulesets_of_captures_are_printed_unchanged() {
    for (name, ..) in CAPTURES {
        let text = read(name);
        let saved = Tables::parse(&text).unwrap();
        let ruleset = Ruleset::from_save(&saved, family(name), Variant::Nft).unwrap();
        let printed = match name.ends_with("-counters") {
            true => ruleset.to_save_with_counters(),
            false => ruleset.to_string(),
        };
        let printed = Tables::parse(&printed).unwrap();
        for table in &saved {
            let lines =
                |table: &Table<'_>| table.lines().map(Line::text).collect::<Vec<_>>().join("\n");
            let again = printed.get(table.name()).unwrap();
            assert_eq!(lines(again), lines(table), "{name}");
        }
    }
}

#[test]
fn chains_of_kube_proxy_have_their_rules() {
    let text = read("kube-proxy-nft-v4");
    let tables = Tables::parse(&text).unwrap();
    let names: Vec<_> = tables.iter().map(|table| table.name()).collect();
    assert_eq!(names, ["mangle", "filter", "nat"]);
    let specs = |table, chain| -> Vec<_> {
        let rules = tables.get(table).unwrap().rules_of(chain);
        rules.map(RuleLine::spec).collect()
    };
    assert_eq!(
        specs("nat", "KUBE-SEP-UZBLB3XX2HRLVOJ5"),
        [
            r#"-s 10.1.0.5/32 -m comment --comment "shop/web:http" -j KUBE-MARK-MASQ"#,
            r#"-p tcp -m comment --comment "shop/web:http" -m tcp -j DNAT --to-destination 10.1.0.5:8080"#,
        ]
    );
    assert_eq!(specs("filter", "INPUT").len(), 4);
    assert_eq!(specs("mangle", "KUBE-PROXY-CANARY"), [""; 0]);
}

#[test]
fn counters_of_captures_are_parsed() {
    let text = read("kube-proxy-legacy-v6-counters");
    let tables = Tables::parse(&text).unwrap();
    let filter = tables.get("filter").unwrap();
    let input = filter.chain("INPUT").unwrap();
    assert_eq!(input.policy(), Some(Policy::Accept));
    let counters = |packets, bytes| Some(Counters { packets, bytes });
    assert_eq!(input.counters(), counters(9, 1660));
    let rules = filter.rules_of("INPUT").map(RuleLine::counters);
    let packets: Vec<_> = rules.map(|counters| counters.unwrap().packets).collect();
    assert_eq!(packets, [9, 2, 9, 2]);
}

#[test]
fn policies_of_captures_are_parsed() {
    let text = read("docker-nft-v4");
    let tables = Tables::parse(&text).unwrap();
    let filter = tables.get("filter").unwrap();
    let policy = |chain| filter.chain(chain).unwrap().policy();
    assert_eq!(policy("INPUT"), Some(Policy::Accept));
    assert_eq!(policy("FORWARD"), Some(Policy::Drop));
    assert_eq!(policy("DOCKER-USER"), None);
}

#[test]
fn incompatible_tables_are_comments() {
    let text = read("mixed-nft-v4");
    let tables = Tables::parse(&text).unwrap();
    assert!(tables.get("nat").is_none());
    assert_eq!(tables.get("raw").unwrap().rules().count(), 0);
    let last = tables.lines().last();
    let notice = "# Table `nat' is incompatible, use 'nft' tool.";
    assert_eq!(last, Some(&Line::Comment(notice)));
}
