//! Single commands with the programs and over netlink.

use vipline_iptables::matches::Match;
use vipline_iptables::targets::Target;
use vipline_iptables::{
    Chain, ChainName, Command, Committed, Counters, Edit, Error, Family, Object, Position, Reason,
    Refusal, Restore, Rule, SaveOptions, SharedRule, SingleCommands, TableName, Tables, Transport,
    Variant,
};

use crate::lab::Lab;

fn ssh() -> Rule<'static> {
    Rule::new()
        .with_protocol(Transport::Tcp)
        .with_comment("it's \"ssh\"")
        .with_match(Match::dport(Transport::Tcp, 22))
        .with_target(Target::Accept)
}

fn names() -> (TableName, ChainName) {
    let chain = ChainName::new("WEB").unwrap();
    (TableName::FILTER, chain)
}

/// Returns the rules of chain WEB with their counters.
fn web(save: &str) -> Vec<&str> {
    let lines = save.lines();
    lines.filter(|line| line.contains("-A WEB")).collect()
}

#[test]
fn the_programs_change_one_rule() {
    let (filter, chain) = names();
    let drop = Rule::new().with_target(Target::Drop);
    for mut lab in Lab::all() {
        let (family, variant) = (lab.family, lab.variant);
        let Lab { netns, client, .. } = &mut lab;
        netns.run(|| {
            client.new_chain(filter, chain).unwrap();
            assert!(!client.check(filter, chain, &ssh()).unwrap());
            assert!(client.ensure(filter, chain, &ssh()).unwrap());
            assert!(!client.ensure(filter, chain, &ssh()).unwrap());
            client.append(filter, chain, &drop).unwrap();
            client.insert(filter, chain, 2, &Rule::new()).unwrap();
            let counted = Command::parse("[3:4] -A WEB -j RETURN", Family::V4).unwrap();
            client.run(filter, &counted.unwrap()).unwrap();
            // ip6tables-nft 1.8.9 ignores counters.
            let last = match (family, variant) {
                (Family::V6, Variant::Nft) => "[0:0] -A WEB -j RETURN",
                _ => "[3:4] -A WEB -j RETURN",
            };
            let saved = client
                .save_with(SaveOptions::new().with_counters())
                .unwrap();
            assert!(Tables::parse(&saved).unwrap().get("filter").is_some());
            let ssh = r#"-p tcp -m comment --comment "it\'s \"ssh\"" -m tcp --dport 22 -j ACCEPT"#;
            assert_eq!(
                web(&saved),
                [
                    &*format!("[0:0] -A WEB {ssh}"),
                    "[0:0] -A WEB",
                    "[0:0] -A WEB -j DROP",
                    last,
                ]
            );
            for rule in [&self::ssh(), &drop, &Rule::new()] {
                client.delete(filter, chain, rule).unwrap();
            }
            let reason = |result: Result<(), Error>| result.unwrap_err().reason();
            let missing = client.delete(filter, chain, &drop).unwrap_err();
            assert_eq!(missing.reason(), Some(Reason::MissingRule));
            assert!(
                missing
                    .to_string()
                    .contains(": `-D WEB -j DROP`: Bad rule (does a"),
                "{missing}"
            );
            assert_eq!(missing.committed(), Committed::No);
            assert_eq!(
                reason(client.new_chain(filter, chain)),
                Some(Reason::ChainExists)
            );
            let none = ChainName::new("NONE").unwrap();
            assert!(!client.check(filter, none, &drop).unwrap());
            assert_eq!(
                reason(client.append(filter, none, &drop)),
                Some(Reason::MissingChain)
            );
            assert_eq!(
                reason(client.insert(filter, chain, 9, &drop)),
                Some(Reason::NumberTooLarge)
            );
            client.flush_chain(filter, chain).unwrap();
            client.delete_chain(filter, chain).unwrap();
        });
        assert!(!lab.rules().contains("WEB"));
    }
}

