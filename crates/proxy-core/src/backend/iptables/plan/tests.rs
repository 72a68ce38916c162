//! Tests of single rules against their documentation, and of the rules of whole Services.

use std::sync::Arc;

use vipline_iptables::{Object, Position};
use vipline_service_model::{
    DetectLocal, Endpoint, Family, NodeView, PortName, Route, ServicePort, Transport,
};

use super::*;
use crate::backend::Planner as _;
use crate::backend::iptables::apply::installed::Installed;
use crate::{Config, Iptables};

/// Panics if the functions of a source file do not emit the rules in their docs.
///
/// `emitted` must contain all functions with rules in their docs.
#[track_caller]
fn assert_documented(source: &str, emitted: &[(&str, Vec<String>)]) {
    let mut functions = Vec::new();
    for doc in source.split("/// ```iptables\n").skip(1) {
        let (block, rest) = doc.split_once("/// ```\n").expect("a block ends");
        let lines = block
            .lines()
            .map(|line| line.trim_start().replacen("/// ", "", 1));
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        let function = rest.split_once("fn ").expect("a function follows").1;
        let (name, _) = function.split_once(['(', '<']).expect("it takes something");
        let found = emitted.iter().find(|(function, _)| *function == name);
        assert_eq!(found.map(|(_, text)| text), Some(&lines), "{name}");
        functions.push(name);
    }
    let expected: Vec<_> = emitted.iter().map(|(name, _)| *name).collect();
    assert_eq!(functions, expected);
}

/// Returns the rules of objects as commands.
fn commands(objects: &[Object]) -> Vec<String> {
    let command = |object: &Object| match object {
        Object::Chain(chain) => {
            let head = format!("-t {} -A {}", chain.table, chain.name);
            chain.rules().map(|rule| format!("{head} {rule}")).collect()
        }
        Object::SharedRule(entry) => {
            let is_jump = names::kind(entry.table.as_str(), entry.chain.as_str());
            let verb = match is_jump {
                names::Kind::System => "-I",
                _ => "-A",
            };
            let (table, chain) = (entry.table, entry.chain);
            vec![format!("-t {table} {verb} {chain} {}", entry.rule)]
        }
    };
    objects.iter().flat_map(command).collect()
}

/// Returns the commands that contain all of the words.
fn with(commands: &[String], words: &[&str]) -> Vec<String> {
    let has = |command: &&String| words.iter().all(|word| command.contains(word));
    commands.iter().filter(has).cloned().collect()
}

fn config() -> Config {
    Config::default()
        .with_detect_local(DetectLocal::ClusterCidr(vec![
            "10.0.0.0/14".parse().unwrap(),
        ]))
        .with_node_port_addresses(vipline_service_model::NodePortAddresses::All)
}

fn context(config: &Config) -> Context {
    let mut node = NodeView::new("node-1");
    node.addresses = vec!["192.168.0.1".parse().unwrap()];
    Context::new(&config.engine, &node, [], Family::V4)
}

/// Returns Service shop/web, port http, as in upstream's documents.
fn web(route: Route) -> ServicePort {
    let endpoint = |addr: [u8; 4], is_local| Endpoint {
        addr: addr.into(),
        port: 8080,
        is_local,
    };
    let both = [
        endpoint([10, 1, 0, 5], true),
        endpoint([10, 2, 0, 7], false),
    ];
    let has_endpoints = route != Route::Reject;
    let name = Arc::new(PortName {
        namespace: "shop".into(),
        service: "web".into(),
        port: "http".into(),
        protocol: Transport::Tcp,
        created: None,
    });
    ServicePort {
        internal: route,
        external: route,
        internal_policy_local: matches!(route, Route::Local | Route::Drop),
        external_policy_local: matches!(route, Route::Local | Route::Drop),
        cluster: if has_endpoints {
            Arc::new(both)
        } else {
            Arc::new([])
        },
        local: if route == Route::Local {
            Arc::new([both[0]])
        } else {
            Arc::new([])
        },
        endpoint_count: 2,
        ..ServicePort::new(name, [10, 96, 0, 20].into(), 80)
    }
}

/// Returns the same Service with external addresses.
fn exposed(route: Route) -> ServicePort {
    ServicePort {
        node_port: Some(30080),
        load_balancer_ips: Arc::new([[203, 0, 113, 9].into()]),
        source_ranges: Arc::new(["198.51.100.0/24".parse().unwrap()]),
        is_exposed: true,
        ..web(route)
    }
}

