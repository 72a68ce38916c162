//! Printed rules equal the rules that both variants save.
//!
//! The lists and the suite contain every option of every typed match and target. The kernel of the
//! host must have all modules, except xt_ipvs.
//!
//! - `-j CT --timeout NAME`: creating the timeout object requires programs that are not installed.

#[path = "rules/canonical.rs"]
pub(crate) mod canonical;

#[path = "rules/encoded.rs"]
pub(crate) mod encoded;

#[path = "rules/ipvs.rs"]
pub(crate) mod ipvs;

#[path = "rules/loose.rs"]
pub(crate) mod loose;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use testkit::iptables::Programs;
use testkit::netns::Netns;
use vipline_iptables::matches::Match;
use vipline_iptables::targets::Target;
use vipline_iptables::{Client, Family, Rule, TableName, Variant, program_name};
use vipline_netlink::{Error, Protocol, Socket, attr, message};

use crate::suite::ESTIMATORS;
use crate::suite::cases::cases;

/// A table and rules for it.
pub(crate) type Rules = (&'static str, &'static [&'static str]);

/// The chain of the rules.
const CHAIN: &str = "RULES";

/// Creates the sets and nfacct objects that rules refer to.
pub(crate) fn prepare() {
    let sets = [
        ["addresses", "hash:ip", "inet"],
        ["services", "hash:ip,port", "inet"],
        ["addresses6", "hash:ip", "inet6"],
    ];
    for [name, kind, family] in sets {
        let ipset = Command::new("sh")
            .arg("-c")
            .arg("PATH=$PATH:/usr/sbin:/sbin exec ipset create \"$0\" \"$@\"")
            .args([name, kind, "counters", "family", family])
            .stdin(Stdio::null())
            .status();
        assert!(ipset.unwrap().success(), "{name}");
    }
    let kube_proxy = [
        "ct_state_invalid_dropped_pkts",
        "localhost_nps_accepted_pkts",
    ];
    for name in ["hits", "a b"].into_iter().chain(kube_proxy) {
        // NFNL_MSG_ACCT_NEW with NFACCT_NAME, after `struct nfgenmsg`.
        let mut payload = vec![0; 4];
        attr::put_str(&mut payload, 1, name);
        let mut socket = Socket::open(Protocol::NETFILTER).unwrap();
        let made = socket.request(7 << 8, message::NLM_F_CREATE, &payload, |_| {
            Ok::<_, Error>(())
        });
        made.unwrap();
    }
}

/// Loads rules and returns the saved rules.
pub(crate) fn saved(family: Family, variant: Variant, table: &str, rules: &[&str]) -> Vec<String> {
    let programs = Programs::new().unwrap();
    let [save, restore] = programs
        .variant(&format!("{}-{variant}", program_name(family)))
        .unwrap();
    let mut document = format!("*{table}\n:{CHAIN} - [0:0]\n:OTHER - [0:0]\n");
    for rule in rules {
        document += &format!("-A {CHAIN} {rule}\n");
    }
    document += "COMMIT\n";
    let text = Netns::new().unwrap().run(|| {
        prepare();
        let mut client = Client::open_at(save, restore).unwrap();
        client.restore(&ESTIMATORS).unwrap();
        client.restore(&document).unwrap();
        client.save(TableName::new(table).unwrap()).unwrap()
    });
    let start = format!("-A {CHAIN}");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
    let rules = lines.map(|rule| rule.strip_prefix(' ').unwrap_or(rule));
    rules.map(str::to_owned).collect()
}

/// Asserts that every rule is typed, printed unchanged and saved unchanged.
fn are_canonical(family: Family, tables: &[Rules]) {
    for (table, rules) in tables {
        for rule in *rules {
            let typed = Rule::parse(rule).unwrap();
            assert_eq!(typed.to_string(), *rule);
            assert!(!is_other(&typed), "{typed:?}");
            assert_eq!(typed.clone().for_family(family), typed, "{rule}");
        }
        for variant in Variant::ALL {
            let saved = saved(family, variant, table, rules);
            for (saved, rule) in saved.iter().zip(*rules) {
                assert_eq!(saved, rule, "{family} {variant}");
            }
            assert_eq!(saved.len(), rules.len());
        }
    }
}

/// Asserts that every rule is typed and saved in its printed form.
fn are_the_same(family: Family, tables: &[Rules]) {
    for (table, rules) in tables {
        for variant in Variant::ALL {
            let saved = saved(family, variant, table, rules);
            assert_eq!(saved.len(), rules.len());
            for (saved, rule) in saved.iter().zip(*rules) {
                let typed = Rule::parse(rule).unwrap();
                assert!(!is_other(&typed), "{typed:?}");
                assert_ne!(saved, rule, "it belongs to the canonical rules");
                assert_eq!(
                    typed.for_family(family).to_string(),
                    *saved,
                    "{family} {variant}: {rule}"
                );
            }
        }
    }
}

fn is_other(rule: &Rule<'_>) -> bool {
    let other = |one: &Match<'_>| matches!(one, Match::Other(_));
    rule.matches.iter().any(other) || matches!(rule.target, Some(Target::Other(_)))
}

#[test]
fn canonical_rules_are_saved_as_they_are_printed() {
    are_canonical(Family::V4, canonical::BOTH);
    are_canonical(Family::V6, canonical::BOTH);
    are_canonical(Family::V4, canonical::V4);
    are_canonical(Family::V4, canonical::EXTENSIONS);
    are_canonical(Family::V4, encoded::BOTH);
    are_canonical(Family::V6, encoded::BOTH);
    are_canonical(Family::V4, encoded::V4);
    are_canonical(Family::V6, encoded::V6);
    are_canonical(Family::V6, canonical::V6);
}

#[test]
fn every_match_and_target_has_a_canonical_rule() {
    let lists = [
        canonical::BOTH,
        canonical::V4,
        canonical::V6,
        canonical::EXTENSIONS,
    ];
    let rules = lists.into_iter().flatten().flat_map(|(_, rules)| *rules);
    let of_ipvs = [ipvs::BOTH, ipvs::V4, ipvs::V6].into_iter().flatten();
    let suite = cases().into_iter().filter_map(|case| case.saved);
    let suite: Vec<_> = suite.collect();
    let rules = rules.chain(of_ipvs).chain(&suite);
    let words: BTreeSet<(&str, &str)> = rules
        .flat_map(|rule| rule.split(' ').zip(rule.split(' ').skip(1)))
        .collect();
    let matches = Match::NAMES.iter().map(|name| ("-m", *name));
    let targets = Target::NAMES.iter().map(|name| ("-j", *name));
    let missing: Vec<_> = matches
        .chain(targets)
        .filter(|pair| !words.contains(pair))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn loose_rules_equal_their_saved_form() {
    are_the_same(Family::V4, loose::BOTH);
    are_the_same(Family::V6, loose::BOTH);
    are_the_same(Family::V4, loose::V4);
    are_the_same(Family::V6, loose::V6);
}
