//! Tests of documents and the order of their lines.

use vipline_reconcile::diff;

use super::*;
use crate::ChainName;

fn table(name: &str) -> TableName {
    TableName::new(name).unwrap()
}

fn chain(name: &str, rules: &[&str]) -> Object {
    let name = ChainName::new(name).unwrap();
    Chain::new(table("nat"), name)
        .with_rules(rules.iter().collect())
        .into()
}

fn open(name: &str) -> Object {
    let name = ChainName::new(name).unwrap();
    Chain::new(table("nat"), name)
        .with_contents(Contents::SharedRules)
        .into()
}

fn entry(chain: &str, position: Position, rule: &str) -> Object {
    Object::from(SharedRule {
        table: table("nat"),
        chain: ChainName::new(chain).unwrap(),
        position,
        occurrence: 0,
        rule: rule.into(),
    })
}

fn document(installed: &[Object], desired: &[Object]) -> String {
    let edits = diff(installed.iter().cloned(), desired);
    Restore::from_edits(&edits).to_string()
}

#[test]
fn chains_are_declared_before_rules_jump_to_them() {
    let desired = [
        open("SERVICES"),
        entry("OUTPUT", Position::Head, "-j SERVICES"),
        entry("SERVICES", Position::Tail, "-j PORTS"),
        entry("SERVICES", Position::Head, "-d 10.96.0.1/32 -j SVC"),
        chain("SVC", &["-j SEP"]),
        chain("SEP", &["-j DNAT --to-destination 10.1.0.1:80"]),
        chain("PORTS", &[]),
    ];
    let expected = "*nat
:SVC - [0:0]
:SERVICES - [0:0]
:SEP - [0:0]
:PORTS - [0:0]
-A SEP -j DNAT --to-destination 10.1.0.1:80
-A SVC -j SEP
-I OUTPUT -j SERVICES
-A SERVICES -d 10.96.0.1/32 -j SVC
-A SERVICES -j PORTS
COMMIT
";
    assert_eq!(document(&[], &desired), expected);
    assert_eq!(document(&desired, &desired), "");
}

#[test]
fn a_change_names_only_the_edited_objects() {
    let services = open("SERVICES");
    let tail = entry("SERVICES", Position::Tail, "-j PORTS");
    let before = [
        services.clone(),
        tail.clone(),
        entry("SERVICES", Position::Head, "-d 10.96.0.1/32 -j SVC"),
        chain("SVC", &["-j SEP-1"]),
        chain("SEP-1", &[]),
    ];
    let after = [
        services,
        tail,
        entry("SERVICES", Position::Head, "-d 10.96.0.2/32 -j SVC"),
        chain("SVC", &["-j SEP-2"]),
        chain("SEP-2", &[]),
    ];
    let expected = "*nat
:SVC - [0:0]
:SEP-2 - [0:0]
:SEP-1 - [0:0]
-D SERVICES -d 10.96.0.1/32 -j SVC
-A SVC -j SEP-2
-I SERVICES -d 10.96.0.2/32 -j SVC
-X SEP-1
COMMIT
";
    assert_eq!(document(&before, &after), expected);
    let edits = diff(before.iter().cloned(), &after);
    assert_eq!(Restore::from_edits(&edits).chains(), 3);
}

#[test]
fn tables_are_sorted_by_name() {
    let in_table = |name: &str| {
        let chain = ChainName::new("CANARY").unwrap();
        Edit::Add(Object::from(Chain::new(table(name), chain)))
    };
    let edits = ["nat", "mangle", "filter"].map(in_table);
    let text = Restore::from_edits(&edits).to_string();
    let tables: Vec<_> = text.lines().filter(|line| line.starts_with('*')).collect();
    assert_eq!(tables, ["*filter", "*mangle", "*nat"]);
}

#[test]
fn no_section_jumps_to_a_missing_chain() {
    let names: Vec<_> = (0..9).map(|n| format!("C{n}")).collect();
    // Each chain jumps to the next one.
    let chains: Vec<_> = (0..9)
        .map(|n| match n {
            8 => chain("C8", &["-j ACCEPT"]),
            _ => chain(&names[n], &[&format!("-p tcp -j {}", names[n + 1])]),
        })
        .collect();
    for limit in 1..10 {
        for (installed, desired) in [(&[][..], &chains[..]), (&chains[..], &[][..])] {
            let edits = diff(installed.iter().cloned(), desired);
            let restore = Restore::in_sections(&edits, limit);
            assert_eq!(restore.sections(), 9_usize.div_ceil(limit));
            let mut there: HashSet<String> = match installed.len() {
                0 => HashSet::new(),
                _ => names.iter().cloned().collect(),
            };
            let mut jumps: HashMap<String, String> = match installed.len() {
                0 => HashMap::new(),
                _ => (0..8)
                    .map(|n| (names[n].clone(), names[n + 1].clone()))
                    .collect(),
            };
            for line in restore.to_string().lines() {
                if let Some(declared) = line.strip_prefix(':') {
                    let name = declared.split(' ').next().unwrap();
                    there.insert(name.to_owned());
                    jumps.remove(name);
                } else if let Some(rule) = line.strip_prefix("-A ") {
                    let (name, rule) = rule.split_once(' ').unwrap();
                    let target = jump_target(rule).unwrap();
                    assert!(target == "ACCEPT" || there.contains(target), "{restore}");
                    jumps.insert(name.to_owned(), target.to_owned());
                } else if let Some(name) = line.strip_prefix("-X ") {
                    assert!(!jumps.values().any(|target| target == name), "{restore}");
                    there.remove(name);
                }
            }
            assert_eq!(there.len(), desired.len());
        }
    }
}

#[test]
fn chains_in_a_cycle_are_written_once_each() {
    let chains = [chain("A", &["-j B"]), chain("B", &["-j A", "-g A"])];
    let edits = diff([], &chains);
    let text = Restore::in_sections(&edits, 1).to_string();
    assert_eq!(text.matches("\n-A ").count(), 3, "{text}");
}

#[test]
fn shared_rules_of_a_flushed_chain_are_not_deleted() {
    let before = [open("A"), entry("A", Position::Head, "-j RETURN")];
    let after = [chain("A", &["-j DROP"])];
    let expected = "*nat\n:A - [0:0]\n-A A -j DROP\nCOMMIT\n";
    assert_eq!(document(&before, &after), expected);
}

#[test]
fn the_jump_target_is_the_last_word_after_j_or_g() {
    for (rule, expected) in [
        ("-j SVC", Some("SVC")),
        ("-p tcp -m comment --comment \"a -j b\" -j SVC", Some("SVC")),
        ("-g SVC", Some("SVC")),
        ("-p tcp -j DNAT --to-destination 10.0.0.1", None),
        ("-m comment --comment x", None),
    ] {
        assert_eq!(jump_target(rule), expected, "{rule}");
    }
}
