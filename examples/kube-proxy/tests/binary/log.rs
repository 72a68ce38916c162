//! The number of lines in the log, and of Events.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testkit::scoped::Process;

use crate::cluster::{Cluster, service};
use crate::health::{HEALTH_CHECK, load_balancer};
use crate::iptables::Node;
use crate::stage::{self, Stage, slice, wait_until};

/// Returns the manifest of a Service of one namespace with external IPs and ports.
fn claim(namespace: &str, name: &str, ip: &str, addresses: u8, ports: u16) -> String {
    let ips: Vec<_> = (1..=addresses).map(|it| format!("192.0.2.{it}")).collect();
    let ports = (1..=ports).map(|it| format!("{{name: p{it}, port: {it}}}"));
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  clusterIP: {ip}\n  externalIPs: [{}]\n  ports: [{}]\n",
        ips.join(", "),
        ports.collect::<Vec<_>>().join(", ")
    )
}

/// Returns the lines with a text.
fn lines(output: &str, text: &str) -> usize {
    output.lines().filter(|line| line.contains(text)).count()
}

/// Returns the sum of the numbers of lines that were left out.
fn omitted(output: &str, what: &str) -> usize {
    let numbers = output.lines().filter_map(|line| {
        let (before, _) = line.split_once(&format!(" more {what};"))?;
        before.rsplit(' ').next()?.parse::<usize>().ok()
    });
    numbers.sum()
}

/// Waits until `count` lines with a text were written or left out. On a busy machine they
/// come in more than one window of the limit.
fn wait_for_lines(proxy: &Process, text: &str, what: &str, count: usize) {
    wait_until(what, || {
        let output = proxy.output();
        lines(&output, text) + omitted(&output, what) == count
    });
    let written = lines(&proxy.output(), text);
    assert!(written <= 3 * 16, "{}", proxy.output());
}

#[test]
fn a_healthy_proxy_writes_nothing_about_its_changes() {
    let web = |count| stage::service("web", "10.96.0.10") + &slice("web", 1, count);
    let stage = Stage::with(&[("web.yaml", &web(1))]);
    let proxy = stage.start();
    for (line, count) in [(" synced ", 2), (" server started ", 2)] {
        wait_until(line, || lines(&proxy.output(), line) == count);
    }
    proxy.take_output();
    for change in 0..100 {
        let (count, is_there) = match change % 2 {
            0 => (2, true),
            _ => (1, false),
        };
        stage.write("web.yaml", &web(count));
        wait_until("the change", || {
            stage.ruleset().contains("10.244.1.2 ") == is_there
        });
    }
    // A health check port is opened, moved and closed.
    for (name, code) in [("web", 200), ("other", 200)] {
        stage.write("web.yaml", &load_balancer("node-1").replace("web", name));
        let expected = format!("\"name\": \"{name}\"");
        wait_until(name, || {
            let response = crate::health::get(&stage, HEALTH_CHECK, "/");
            response.code == code && response.body.contains(&expected)
        });
    }
    assert_eq!(proxy.output(), "");
    let other = proxy.terminate().unwrap();
    assert!(other.success());
}

#[test]
fn a_failure_and_its_end_are_logged_among_silent_changes() {
    let web = |count| stage::service("web", "10.96.0.10") + &slice("web", 1, count);
    let node = Node::with("nft", &[("web.yaml", &web(1))]);
    let proxy = node.stage().start_with("--iptables-sync-period 500ms");
    for (line, count) in [(" synced ", 2), (" server started ", 2)] {
        wait_until(line, || lines(&proxy.output(), line) == count);
    }
    let change = |count: u8| {
        node.stage().write("web.yaml", &web(count));
        let endpoint = format!("10.244.1.{count}:8080");
        wait_until(&endpoint, || node.rules().contains(&endpoint));
    };
    proxy.take_output();
    change(2);
    assert_eq!(proxy.output(), "");
    let broken = "case \"$*\" in *--noflush*) exit 1;; *) exec $real \"$@\";; esac\n";
    node.script("iptables-restore", broken);
    node.stage().write("web.yaml", &web(3));
    wait_until("a failure", || proxy.output().contains("sync failed"));
    node.script("iptables-restore", "exec $real \"$@\"\n");
    let recovery = "synced again after a failure family=IPv4";
    wait_until(recovery, || proxy.output().contains(recovery));
    let output = proxy.take_output();
    assert_eq!(lines(&output, "synced"), 1, "{output}");
    assert!(lines(&output, "WARN") > 0, "{output}");
    change(4);
    change(5);
    assert_eq!(proxy.output(), "");
}