#[test]
fn the_programs_set_initial_counters() {
    let (filter, chain) = names();
    for mut lab in Lab::all() {
        let (family, variant) = (lab.family, lab.variant);
        let Lab { netns, client, .. } = &mut lab;
        netns.run(|| {
            client.new_chain(filter, chain).unwrap();
            let rule = Rule::new().with_target(Target::Return);
            let rule = rule.with_counters(Counters {
                packets: 5,
                bytes: 6,
            });
            client.insert(filter, chain, 1, &rule).unwrap();
            let saved = client
                .save_with(SaveOptions::new().with_counters())
                .unwrap();
            // ip6tables-nft 1.8.9 ignores counters.
            let expected = match (family, variant) {
                (Family::V6, Variant::Nft) => "[0:0] -A WEB -j RETURN",
                _ => "[5:6] -A WEB -j RETURN",
            };
            assert_eq!(web(&saved), [expected]);
            // Counters do not select the rule.
            assert!(client.check(filter, chain, &rule).unwrap());
            client.delete(filter, chain, &rule).unwrap();
            assert!(!client.check(filter, chain, &rule).unwrap());
        });
    }
}

#[cfg(feature = "nft")]
#[test]
fn the_client_over_netlink_changes_one_rule() {
    use vipline_iptables::nft;
    use vipline_netlink::Errno;

    let (filter, chain) = names();
    let drop = Rule::new().with_target(Target::Drop);
    for family in Family::ALL {
        let mut lab = Lab::new(family, Variant::Nft);
        lab.restore(crate::lab::BEFORE).unwrap();
        let Lab { netns, client, .. } = &mut lab;
        netns.run(|| {
            let mut netlink = nft::Client::open(family).unwrap();
            assert!(!netlink.check(filter, chain, &drop).unwrap());
            netlink.new_chain(filter, chain).unwrap();
            assert!(!netlink.check(filter, chain, &drop).unwrap());
            assert!(netlink.ensure(filter, chain, &ssh()).unwrap());
            assert!(!netlink.ensure(filter, chain, &ssh()).unwrap());
            netlink.append(filter, chain, &drop).unwrap();
            netlink.insert(filter, chain, 2, &Rule::new()).unwrap();
            netlink.insert(filter, chain, 1, &Rule::new().with_target(Target::Return)).unwrap();
            let theirs = client.save_with(SaveOptions::new().with_table(filter).with_counters()).unwrap();
            let theirs: String = theirs
                .lines()
                .filter(|line| !line.starts_with('#'))
                .map(|line| format!("{line}\n"))
                .collect();
            assert_eq!(netlink.save(&[filter]).unwrap(), theirs);
            assert_eq!(web(&theirs).len(), 4);
            let counted = Rule::new().with_target(Target::Trace).with_counters(Counters { packets: 5, bytes: 6 });
            netlink.append(filter, chain, &counted).unwrap();
            let saved = client.save_with(SaveOptions::new().with_counters()).unwrap();
            assert_eq!(web(&saved)[4], "[5:6] -A WEB -j TRACE");
            assert!(netlink.check(filter, chain, &counted).unwrap());
            netlink.delete(filter, chain, &counted).unwrap();
            assert!(netlink.check(filter, chain, &drop).unwrap());
            netlink.delete(filter, chain, &drop).unwrap();
            let missing = netlink.delete(filter, chain, &drop).unwrap_err();
            assert_eq!(missing.errno(), Some(Errno::NOENT), "{missing}");
            let late = netlink.insert(filter, chain, 9, &drop).unwrap_err();
            assert_eq!(
                late.to_string(),
                "table filter: -I WEB 9 -j DROP: no such file or directory (the rule number is too large)"
            );
            netlink.flush_chain(filter, chain).unwrap();
            netlink.delete_chain(filter, chain).unwrap();
            assert!(!netlink.has_chain(filter, chain).unwrap());
        });
    }
}

