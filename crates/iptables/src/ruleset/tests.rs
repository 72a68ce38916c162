//! Tests of rulesets.

use super::*;
use crate::{Command, Object, Restore, diff};

fn ruleset(text: &str) -> Ruleset {
    Ruleset::from_save(&Tables::parse(text).unwrap(), Family::V4, Variant::Nft).unwrap()
}

fn apply(rules: &mut Ruleset, command: &str) -> Result<(), Problem> {
    let command = Command::parse(command, Family::V4).unwrap().unwrap();
    rules.apply("nat", &command)
}

#[test]
fn commands_change_one_table() {
    let mut rules = Ruleset::new(Family::V4, Variant::Nft);
    for command in [
        "-N web",
        "-A web -p tcp -c 3 4 -j RETURN",
        "-I web -j ACCEPT",
        "-A OUTPUT -j web",
        "-E web www",
        "-P INPUT DROP",
        "-C OUTPUT -j www",
    ] {
        apply(&mut rules, command).unwrap();
    }
    assert_eq!(rules.tables().collect::<Vec<_>>(), ["nat"]);
    assert_eq!(rules.chain("nat", "www").unwrap().rules.len(), 2);
    assert_eq!(
        rules.chain("nat", "INPUT").unwrap().policy,
        Some(Policy::Drop)
    );
    assert_eq!(
        rules.to_save_with_counters(),
        "*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n\
         :POSTROUTING ACCEPT [0:0]\n:www - [0:0]\n[0:0] -A OUTPUT -j www\n\
         [0:0] -A www -j ACCEPT\n[3:4] -A www -p tcp -j RETURN\nCOMMIT\n"
    );
}

#[test]
fn rejected_commands_change_nothing() {
    let mut rules = ruleset("*nat\n:a - [0:0]\n:b - [0:0]\n-A a -j b\nCOMMIT\n");
    let before = rules.clone();
    let name = || Box::<str>::from("b");
    for (command, problem) in [
        ("-N b", Problem::ChainExists(name())),
        ("-X b", Problem::ChainInUse(name())),
        ("-X a", Problem::ChainNotEmpty("a".into())),
        ("-X", Problem::ChainNotEmpty("a".into())),
        ("-X INPUT", Problem::BuiltInChain("INPUT".into())),
        ("-P b DROP", Problem::PolicyOfUserChain(name())),
        ("-A a -j none", Problem::MissingChain("none".into())),
        ("-A none", Problem::MissingChain("none".into())),
        ("-D a -j ACCEPT", Problem::MissingRule),
        ("-C a -j ACCEPT", Problem::MissingRule),
        (
            "-D a 2",
            Problem::NumberTooLarge {
                chain: "a".into(),
                count: 1,
            },
        ),
        ("-R a 1 -s 10.0.0.1,10.0.0.2", Problem::SeveralRules),
    ] {
        assert_eq!(apply(&mut rules, command), Err(problem), "{command}");
        assert_eq!(rules, before, "{command}");
    }
    let unknown = rules.apply("other", &Command::Flush { chain: None });
    assert_eq!(unknown, Err(Problem::UnknownTable("other".into())));
}

#[test]
fn an_error_names_the_line_and_earlier_tables_are_changed() {
    let mut rules = Ruleset::new(Family::V4, Variant::Nft);
    let text = "*nat\n-N a\nCOMMIT\n# b\n*raw\n-N b\n-X c\nCOMMIT\n";
    let error = rules
        .restore(&Tables::parse(text).unwrap(), RestoreOptions::new())
        .unwrap_err();
    assert_eq!(error.to_string(), "line 7 (`-X c`): chain c does not exist");
    assert!(rules.chain("nat", "a").is_some() && rules.chain("raw", "b").is_none());
}

#[test]
fn a_hand_written_document_becomes_edits() {
    let before = ruleset("*filter\n:old - [0:0]\n-A INPUT -j old\nCOMMIT\n");
    let mut after = before.clone();
    let text = "*filter\n-I INPUT 1 -i lo -j ACCEPT\n-D INPUT -j old\n-X old\nCOMMIT\n";
    let document = Tables::parse(text).unwrap();
    after
        .restore(&document, RestoreOptions::new().with_noflush())
        .unwrap();
    let wanted: Vec<Object> = after.objects().unwrap();
    let edits = diff(before.objects().unwrap(), &wanted);
    assert_eq!(
        Restore::from_edits(&edits).to_string(),
        "*filter\n:old - [0:0]\n:INPUT ACCEPT [0:0]\n-F INPUT\n-A INPUT -i lo -j ACCEPT\n\
         -X old\nCOMMIT\n"
    );
}