#[test]
fn contested_addresses_are_a_bounded_number_of_lines() {
    let first = claim("shop", "first", "10.96.0.10", 40, 25);
    let stage = Stage::with(&[("first.yaml", &first)]);
    let proxy = stage.start();
    let second = claim("shop", "second", "10.96.0.11", 40, 25);
    stage.write("second.yaml", &second);
    wait_for_lines(&proxy, "claim this address", "contested addresses", 1000);
    assert!(proxy.output().contains("does not get"));
    assert!(proxy.terminate().unwrap().success());
}

/// Returns Services that each have a part that no program can read, and an address that is
/// none.
fn broken(count: usize) -> impl Iterator<Item = Value> {
    (0..count).map(|number| {
        let mut broken = service(&format!("s{number}"), &format!("10.96.1.{number}"));
        broken["spec"]["externalIPs"] = json!(["192.0.2.300"]);
        broken["spec"]["ports"] = json!([{"port": 80}, {"name": "bad", "port": "many"}]);
        broken
    })
}

#[test]
fn invalid_objects_are_a_bounded_number_of_lines() {
    let cluster = Cluster::with(broken(100));
    let proxy = cluster.start();
    wait_for_lines(&proxy, "not an IP address", "problems of objects", 100);
    let text = "using the rest of the object";
    wait_for_lines(&proxy, text, "unreadable objects", 100);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn health_check_ports_that_cannot_be_opened_are_a_bounded_number_of_lines() {
    let services = (0..60).map(|number| {
        let mut contender = service(&format!("s{number}"), &format!("10.96.1.{number}"));
        contender["spec"]["type"] = json!("LoadBalancer");
        contender["spec"]["externalTrafficPolicy"] = json!("Local");
        contender["spec"]["healthCheckNodePort"] = json!(HEALTH_CHECK);
        contender
    });
    let cluster = Cluster::with(services);
    let proxy = cluster.start();
    let text = "the port belongs to Service";
    wait_for_lines(&proxy, text, "failures of health check ports", 59);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_namespace_does_not_use_up_the_events_of_others() {
    let contender = |namespace: &str, name: &str, ip: &str| {
        let mut contender = service(name, ip);
        contender["metadata"]["namespace"] = json!(namespace);
        contender
    };
    // Services of one age are ordered by name, and so are their Events.
    let owner = [contender("a", "owner", "10.96.0.10")];
    let flood = (0..60).map(|number| contender("flood", &format!("s{number}"), "10.96.0.10"));
    let shop = ["one", "two"].map(|name| contender("shop", name, "10.96.0.10"));
    let cluster = Cluster::with(owner.into_iter().chain(flood).chain(shop));
    let proxy = cluster.start();
    let contested = || -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for event in cluster.server.events() {
            if event["reason"] == "AddressContested" {
                let namespace = event["metadata"]["namespace"].as_str().unwrap();
                *counts.entry(namespace.to_owned()).or_default() += 1;
            }
        }
        counts
    };
    let expected = BTreeMap::from([("flood".to_owned(), 8), ("shop".to_owned(), 2)]);
    wait_until("the Events", || contested() == expected);
    let what = "Services without an address of theirs";
    wait_for_lines(&proxy, "does not get", what, 62);
    assert!(proxy.terminate().unwrap().success());
}
