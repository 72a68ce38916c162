//! Property tests of encoded rules: decoded rules have the same encoding, and no expressions cause
//! a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
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
        nft::encode(&rule.matching(transport.dport(80)), Family::V4).is_ok()
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
