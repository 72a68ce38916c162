//! Property tests of rules: a printed rule parses to the same rule.

#[path = "rules/arbitrary.rs"]
pub(crate) mod arbitrary;

#[path = "rules/targets.rs"]
mod targets;

use arbitrary::{name, rule};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use vipline_iptables::{Family, Rule};

/// Words of rules, and other words.
const WORDS: &[&str] = &[
    "!",
    "-s",
    "-d",
    "-i",
    "-o",
    "-p",
    "-f",
    "-c",
    "2,3",
    "-m",
    "-j",
    "-g",
    "--source",
    "--match",
    "--jump",
    "10.0.0.1",
    "10.0.0.1/8",
    "0/0",
    "fd00::/64",
    "::/0",
    "eth+",
    "+",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "ipv6-icmp",
    "all",
    "comment",
    "--comment",
    "\"a b\"",
    "\"-j\"",
    "\"\"",
    "--comment=x",
    "conntrack",
    "--ctstate",
    "NEW",
    "RELATED,ESTABLISHED",
    "--ctproto",
    "--ctorigsrc",
    "--ctdir",
    "mark",
    "--mark",
    "0x1/0x1",
    "5",
    "--dport",
    "--sport",
    "80",
    "1:2",
    ":5",
    "0:65535",
    "--dport=80",
    "--syn",
    "--tcp-flags",
    "SYN,ACK",
    "ALL",
    "NONE",
    "multiport",
    "--dports",
    "80,443",
    "--ports",
    "statistic",
    "--mode",
    "random",
    "nth",
    "--probability",
    "0.5",
    "--every",
    "--packet",
    "recent",
    "--set",
    "--rcheck",
    "--name",
    "--seconds",
    "--reap",
    "--rdest",
    "--mask",
    "set",
    "--match-set",
    "src,dst",
    "--packets-eq",
    "limit",
    "--limit",
    "5/min",
    "--limit-burst",
    "owner",
    "--uid-owner",
    "1-5",
    "ipvs",
    "--ipvs",
    "--vaddr",
    "--vport",
    "--vmethod",
    "MASQ",
    "physdev",
    "--physdev-in",
    "--physdev-is-in",
    "state",
    "--state",
    "addrtype",
    "--dst-type",
    "LOCAL",
    "nfacct",
    "--nfacct-name",
    "--icmp-type",
    "ping",
    "3/1",
    "--chunk-types",
    "any",
    "DATA:iU",
    "ACCEPT",
    "DROP",
    "X",
    "REJECT",
    "--reject-with",
    "tcp-reset",
    "LOG",
    "--log-prefix",
    "--log-level",
    "MARK",
    "--set-xmark",
    "--or-mark",
    "CONNMARK",
    "--save-mark",
    "--nfmask",
    "--left-shift-mark",
    "MASQUERADE",
    "--random",
    "--to-ports",
    "DNAT",
    "--to-destination",
    "10.0.0.1:80",
    "[fd00::1]:80",
    "SNAT",
    "--to-source",
    "REDIRECT",
    "TPROXY",
    "--on-port",
    "--tproxy-mark",
    "CT",
    "--zone",
    "--ctevents",
    "new,mark",
    "SET",
    "--add-set",
    "--exist",
    "TRACE",
    "foo",
    "--foo",
    "-x",
    "=",
    "--=",
    "a\"b c\"",
    "\"",
    "\\",
    "ä",
];

/// Random sequences of words.
fn soup() -> impl Strategy<Value = String> {
    vec(
        (select(WORDS), select(&[" ", " ", " ", "  ", ""][..])),
        0..16,
    )
    .prop_map(|words| {
        let words = words.into_iter().flat_map(|(word, gap)| [word, gap]);
        words.collect()
    })
}

/// Fails if a parsed rule changes when it is printed and parsed again.
fn is_stable(text: &str) -> Result<(), TestCaseError> {
    let Ok(mut rule) = Rule::parse(text) else {
        return Ok(());
    };
    // Counters are not printed.
    rule.counters = None;
    let printed = rule.to_string();
    let again = Rule::parse(&printed);
    prop_assert_eq!(again.as_ref(), Ok(&rule), "{}", printed);
    for family in Family::ALL {
        let filled = rule.clone().for_family(family);
        let printed = filled.to_string();
        let again = Rule::parse(&printed);
        prop_assert_eq!(again.as_ref(), Ok(&filled));
        prop_assert_eq!(filled.clone().for_family(family), filled);
    }
    Ok(())
}

#[test]
fn a_match_after_a_target_with_unknown_options_preserves_the_rule_as_text() {
    let text = "-j multiport ! --dports 0 -m multiport --dports 0 -m unknown";
    is_stable(text).unwrap();
    assert_eq!(Rule::parse(text).unwrap().to_string(), text);
}

/// Rules of iptables' extension tests.
pub(crate) fn suite() -> Vec<&'static str> {
    let files = [
        include_str!("../suite/general.rules"),
        include_str!("../suite/matches-a-h.rules"),
        include_str!("../suite/matches-i-z.rules"),
        include_str!("../suite/targets.rules"),
    ];
    let lines = files.into_iter().flat_map(str::lines);
    let rules = lines.filter(|line| !line.starts_with('['));
    rules
        .map(|line| line[2..].split(" =>").next().unwrap())
        .collect()
}

#[test]
fn rules_of_the_suite_parse_to_stable_rules() {
    for text in suite() {
        is_stable(text).unwrap();
    }
}

/// Words whose order or abbreviation once changed the rule.
#[test]
fn unusual_words_parse_to_a_stable_rule() {
    for text in [
        "-p tcp -m connmark --dport 22 -m tcp --mark 0xffffffff",
        "-j OTHER --o",
        "-m unknown --dest 10.0.0.1",
    ] {
        is_stable(text).unwrap();
        assert_eq!(Rule::parse(text).unwrap().to_string(), text);
    }
}

proptest! {
    #[test]
    fn a_printed_rule_parses_to_the_same_rule(rule in rule()) {
        let text = rule.to_string();
        let again = Rule::parse(&text);
        prop_assert_eq!(again.as_ref(), Ok(&rule), "{}", text);
    }

    #[test]
    fn reordered_words_parse_to_a_stable_rule(rule in rule(), from in 0..20_usize, to in 0..20_usize) {
        let text = rule.to_string();
        let mut words: Vec<&str> = text.split(' ').collect();
        let (from, to) = (from % words.len(), to % words.len());
        words.swap(from, to);
        is_stable(&words.join(" "))?;
    }

    #[test]
    fn reordered_words_of_other_rules_parse_to_a_stable_rule(
        text in select(suite()),
        from in 0..20_usize,
        to in 0..20_usize,
    ) {
        let mut words: Vec<&str> = text.split(' ').collect();
        let (from, to) = (from % words.len(), to % words.len());
        words.swap(from, to);
        is_stable(&words.join(" "))?;
    }

    #[test]
    fn random_words_parse_to_a_stable_rule(text in soup()) {
        is_stable(&text)?;
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>(), name in name()) {
        is_stable(&text)?;
        is_stable(&format!("-m {name} {text}"))?;
    }
}
