//! Mode ipvs in a kernel that has IPVS: what tools see of it, and who gets a
//! packet.
#![cfg(feature = "ipvs")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the kernel judges what was programmed"
)]

mod fixtures;

mod rules;

mod stage;

mod cells;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use cells::{Row, compare, judge};
use fixtures::{apply, sync};
use proxy_core::{Config, Engine, Event, Mode};
use rules::Rules;
use stage::{Destination, Source, Stage, Web, config};
use testkit::netns::Netns;

use Destination::{ClusterIp, ExternalIp, LoadBalancer, NodePort};
use Source::{External, Localhost, Node, Pod};

/// Services of policy Cluster, external policy Local and internal policy Local.
///
/// A virtual server cannot tell from where packets come: with external policy
/// Local everybody is sent to the endpoints of the node, if there are any.
#[rustfmt::skip]
const MATRIX: [Row<3>; 13] = [
    (Pod,       ClusterIp,    ["all",    "all",    "local"]),
    (Pod,       NodePort,     ["all M",  "local",  "all M"]),
    (Pod,       LoadBalancer, ["all M",  "local",  "all M"]),
    (Pod,       ExternalIp,   ["all M",  "local",  "all M"]),
    (Node,      ClusterIp,    ["all M",  "all M",  "local M"]),
    (Node,      NodePort,     ["all M",  "local",  "all M"]),
    (Node,      LoadBalancer, ["all M",  "local",  "all M"]),
    (Node,      ExternalIp,   ["all M",  "local",  "all M"]),
    (Localhost, NodePort,     ["REJECT", "REJECT", "REJECT"]),
    (External,  ClusterIp,    ["all M",  "all M",  "local M"]),
    (External,  NodePort,     ["all M",  "local",  "all M"]),
    (External,  LoadBalancer, ["all M",  "local",  "all M"]),
    (External,  ExternalIp,   ["all M",  "local",  "all M"]),
];

/// Runs a program and returns the lines that it prints.
fn lines(program: &str, arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.expect("the program is there");
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    let text = String::from_utf8(output.stdout).expect("it prints text");
    text.lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
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
fn assert_tools_see(engine: &mut Engine) {
    let plan = engine.desired();
    let entries = lines("ipset", &["save"]);
    let entries = entries.into_iter().filter(|line| line.starts_with("add "));
    let expected = planned(&plan, &["add "]);
    let expected = expected.into_iter().map(|line| line.replace("/32", ""));
    assert_same("ipset", &entries.collect(), &expected.collect());
    let servers = planned(&plan, &["-A -t", "-A -u", "-A --sctp", "-a "]);
    assert_same("ipvsadm", &lines("ipvsadm", &["-Sn"]), &servers);
    let shown = lines("ip", &["-o", "address", "show", "dev", "kube-ipvs0"]);
    let addresses = shown
        .iter()
        .filter_map(|line| line.split_whitespace().nth(3));
    let addresses = addresses.map(str::to_owned).collect();
    let expected = planned(&plan, &["address add "]);
    let expected = expected.iter().filter_map(|line| line.split(' ').nth(2));
    assert_same("ip", &addresses, &expected.map(str::to_owned).collect());
}

fn open(config: &Config) -> Engine {
    let config = Config {
        mode: Mode::Ipvs,
        ..config.clone()
    };
    Engine::open(config).expect("the kernel has IPVS")
}

#[test]
fn what_is_planned_is_what_tools_see_and_a_restart_writes_nothing() {
    // A guest takes its time: these have all there is, but for what golden files
    // show as well.
    let chosen = [
        "overall",
        "udp-and-sctp",
        "source-ranges",
        "affinity-v6",
        "node-ports-all",
    ];
    let fixtures = fixtures::all();
    let fixtures = fixtures.iter().filter(|it| chosen.contains(&it.name));
    for fixture in fixtures {
        println!("{}", fixture.name);
        Netns::new().unwrap().run(|| {
            for edits in [None, Some(0)] {
                let mut engine = open(&fixture.config);
                apply(&mut engine, fixture.events.iter().cloned());
                engine.apply(Event::Synced);
                let difference = engine.difference().unwrap();
                if edits == Some(0) {
                    assert_eq!(difference.script, "", "{}", fixture.name);
                }
                let report = sync(&mut engine, &mut Duration::default());
                assert!(report.is_success(), "{}: {report}", fixture.name);
                assert_tools_see(&mut engine);
            }
        });
    }
}

#[test]
fn each_packet_takes_its_way() {
    let mut stage = Stage::new(Rules::Ipvs, config(Rules::Ipvs));
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [web(1), web(2).externally_local(), web(3).internally_local()];
    stage.sync(services.into_iter().flat_map(Web::events));
    compare(&stage, &MATRIX);
    judge(&stage, []);
}
