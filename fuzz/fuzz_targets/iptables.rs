//! Parses arbitrary text as a document of iptables, and as a rule.

use vipline_iptables::{Family, Line, Rule, Tables};

/// Checks that a parsed rule survives a round trip.
fn check_rule(text: &str) {
    let Ok(rule) = Rule::parse(text) else {
        return;
    };
    let rules = Family::ALL.map(|family| rule.clone().for_family(family));
    for rule in rules.iter().chain([&rule]) {
        let printed = rule.to_string();
        let again = Rule::parse(&printed).expect("a printed rule is valid");
        assert_eq!(again.to_string(), printed);
    }
}

/// Checks one input.
pub(crate) fn run(text: &str) {
    check_rule(text);
    if let Ok(line) = Line::parse(text) {
        assert_eq!(line.text(), text.strip_suffix('\n').unwrap_or(text));
    }
    let Ok(tables) = Tables::parse(text) else {
        return;
    };
    assert_eq!(tables.to_string(), text);
    for table in &tables {
        for line in table.rules() {
            check_rule(line.spec());
            assert!(table.rules_of(line.chain()).any(|rule| rule == line));
        }
    }
}
