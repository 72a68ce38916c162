//! Parses arbitrary text as a document of iptables, as a rule and as a command, and
//! restores documents in rulesets.

use vipline_iptables::{Command, Family, Line, RestoreOptions, Rule, Ruleset, Tables, Variant};

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

/// Restores a document in a ruleset, with and without a flush.
fn restore(tables: &Tables<'_>) {
    for variant in Variant::ALL {
        let mut ruleset = Ruleset::new(Family::V4, variant);
        for options in [
            RestoreOptions::new().with_noflush().with_counters(),
            RestoreOptions::new(),
        ] {
            let _ = ruleset.restore(tables, options);
            let _ = ruleset.to_save_with_counters();
            let _ = ruleset.objects();
        }
    }
}

/// Checks one input.
pub(crate) fn run(text: &str) {
    check_rule(text);
    if let Ok(Some(command)) = Command::parse(text, Family::V4) {
        let _ = command.to_string();
    }
    if let Ok(line) = Line::parse(text) {
        assert_eq!(line.text(), text.strip_suffix('\n').unwrap_or(text));
    }
    let Ok(tables) = Tables::parse(text) else {
        return;
    };
    assert_eq!(tables.to_string(), text);
    restore(&tables);
    for table in &tables {
        for line in table.rules() {
            check_rule(line.spec());
            assert!(table.rules_of(line.chain()).any(|rule| rule == line));
        }
    }
}