fn planned(cx: &Context, port: &ServicePort) -> Vec<Object> {
    Planner::default().port(cx, port).into_objects().collect()
}

fn of(port: &ServicePort) -> Vec<String> {
    commands(&planned(&context(&config()), port))
}

fn base_of(config: &Config) -> Vec<String> {
    commands(&Planner::from(config).base(&context(config)))
}

#[test]
fn base_rules_match_their_documentation() {
    let all = base_of(&config());
    let no_localhost = Config {
        iptables: Iptables {
            localhost_node_ports: false,
            ..Iptables::default()
        },
        ..config()
    };
    let no_localhost = base_of(&no_localhost);
    let primary =
        config().with_node_port_addresses(vipline_service_model::NodePortAddresses::Primary);
    let primary = base_of(&primary);
    let last = ["-A KUBE-SERVICES"];
    assert_documented(
        include_str!("base.rs"),
        &[
            ("jumps", with(&all, &[" -I "])),
            ("forward", with(&all, &["-A KUBE-FORWARD"])),
            ("firewall", with(&all, &["-A KUBE-FIREWALL"])),
            ("postrouting", with(&all, &["-A KUBE-POSTROUTING"])),
            ("mark_for_masquerading", with(&all, &["-A KUBE-MARK-MASQ"])),
            (
                "to_node_ports",
                [with(&no_localhost, &last), with(&primary, &last)].concat(),
            ),
        ],
    );
    assert_eq!(with(&no_localhost, &["-A KUBE-FIREWALL"]), [""; 0]);
}

#[test]
fn rules_of_a_port_match_their_documentation() {
    let plain = of(&web(Route::Cluster));
    let mut sticky = web(Route::Cluster);
    sticky.affinity = Some(10_800);
    let sticky = of(&sticky);
    let nobody = [of(&web(Route::Reject)), of(&web(Route::Drop))].concat();
    assert_documented(
        include_str!("port/mod.rs"),
        &[
            ("cluster_ip", with(&plain, &["-A KUBE-SERVICES"])),
            ("verdict", with(&nobody, &["-t filter"])),
            (
                "masquerade",
                with(&plain, &["-A KUBE-SVC-", "KUBE-MARK-MASQ"]),
            ),
            ("affinity", with(&sticky, &["-A KUBE-SVC-", "--rcheck"])),
            ("balance", with(&plain, &["-A KUBE-SVC-", "-j KUBE-SEP-"])),
        ],
    );
    let first = "KUBE-SEP-UZBLB3XX2HRLVOJ5";
    let dnat = |commands| with(commands, &[&format!("-A {first}"), "DNAT"]);
    assert_documented(
        include_str!("endpoint.rs"),
        &[
            (
                "hairpin",
                with(&plain, &[&format!("-A {first}"), "MARK-MASQ"]),
            ),
            ("dnat", [dnat(&plain), dnat(&sticky)].concat()),
        ],
    );
}

#[test]
fn external_rules_match_their_documentation() {
    let mut cluster = exposed(Route::Cluster);
    let within = "192.168.0.0/16".parse().unwrap();
    cluster.source_ranges = Arc::new([cluster.source_ranges[0], within]);
    cluster.external_ips = Arc::new([[192, 0, 2, 7].into()]);
    let mut refused = exposed(Route::Drop);
    refused.external_ips = Arc::clone(&cluster.external_ips);
    refused.health_check_node_port = Some(30999);
    let (all, refused) = (of(&cluster), of(&refused));
    let ext = "-A KUBE-EXT-";
    assert_documented(
        include_str!("port/external.rs"),
        &[
            (
                "external_ip",
                with(&all, &["-A KUBE-SERVICES", "external IP"]),
            ),
            ("load_balancer_ip", with(&all, &["-d 203.0.113.9/32"])),
            ("node_port", with(&all, &["-A KUBE-NODEPORTS"])),
            ("refuse", with(&refused, &["-A KUBE-EXTERNAL-SERVICES"])),
            (
                "health_check",
                with(&refused, &["-A KUBE-NODEPORTS", "health"]),
            ),
            ("masquerade", with(&all, &[ext, "masquerade"])),
            ("short_circuit", with(&refused, &[ext, "traffic for"])),
            ("source_ranges", with(&all, &["-A KUBE-FW-"])),
        ],
    );
}

