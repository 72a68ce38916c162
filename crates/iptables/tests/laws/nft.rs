//! Encoded rules: every rule of the suite decodes to itself, decoded rules have the same
//! encoding, and no expressions cause a panic.

#[allow(dead_code, reason = "this test uses only families and texts")]
#[path = "../suite/cases.rs"]
mod cases;

#[path = "../kernel/rules/canonical.rs"]
mod canonical;

#[path = "../kernel/rules/encoded.rs"]
mod encoded;

#[allow(dead_code, reason = "this test uses only the rules")]
#[path = "../kernel/rules/ipvs.rs"]
mod ipvs;

#[path = "../kernel/rules/loose.rs"]
mod loose;

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use vipline_iptables::matches::Match;
use vipline_iptables::targets::Target;
use vipline_iptables::{Family, Transport, nft};
use vipline_nftables::expr::{Counter, Expr};
use vipline_nftables::{Bytes, Rule};

use super::rules::arbitrary::rule;

fn family() -> impl Strategy<Value = Family> {
    select(&Family::ALL[..])
}

/// Replaces all bytes after the first `keep`.
fn cut(bytes: &Bytes, keep: Index, rest: &[u8]) -> Bytes {
    let kept = &bytes[..keep.index(bytes.len() + 1)];
    Bytes::from(&*[kept, rest].concat())
}

/// Changes one value of an expression.
fn change(expr: &mut Expr, keep: Index, rest: &[u8], number: u32) {
    match expr {
        Expr::Match(one) => one.info = cut(&one.info, keep, rest),
        Expr::Target(target) => target.info = cut(&target.info, keep, rest),
        Expr::Cmp(cmp) => cmp.data = cut(&cmp.data, keep, rest),
        Expr::Range(range) => range.to = cut(&range.to, keep, rest),
        Expr::Payload(payload) => payload.len = number,
        Expr::Limit(limit) => (limit.rate, limit.unit) = (rest.len() as u64, number.into()),
        expr => *expr = Counter::default().into(),
    }
}

