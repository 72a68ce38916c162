//! Rules by chain, as saved by a variant or planned in restore format.

use std::collections::BTreeMap;
use std::process::Command;

use proxy_core::{Engine, Family};
use vipline_iptables::Variant;

/// The tables that contain chains of the proxy.
const TABLES: [&str; 3] = ["filter", "mangle", "nat"];

/// Returns the saved rules of a variant and a family.
pub(super) fn save(variant: Variant, family: Family) -> String {
    let base = match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    };
    let mut text = String::new();
    for table in TABLES {
        let mut command = Command::new(format!("{base}-{variant}-save"));
        let output = command
            .args(["-t", table])
            .output()
            .expect("the program is installed");
        assert!(output.status.success(), "{output:?}");
        text += &String::from_utf8(output.stdout).expect("rules are text");
    }
    text
}

/// The rules of each chain of each table, in their order.
pub(super) type Chains = BTreeMap<(String, String), Vec<String>>;

/// Parses saved rules, or a plan in restore format.
pub(super) fn chains(text: &str) -> Chains {
    let mut chains = Chains::new();
    let mut table = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name.to_owned();
        } else if let Some(name) = line.strip_prefix(':') {
            let name = name.split(' ').next().expect("a line has a word");
            chains.insert((table.clone(), name.to_owned()), Vec::new());
        } else if let Some((verb @ ("-A" | "-I"), rule)) = line.split_once(' ') {
            let (chain, rule) = rule.split_once(' ').expect("a rule follows its chain");
            let rules = chains.entry((table.clone(), chain.to_owned())).or_default();
            match verb {
                "-A" => rules.push(rule.to_owned()),
                _ => rules.insert(0, rule.to_owned()),
            }
        }
    }
    chains.retain(|(_, chain), rules| chain.starts_with("KUBE-") || !rules.is_empty());
    // The order of Services varies.
    for ((_, chain), rules) in &mut chains {
        let shared = ["-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL"];
        if shared.iter().any(|end| chain.ends_with(end)) {
            let is_last = |rule: &String| rule.ends_with("-j KUBE-NODEPORTS");
            let is_behind = |pair: &[String]| is_last(&pair[0]) && !is_last(&pair[1]);
            assert!(!rules.windows(2).any(is_behind), "{chain}: {rules:#?}");
            rules.sort_by_key(|rule| (is_last(rule), rule.clone()));
        }
    }
    chains
}

/// Returns the part of a plan for a family.
fn plan_of(family: Family, plan: &str) -> &str {
    let (v4, v6) = plan
        .split_once("# ip6tables-restore")
        .expect("a plan of both families");
    match family {
        Family::V4 => v4,
        Family::V6 => v6,
    }
}

#[track_caller]
pub(super) fn assert_programmed(engine: &mut Engine, variant: Variant, name: &str) {
    let plan = engine.desired();
    for family in Family::ALL {
        let saved = chains(&save(variant, family));
        let planned = chains(plan_of(family, &plan));
        for (chain, rules) in &planned {
            assert_eq!(
                saved.get(chain),
                Some(rules),
                "{name} {variant} {family} {chain:?}"
            );
        }
        assert_eq!(saved.len(), planned.len(), "{name} {variant} {family}");
    }
}

/// Sorts the jumps in the built-in chains, whose order depends on the time of
/// insertion.
pub(super) fn sorted(mut chains: Chains) -> Chains {
    for ((_, chain), rules) in &mut chains {
        if !chain.starts_with("KUBE-") {
            rules.sort();
        }
    }
    chains
}