#[test]
fn a_service_of_type_load_balancer_matches_the_worked_example() {
    let commands = of(&exposed(Route::Cluster));
    let mut expected: Vec<String> = include_str!("tests/web.txt")
        .lines()
        .map(Into::into)
        .collect();
    let mut commands = commands;
    commands.sort();
    expected.sort();
    assert_eq!(commands, expected);
}

#[test]
fn large_clusters_omit_the_comments_of_endpoints() {
    let cx = context(&config()).with_endpoints(1001);
    let mut port = exposed(Route::Cluster);
    port.affinity = Some(60);
    let large = commands(&planned(&cx, &port));
    assert_eq!(with(&large, &["->"]), [""; 0]);
    let sep = with(&large, &["-A KUBE-SEP-"]);
    assert_eq!(with(&sep, &["comment"]), [""; 0]);
    assert_eq!(with(&large, &["comment"]).len(), large.len() - 4 - 4 - 1);
    let small = context(&config()).with_endpoints(1000);
    assert_eq!(commands(&planned(&small, &port)), of(&port));
    assert!(Planner::default().requires_replan(&small, &cx));
}

/// Counts rules in the same way as upstream's metrics.
fn counts(objects: &[Object]) -> [usize; 2] {
    let count = |wanted: &str| {
        let of_table = objects.iter().filter_map(Planner::rule_count);
        let of_table = of_table.filter(|(table, _)| *table == wanted);
        of_table.map(|(_, count)| count).sum()
    };
    [count(names::FILTER), count(names::NAT)]
}

#[test]
fn rule_counts_equal_those_of_upstream() {
    let cx = context(&config());
    let endpoints = |count: u8| -> Arc<[Endpoint]> {
        let endpoint = |n: u8| Endpoint {
            addr: [10, 1, 0, n].into(),
            port: 8080,
            is_local: false,
        };
        (1..=count).map(endpoint).collect()
    };
    assert_eq!(counts(&Planner::default().base(&cx)), [4, 5]);
    for m in 0..20 {
        let with_endpoints = |mut port: ServicePort| {
            port.cluster = endpoints(m);
            port
        };
        let route = if m > 0 { Route::Cluster } else { Route::Reject };
        let cluster_ip = counts(&planned(&cx, &with_endpoints(web(route))));
        let mut balanced = exposed(route);
        balanced.external_ips = Arc::new([[192, 0, 2, 7].into()]);
        let balanced = counts(&planned(&cx, &with_endpoints(balanced)));
        let many = usize::from(m);
        match m {
            0 => {
                assert_eq!(cluster_ip, [1, 0]);
                assert_eq!(balanced, [4, 0]);
            }
            _ => {
                assert_eq!(cluster_ip, [0, 2 + 3 * many]);
                assert_eq!(balanced, [1, 10 + 3 * many]);
            }
        }
    }
}

#[test]
fn the_counting_rule_of_a_node_port_precedes_its_jump() {
    let objects = planned(&context(&config()), &exposed(Route::Cluster));
    let is_node_port = |object: &&Object| match object {
        Object::SharedRule(entry) => entry.chain == names::chain(names::NODEPORTS),
        Object::Chain(_) => false,
    };
    let planned: Vec<_> = objects.iter().filter(is_node_port).cloned().collect();
    let [Object::SharedRule(counts), Object::SharedRule(leads)] = &*planned else {
        panic!("a rule each: {planned:?}");
    };
    assert!(counts.rule.contains("nfacct"), "{planned:?}");
    assert_eq!(
        (counts.position, leads.position),
        (Position::Head, Position::Tail)
    );
    // As upstream orders them: the rules of each port are adjacent.
    let other = |rule: &str| rule.replace("30080", "30081");
    let rules = [
        counts.rule.to_string(),
        leads.rule.to_string(),
        other(&counts.rule),
        other(&leads.rule),
    ];
    let mut installed = Installed::new(layout::Layout::IPTABLES);
    let nat = names::table(names::NAT);
    installed.declare(nat, names::NODEPORTS);
    for rule in rules {
        installed.add(nat, names::NODEPORTS, || Some(rule));
    }
    let found = installed.into_objects();
    assert!(
        planned.iter().all(|object| found.contains(object)),
        "{found:?}"
    );
}