/// Returns what the commands of a client refuse, in words.
fn refusals<C: SingleCommands>(client: &mut C) -> Vec<String> {
    let (filter, chain) = names();
    let none = ChainName::new("NONE").unwrap();
    let rule = Rule::new().with_target(Target::Drop);
    let jump = Rule::new().with_target(Target::Jump(chain));
    let nowhere = Rule::new().with_target(Target::Jump(ChainName::new("NOWHERE").unwrap()));
    let mut all = Vec::new();
    let mut note = |what: &str, result: Result<(), C::Error>| {
        let refusal = result.err().map(|error| {
            let kinds = [
                (error.is_not_found(), "not found"),
                (error.is_already_exists(), "exists"),
                (error.is_busy(), "busy"),
                (error.is_denied(), "denied"),
            ];
            let kinds = kinds.iter().filter(|(is, _)| *is);
            let words: Vec<&str> = kinds.map(|(_, word)| *word).collect();
            assert!(!words.is_empty(), "{what}: {error}");
            words.join(" and ")
        });
        all.push(format!("{what}: {}", refusal.as_deref().unwrap_or("ok")));
    };
    note("-N", client.new_chain(filter, chain));
    note("-A", client.append(filter, chain, &rule));
    note("-N again", client.new_chain(filter, chain));
    note(
        "-C after -N again",
        client.check(filter, chain, &rule).map(|it| assert!(it)),
    );
    note("-X with a rule", client.delete_chain(filter, chain));
    note(
        "-C after -X",
        client.check(filter, chain, &rule).map(|it| assert!(it)),
    );
    note("-F", client.flush_chain(filter, chain));
    note(
        "-A of a jump",
        client.append(filter, ChainName::INPUT, &jump),
    );
    note("-X with a jump", client.delete_chain(filter, chain));
    note(
        "-D of the jump",
        client.delete(filter, ChainName::INPUT, &jump),
    );
    note("-D without rule", client.delete(filter, chain, &rule));
    note("-I beyond the end", client.insert(filter, chain, 9, &rule));
    note("-A without target", client.append(filter, chain, &nowhere));
    let no_set = Rule::parse("-m set --match-set nothing src -j DROP").unwrap();
    for (what, rule) in [("-C without target", &nowhere), ("-C without set", &no_set)] {
        let checked = client.check(filter, chain, rule);
        note(what, checked.map(|it| assert!(!it)));
    }
    note("-X", client.delete_chain(filter, chain));
    note("-X again", client.delete_chain(filter, chain));
    note("-F without chain", client.flush_chain(filter, none));
    note("-A without chain", client.append(filter, none, &rule));
    note("-D without chain", client.delete(filter, none, &rule));
    note(
        "-C without chain",
        client.check(filter, none, &rule).map(|it| assert!(!it)),
    );
    all
}

#[test]
fn both_clients_refuse_the_same_commands() {
    let expected = [
        "-N: ok",
        "-A: ok",
        "-N again: exists",
        "-C after -N again: ok",
        "-X with a rule: busy",
        "-C after -X: ok",
        "-F: ok",
        "-A of a jump: ok",
        "-X with a jump: busy",
        "-D of the jump: ok",
        "-D without rule: not found",
        "-I beyond the end: not found",
        "-A without target: not found",
        "-C without target: ok",
        "-C without set: ok",
        "-X: ok",
        "-X again: not found",
        "-F without chain: not found",
        "-A without chain: not found",
        "-D without chain: not found",
        "-C without chain: ok",
    ];
    for mut lab in Lab::all() {
        let Lab { netns, client, .. } = &mut lab;
        let refused = netns.run(|| refusals(client));
        assert_eq!(refused, expected, "{} {}", lab.family, lab.variant);
    }
    #[cfg(feature = "nft")]
    for family in Family::ALL {
        let lab = Lab::new(family, Variant::Nft);
        lab.netns.run(|| {
            let mut client = vipline_iptables::nft::Client::open(family).unwrap();
            // A namespace of its own: there are no tables yet.
            assert_eq!(refusals(&mut client), expected, "{family} over netlink");
        });
    }
}

#[test]
fn a_changed_chain_loses_the_counters_that_shared_rules_keep() {
    let (filter, chain) = names();
    let kept = "-p tcp -m tcp --dport 22 -j ACCEPT";
    let whole = Chain::new(filter, chain).with_rules([kept, "-j DROP"].into_iter().collect());
    let shared = SharedRule {
        table: filter,
        chain,
        position: Position::Tail,
        occurrence: 0,
        rule: "-j DROP".into(),
    };
    let edits = [
        (Edit::Add(Object::from(whole)), "[0:0]"),
        (Edit::Add(Object::from(shared)), "[3:4]"),
    ];
    for variant in Variant::ALL {
        for (edit, counters) in &edits {
            let mut lab = Lab::new(Family::V4, variant);
            let before = format!("*filter\n:WEB - [0:0]\n[3:4] -A WEB {kept}\nCOMMIT\n");
            lab.restore(&before).unwrap();
            let Lab { netns, client, .. } = &mut lab;
            netns.run(|| {
                let edits = std::slice::from_ref(edit);
                client.restore(&Restore::from_edits(edits)).unwrap();
                let saved = client
                    .save_with(SaveOptions::new().with_counters())
                    .unwrap();
                let rules = [
                    format!("{counters} -A WEB {kept}"),
                    "[0:0] -A WEB -j DROP".to_owned(),
                ];
                assert_eq!(web(&saved), rules, "{variant}");
            });
        }
    }
}
