//! What tools print of what mode ipvs has programmed, beside the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use proxy_core::Engine;
use serde_json::Value;

/// Runs a program and returns what it prints.
fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.expect("the program is there");
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8(output.stdout).expect("it prints text")
}

/// Runs a program and returns the lines that it prints.
pub(crate) fn lines(program: &str, arguments: &[&str]) -> BTreeSet<String> {
    let text = printed(program, arguments);
    text.lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Returns the rules in lines of iptables, of each chain of each table in their
/// order.
fn rules_in<'a>(lines: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, Vec<&'a str>> {
    let (mut rules, mut table) = (BTreeMap::<_, Vec<_>>::new(), "");
    for line in lines {
        let words: Vec<_> = line.splitn(3, ' ').collect();
        match *words {
            [name] if name.starts_with('*') => table = name,
            ["-A", chain, rule] => rules
                .entry(table.to_owned() + chain)
                .or_default()
                .push(rule),
            ["-I", chain, rule] => {
                let chain = rules.entry(table.to_owned() + chain).or_default();
                chain.insert(0, rule);
            }
            _ => {}
        }
    }
    rules
}

/// Returns the lines of the plan that begin so.
fn planned(plan: &str, starts: &[&str]) -> BTreeSet<String> {
    let is_one = |line: &&str| starts.iter().any(|start| line.starts_with(start));
    plan.lines().filter(is_one).map(str::to_owned).collect()
}

fn assert_same(what: &str, seen: &BTreeSet<String>, planned: &BTreeSet<String>) {
    let more: Vec<_> = seen.difference(planned).collect();
    let less: Vec<_> = planned.difference(seen).collect();
    assert!(
        more.is_empty() && less.is_empty(),
        "{what}: more {more:#?}, less {less:#?}"
    );
}

/// Compares the plan with what tools print of the namespace.
pub(crate) fn assert_tools_see(engine: &mut Engine) {
    let plan = engine.desired();
    let sets = lines("ipset", &["save"]);
    // How a set is hashed is the kernel's.
    let sets = sets.iter().map(|line| line.split(" bucketsize ").next());
    let sets = sets.flatten().map(str::to_owned).collect();
    let expected = planned(&plan, &["create ", "add "]);
    let expected = expected.into_iter().map(|line| line.replace("/32", ""));
    assert_same("ipset", &sets, &expected.collect());
    for program in ["iptables", "ip6tables"] {
        let heading = format!("# {program}-restore --noflush");
        let section = plan.lines().skip_while(|line| *line != heading).skip(1);
        let section = section.take_while(|line| !line.starts_with('#'));
        let saved = printed(&format!("{program}-save"), &[]);
        let (seen, expected) = (rules_in(saved.lines()), rules_in(section));
        assert!(expected.len() > 10, "{program}: {expected:#?}");
        assert_eq!(seen, expected, "{program}");
    }
    let servers = planned(&plan, &["-A -t", "-A -u", "-A --sctp", "-a "]);
    assert_same("ipvsadm", &lines("ipvsadm", &["-Sn"]), &servers);
    let shown = printed("ip", &["-j", "address", "show", "dev", "kube-ipvs0"]);
    let shown: Value = serde_json::from_str(&shown).expect("it prints JSON");
    let addresses = shown[0]["addr_info"].as_array().expect("it lists them");
    let addresses = addresses.iter().map(|address| {
        let text = address["local"].as_str().expect("it has an address");
        format!("{text}/{}", address["prefixlen"])
    });
    let addresses = addresses.collect();
    let expected = planned(&plan, &["address add "]);
    let expected = expected.iter().filter_map(|line| line.split(' ').nth(2));
    assert_same("ip", &addresses, &expected.map(str::to_owned).collect());
}
