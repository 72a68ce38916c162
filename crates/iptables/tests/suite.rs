//! The rules of iptables' extension tests: how many are typed, refused and printed like
//! `iptables-save`.
//!
//! `suite/cases.rs` describes the files. `suite/exceptions` names the rules that differ,
//! with the reason.

#[path = "suite/cases.rs"]
mod cases;

use std::collections::BTreeSet;

use cases::{Case, cases};
use vipline_iptables::matches::Match;
use vipline_iptables::targets::Target;
use vipline_iptables::{ChainName, Rule, TableName, Variant};

/// Lines that differ, after comments with the reason.
const EXCEPTIONS: &str = include_str!("suite/exceptions");

/// Returns whether the rule names an object that only the kernel knows.
fn names_an_object(rule: &Rule<'_>) -> bool {
    let is_one = |one: &Match<'_>| matches!(one, Match::Nfacct(_) | Match::Set(_));
    rule.matches.iter().any(is_one) || matches!(rule.target, Some(Target::Set(_)))
}

fn is_typed(rule: &Rule<'_>) -> bool {
    let has_text = |one: &Match<'_>| matches!(one, Match::Other(_));
    !rule.matches.iter().any(has_text) && !matches!(rule.target, Some(Target::Other(_)))
}

/// Returns what differs from iptables, if anything.
fn difference(case: &Case) -> Option<String> {
    let rule = Rule::parse(case.text).map(|rule| rule.for_family(case.family));
    let rule = rule.and_then(|rule| rule.check(case.family).map(|()| rule));
    let rule = rule.and_then(|rule| {
        let table = TableName::new(case.table).expect("a table");
        let mut chains = case
            .chains
            .iter()
            .map(|chain| ChainName::new(chain).expect("a chain"));
        chains.try_for_each(|chain| rule.check_chain(table, chain))?;
        Ok(rule)
    });
    match (case.saved, rule) {
        (Some(_), Err(error)) => Some(format!("refused: {error}")),
        (Some(_), Ok(rule)) if !is_typed(&rule) => Some("untyped".to_owned()),
        (Some(saved), Ok(rule)) if rule.to_string() != saved => Some(format!("printed: {rule}")),
        // Test `suite` with a kernel applies these rules.
        (None, Ok(rule)) if names_an_object(&rule) => {
            Some("refused by the kernel: no such object".to_owned())
        }
        (None, Ok(rule)) if rule.check_variant(Variant::Legacy).is_err() => {
            Some("refused by the legacy variant".to_owned())
        }
        (None, Ok(rule)) if is_typed(&rule) => Some("accepted".to_owned()),
        _ => None,
    }
}

#[test]
fn rules_are_typed_refused_and_printed_like_iptables() {
    let lines = EXCEPTIONS.lines();
    let mut expected: BTreeSet<_> = lines.filter(|line| !line.starts_with('#')).collect();
    let mut counts = [
        ("untyped", 0),
        ("accepted", 0),
        ("printed", 0),
        ("refused: ", 0),
        ("refused by the kernel", 0),
        ("refused by the legacy variant", 0),
    ];
    let mut found = Vec::new();
    let cases = cases();
    for case in &cases {
        let Some(difference) = difference(case) else {
            continue;
        };
        let count = counts
            .iter_mut()
            .find(|(kind, _)| difference.starts_with(kind));
        count.unwrap().1 += 1;
        let Case {
            extension,
            family,
            table,
            text,
            ..
        } = case;
        let line = format!("{extension} {family:?} {table} {text}: {difference}");
        if !expected.remove(&*line) {
            found.push(line);
        }
    }
    let refused = cases.iter().filter(|case| case.saved.is_none()).count();
    testkit::figures!(
        "{} rules, of which iptables refuses {refused}: {counts:?}",
        cases.len()
    );
    assert!(found.is_empty(), "{found:#?}");
    assert!(expected.is_empty(), "no longer different: {expected:#?}");
}