/// A table and rules for it.
type Rules = (&'static str, &'static [&'static str]);

/// Extensions without an encoding. A test fails for one that has an encoding.
const NOT_ENCODED: [&str; 3] = ["HMARK", "LED", "SECMARK"];

/// Returns the rules of the suite and the hand-written ones.
fn every_rule() -> impl Iterator<Item = (Family, &'static str)> {
    let cases = cases::cases().into_iter();
    let suite = cases.filter_map(|case| Some((case.family, case.saved.and(Some(case.text))?)));
    let lists = Family::ALL.into_iter().flat_map(|family| {
        let (tables, of_ipvs) = match family {
            Family::V4 => (
                &[canonical::V4, canonical::EXTENSIONS, encoded::V4, loose::V4][..],
                ipvs::V4,
            ),
            Family::V6 => (&[canonical::V6, encoded::V6, loose::V6][..], ipvs::V6),
        };
        let both = [canonical::BOTH, encoded::BOTH, loose::BOTH].into_iter();
        let tables = both.chain(tables.iter().copied()).flatten();
        let rules = tables.flat_map(|(_, rules)| *rules);
        let rules = rules.chain(ipvs::BOTH).chain(of_ipvs);
        rules.map(move |rule| (family, *rule))
    });
    suite.chain(lists)
}

/// Returns the names of the matches and of the target.
fn names(rule: &vipline_iptables::Rule<'_>) -> Vec<&'static str> {
    let matches = rule.matches.iter().filter_map(Match::name);
    let target = rule.target.as_ref().and_then(Target::name);
    matches.chain(target).collect()
}

#[test]
fn every_rule_of_the_suite_decodes_to_itself() {
    let sets = ["addresses", "services", "addresses6"];
    let sets = (7..).zip(sets.map(str::to_owned)).collect();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for (family, text) in every_rule() {
        let rule = vipline_iptables::Rule::parse(text).unwrap();
        let mut rule = rule.for_family(family);
        // Counts are no part of a decoded rule, and the nft variant drops this option.
        rule.counters = None;
        if let Some(Target::Nflog(log)) = &mut rule.target {
            log.range = None;
        }
        let names = names(&rule);
        let encoded = nft::encode_with_sets(&rule, family, &sets);
        let has_encoding = !names.iter().any(|name| NOT_ENCODED.contains(name));
        assert_eq!(encoded.is_ok(), has_encoding, "{family} {text} {encoded:?}");
        seen.extend(names);
        let Ok(encoded) = encoded else { continue };
        let decoded = nft::decode_with_sets(&encoded, family, &sets);
        let decoded = decoded.map(|rule| rule.for_family(family));
        if decoded.as_ref() != Some(&rule) {
            wrong.push(format!("{family} {rule:?}\nbecame {decoded:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let missing = Match::NAMES.iter().chain(Target::NAMES);
    let missing: Vec<_> = missing.filter(|name| !seen.contains(*name)).collect();
    assert!(missing.is_empty(), "no rule has {missing:?}");
}

#[test]
fn a_limit_with_a_unit_that_iptables_does_not_have_decodes_to_none() {
    let rule = vipline_iptables::Rule::parse("-m limit --limit 1/day").unwrap();
    let mut encoded = nft::encode(&rule, Family::V4).unwrap();
    for seconds in [0, 7, 86_401, 604_800, u64::MAX] {
        for expr in &mut encoded.exprs {
            if let Expr::Limit(limit) = expr {
                limit.unit = seconds;
            }
        }
        assert_eq!(nft::decode(&encoded, Family::V4), None, "{seconds}");
    }
}

#[test]
fn a_rule_that_counts_elsewhere_decodes_to_none() {
    let rule = vipline_iptables::Rule::parse("-j ACCEPT").unwrap();
    let encoded = nft::encode(&rule, Family::V4).unwrap();
    assert_eq!(nft::decode(&encoded, Family::V4), Some(rule));
    let [counter, accept] = <[Expr; 2]>::try_from(encoded.exprs).unwrap();
    for exprs in [
        vec![accept.clone(), counter.clone()],
        vec![counter.clone(), counter, accept.clone()],
        vec![accept],
    ] {
        assert_eq!(nft::decode(&Rule::from_exprs(exprs), Family::V4), None);
    }
}

#[test]
fn ports_require_the_protocol_of_their_match() {
    let can_encode = |protocol: &str, name: &str| {
        let transport = match name {
            "tcp" => Transport::Tcp,
            _ => Transport::Udp,
        };
        let rule = vipline_iptables::Rule::parse(protocol).unwrap();
        nft::encode(&rule.with_match(Match::dport(transport, 80)), Family::V4).is_ok()
    };
    for name in ["tcp", "udp"] {
        for protocol in ["", "-p tcp", "-p udp", "! -p tcp", "! -p udp", "-p icmp"] {
            let is_its_own = protocol == format!("-p {name}");
            assert_eq!(
                can_encode(protocol, name),
                is_its_own,
                "{protocol} -m {name}"
            );
        }
    }
}

#[test]
fn an_address_of_the_other_family_has_no_encoding() {
    let rules = [
        ("-s 10.0.0.1/32", "-s fd00::1/128"),
        (
            "-m conntrack --ctorigsrc 10.0.0.0/8",
            "-m conntrack --ctorigsrc fd00::/8",
        ),
        (
            "-m recent --set --name a --mask 255.0.0.0 --rsource",
            "-m recent --set --name a --mask ff00:: --rsource",
        ),
        (
            "-p tcp -j DNAT --to-destination 10.0.0.1:80",
            "-p tcp -j DNAT --to-destination [fd00::1]:80",
        ),
        (
            "-j SNAT --to-source 10.0.0.1",
            "-j SNAT --to-source fd00::1",
        ),
    ];
    for (v4, v6) in rules {
        for (text, family) in [(v4, Family::V4), (v6, Family::V6)] {
            let rule = vipline_iptables::Rule::parse(text).unwrap();
            let can_encode = |family| nft::encode(&rule, family).is_ok();
            let [v4, v6] = [Family::V4, Family::V6].map(can_encode);
            assert_eq!(
                (v4, v6),
                (family == Family::V4, family == Family::V6),
                "{text}"
            );
        }
    }
}

proptest! {
    #[test]
    fn an_encoded_rule_decodes_to_a_rule_with_the_same_encoding(rule in rule(), family in family()) {
        if let Ok(encoded) = nft::encode(&rule, family) {
            let decoded = nft::decode(&encoded, family);
            let again = decoded.map(|rule| nft::encode(&rule, family).unwrap().exprs);
            prop_assert_eq!(again, Some(encoded.exprs));
        }
    }

    #[test]
    fn no_change_of_expressions_makes_the_decoder_panic(
        rule in rule(),
        family in family(),
        at in any::<Index>(),
        keep in any::<Index>(),
        rest in vec(any::<u8>(), 0..20),
        number in 0..500_000_u32,
    ) {
        let Ok(Rule { mut exprs, .. }) = nft::encode(&rule, family) else {
            return Ok(());
        };
        let at = at.index(exprs.len());
        change(&mut exprs[at], keep, &rest, number);
        let _ = nft::decode(&Rule::from_exprs(exprs), family);
    }
}
