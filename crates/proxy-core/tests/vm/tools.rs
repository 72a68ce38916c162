//! Comparison of the plan of mode ipvs with the output of system tools.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use proxy_core::Engine;
use serde_json::Value;

/// Runs a program and returns its output.
fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.expect("the program is there");
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

/// Runs a program and returns its output lines.
pub(crate) fn lines(program: &str, arguments: &[&str]) -> BTreeSet<String> {
    let text = output_of(program, arguments);
    text.lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Returns the rules in iptables-save lines by table and chain, in their order.
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

/// Returns the lines of the plan that start with one of `starts`.
fn planned(plan: &str, starts: &[&str]) -> BTreeSet<String> {
    let is_one = |line: &&str| starts.iter().any(|start| line.starts_with(start));
    plan.lines().filter(is_one).map(str::to_owned).collect()
}

fn assert_same(tool: &str, seen: &BTreeSet<String>, planned: &BTreeSet<String>) {
    let more: Vec<_> = seen.difference(planned).collect();
    let less: Vec<_> = planned.difference(seen).collect();
    assert!(
        more.is_empty() && less.is_empty(),
        "{tool}: more {more:#?}, less {less:#?}"
    );
}

/// Returns the lines of `iptables-nft-save` in both families, without comments.
pub(crate) fn saved_rules() -> Vec<String> {
    let programs = ["iptables-nft-save", "ip6tables-nft-save"];
    let text = programs.map(|program| output_of(program, &["-c"])).concat();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// Asserts that the system tools show the plan in the namespace of the calling thread.
pub(crate) fn assert_tools_see(engine: &mut Engine) {
    let plan = engine.desired();
    let sets = lines("ipset", &["save"]);
    // The kernel chooses the hash parameters of a set.
    let sets = sets.iter().map(|line| line.split(" bucketsize ").next());
    let sets = sets.flatten().map(str::to_owned).collect();
    let expected = planned(&plan, &["create ", "add "]);
    let expected = expected.into_iter().map(|line| line.replace("/32", ""));
    assert_same("ipset", &sets, &expected.collect());
    for program in ["iptables", "ip6tables"] {
        let heading = format!("# {program}-restore --noflush");
        let section = plan.lines().skip_while(|line| *line != heading).skip(1);
        let section = section.take_while(|line| !line.starts_with('#'));
        let saved = output_of(&format!("{program}-save"), &[]);
        let (seen, expected) = (rules_in(saved.lines()), rules_in(section));
        assert!(expected.len() > 10, "{program}: {expected:#?}");
        assert_eq!(seen, expected, "{program}");
    }
    let servers = planned(&plan, &["-A -t", "-A -u", "-A --sctp", "-a "]);
    assert_same("ipvsadm", &lines("ipvsadm", &["-Sn"]), &servers);
    let shown = output_of("ip", &["-j", "address", "show", "dev", "kube-ipvs0"]);
    let shown: Value = serde_json::from_str(&shown).expect("the output is JSON");
    let addresses = shown[0]["addr_info"]
        .as_array()
        .expect("a list of addresses");
    let addresses = addresses.iter().map(|address| {
        let text = address["local"].as_str().expect("an address");
        format!("{text}/{}", address["prefixlen"])
    });
    let addresses = addresses.collect();
    let expected = planned(&plan, &["address add "]);
    let expected = expected.iter().filter_map(|line| line.split(' ').nth(2));
    assert_same("ip", &addresses, &expected.map(str::to_owned).collect());
}
