//! Tests of objects against their documentation.

use std::collections::BTreeSet;
use std::sync::Arc;

use vipline_ipset::Object as SetObject;
use vipline_iptables::Object as RuleObject;
use vipline_reconcile::diff;
use vipline_service_model::{
    DetectLocal, Endpoint, NodePortAddresses, NodeView, PortName, Route, Scheduler, Transport,
};

use super::*;
use crate::Config;
use crate::backend::Planner as _;
use crate::backend::ipvs::apply::drain::Drain;

/// Returns the lines in the docs of functions.
fn documented(source: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for tool in ["iptables", "ipset", "ipvsadm", "sh"] {
        for block in source.split(&format!("/// ```{tool}\n")).skip(1) {
            let (block, _) = block.split_once("/// ```\n").expect("a block ends");
            let block = block
                .lines()
                .map(|line| line.trim().replacen("/// ", "", 1));
            lines.extend(block.filter(|line| !line.is_empty() && !line.contains('…')));
        }
    }
    lines
}

/// Returns the input lines of the tools.
fn lines(objects: impl IntoIterator<Item = Object>) -> Vec<String> {
    let of = |object: Object| match object {
        Object::Rule(RuleObject::Chain(chain)) => {
            let head = format!("-t {} -A {}", chain.table, chain.name);
            chain.rules().map(|rule| format!("{head} {rule}")).collect()
        }
        Object::Rule(RuleObject::SharedRule(entry)) => {
            let (table, chain) = (entry.table, entry.chain);
            let is_jump = names::kind(table.as_str(), chain.as_str()) == names::Kind::System;
            let verb = if is_jump { "-I" } else { "-A" };
            vec![format!("-t {table} {verb} {chain} {}", entry.rule)]
        }
        Object::Address(_) => vec![format!("ip {object}")],
        Object::Set(SetObject::Entry(_)) => vec![object.to_string(), format!("ipset {object}")],
        _ => vec![object.to_string()],
    };
    objects.into_iter().flat_map(of).collect()
}

fn config() -> Config {
    Config::default()
        .with_detect_local(DetectLocal::ClusterCidr(vec![
            "10.0.0.0/14".parse().unwrap(),
        ]))
        .with_node_port_addresses(NodePortAddresses::All)
}

fn context(config: &Config) -> Context {
    let mut node = NodeView::new("node-1");
    node.addresses = vec!["192.0.2.10".parse().unwrap()];
    Context::new(&config.engine, &node, [], Family::V4)
}

/// Returns Service shop/web, port http, as in upstream's documents.
fn web() -> ServicePort {
    let endpoint = |addr: [u8; 4], is_local| Endpoint {
        addr: addr.into(),
        port: 8080,
        is_local,
    };
    let both = [
        endpoint([10, 1, 0, 5], true),
        endpoint([10, 2, 0, 7], false),
    ];
    let name = Arc::new(PortName {
        namespace: "shop".into(),
        service: "web".into(),
        port: "http".into(),
        protocol: Transport::Tcp,
        created: None,
    });
    ServicePort {
        node_port: Some(30080),
        external_ips: Arc::new([[192, 0, 2, 7].into()]),
        load_balancer_ips: Arc::new([[203, 0, 113, 9].into()]),
        source_ranges: Arc::new(["198.51.100.0/24".parse().unwrap()]),
        internal: Route::Cluster,
        external: Route::Cluster,
        is_exposed: true,
        cluster: Arc::new(both),
        local: Arc::new([both[0]]),
        endpoint_count: 2,
        ..ServicePort::new(name, [10, 96, 0, 20].into(), 80)
    }
}

fn planned(cx: &Context, port: &ServicePort) -> Vec<String> {
    lines(port::objects(cx, Scheduler::RoundRobin, port).into_objects())
}

#[test]
fn objects_match_their_documentation() {
    let pods_unknown = config().with_detect_local(DetectLocal::ClusterCidr(Vec::new()));
    let all_masqueraded = config().with_masquerade_all(true);
    let mut emitted = BTreeSet::new();
    for config in [config(), pods_unknown, all_masqueraded] {
        emitted.extend(lines(base::objects(&context(&config), true)));
    }
    let cx = context(&config());
    let local = ServicePort {
        external: Route::Local,
        external_policy_local: true,
        ..web()
    };
    let sticky = ServicePort {
        affinity: Some(10_800),
        scheduler: Some(Scheduler::Maglev),
        ..web()
    };
    let open_to_node = ServicePort {
        source_ranges: Arc::new(["192.0.2.0/24".parse().unwrap()]),
        ..web()
    };
    let sctp = ServicePort {
        protocol: Transport::Sctp,
        ..web()
    };
    for port in [web(), local, sticky, open_to_node, sctp] {
        emitted.extend(planned(&cx, &port));
    }
    let sources = [
        (include_str!("base.rs"), 30),
        (include_str!("port.rs"), 16),
        (include_str!("endpoint.rs"), 2),
    ];
    for (source, least) in sources {
        let documented = documented(source);
        assert!(documented.len() >= least, "{documented:#?}");
        for line in documented {
            assert!(emitted.contains(&line), "{line}\nis not in\n{emitted:#?}");
        }
    }
}

#[test]
fn endpoints_follow_the_traffic_policies() {
    let cx = context(&config());
    let reals = |port: &ServicePort, at: &str| {
        let lines = planned(&cx, port);
        let of = |line: &&String| line.starts_with(&format!("-a -t {at} "));
        lines.iter().filter(of).count()
    };
    for (internal, external, at_cluster_ip, outside) in [
        (Route::Cluster, Route::Cluster, 2, 2),
        (Route::Local, Route::Cluster, 1, 2),
        (Route::Cluster, Route::Local, 2, 1),
        // No local endpoints: all traffic uses other nodes.
        (Route::Drop, Route::Drop, 2, 2),
    ] {
        let port = ServicePort {
            internal,
            external,
            ..web()
        };
        assert_eq!(reals(&port, "10.96.0.20:80"), at_cluster_ip);
        for at in ["192.0.2.7:80", "203.0.113.9:80", "192.0.2.10:30080"] {
            assert_eq!(reals(&port, at), outside, "{external:?} {at}");
        }
    }
}

#[test]
fn addresses_that_another_interface_has_are_not_bound() {
    let mut cx = context(&config());
    cx.addresses = ["192.0.2.10", "203.0.113.9"]
        .map(|text| text.parse().unwrap())
        .into();
    let lines = planned(&cx, &web());
    let bound = lines
        .iter()
        .filter(|line| line.starts_with("ip address add "));
    let bound: Vec<_> = bound.map(|line| line.split(' ').nth(3).unwrap()).collect();
    assert_eq!(bound, ["10.96.0.20/32", "192.0.2.7/32"]);
    assert!(!lines.contains(&"add KUBE-IPVS-IPS 203.0.113.9".into()));
    assert!(lines.contains(&"add KUBE-LOAD-BALANCER 203.0.113.9,tcp:80".into()));
}

#[test]
fn an_address_that_is_listed_twice_has_one_virtual_server() {
    let port = ServicePort {
        load_balancer_ips: web().external_ips,
        ..web()
    };
    let lines = planned(&context(&config()), &port);
    let servers = lines
        .iter()
        .filter(|line| line.starts_with("-A -t 192.0.2.7:80"));
    assert_eq!(servers.count(), 1);
    let keys: Vec<_> = port::objects(&context(&config()), Scheduler::RoundRobin, &port)
        .into_objects()
        .collect();
    let distinct: BTreeSet<_> = keys.iter().map(Object::to_string).collect();
    assert_eq!(keys.len(), distinct.len());
}

#[test]
fn an_external_ip_that_is_the_cluster_ip_is_a_cluster_ip() {
    let config = config();
    let mut port = web();
    // Policy Local for internal traffic leaves no endpoint; the other policy uses
    // terminating endpoints.
    port.protocol = Transport::Udp;
    port.internal = Route::Drop;
    port.external = Route::Cluster;
    port.serving_terminating = Arc::clone(&port.cluster);
    port.load_balancer_ips = Arc::default();
    port.external_ips = Arc::default();
    let plain = planned(&context(&config), &port);
    port.external_ips = [port.cluster_ip].into();
    port.load_balancer_ips = [port.cluster_ip].into();
    assert_eq!(planned(&context(&config), &port), plain);
}

#[test]
fn one_endpoint_replaced_is_two_commands_for_each_virtual_server() {
    let cx = context(&config());
    let plain = |last: u8| ServicePort {
        node_port: None,
        external_ips: Arc::new([]),
        load_balancer_ips: Arc::new([]),
        cluster: [1, last]
            .map(|last| Endpoint {
                addr: [10, 2, 0, last].into(),
                port: 8080,
                is_local: false,
            })
            .into(),
        local: Arc::new([]),
        ..web()
    };
    let objects =
        |port: &ServicePort| port::objects(&cx, Scheduler::RoundRobin, port).into_objects();
    let wanted: Vec<_> = objects(&plain(3)).collect();
    let steps = Steps::of(&diff(objects(&plain(2)), &wanted));
    assert!(steps.sets.is_empty() && steps.removed_sets.is_empty());
    assert!(steps.addresses.is_empty() && steps.removed_addresses.is_empty());
    assert!(steps.rules.is_empty());
    let edits = Drain::default().start(steps.servers);
    assert_eq!(
        vipline_ipvs::Commands::from_edits(&edits).to_string(),
        "-a -t 10.96.0.20:80 -r 10.2.0.3:8080 -m -w 1\n\
         -e -t 10.96.0.20:80 -r 10.2.0.2:8080 -m -w 0\n"
    );
}

#[test]
fn udp_endpoints_keep_their_flows_while_they_serve() {
    let port = ServicePort {
        protocol: Transport::Udp,
        node_port: None,
        external_ips: Arc::new([]),
        load_balancer_ips: Arc::new([]),
        ..web()
    };
    let [one, other] = [port.cluster[0], port.cluster[1]];
    let reals = |cluster: &[Endpoint], leaving: &[Endpoint]| -> Vec<String> {
        let port = ServicePort {
            cluster: cluster.into(),
            serving_terminating: leaving.into(),
            ..port.clone()
        };
        let planned = planned(&context(&config()), &port).into_iter();
        planned.filter(|line| line.starts_with("-a ")).collect()
    };
    let line = |last: &Endpoint, weight: u32| {
        let Endpoint { addr, port, .. } = last;
        format!("-a -u 10.96.0.20:80 -r {addr}:{port} -m -w {weight}")
    };
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    let expected = sorted(vec![line(&one, 1), line(&other, 0)]);
    assert_eq!(sorted(reals(&[one], &[other])), expected);
    // Without ready endpoints they also get new flows.
    assert_eq!(reals(&[other], &[other]), [line(&other, 1)]);
    let tcp = ServicePort {
        protocol: Transport::Tcp,
        serving_terminating: Arc::new([other]),
        cluster: Arc::new([one]),
        ..port.clone()
    };
    let lines = planned(&context(&config()), &tcp);
    assert!(!lines.iter().any(|line| line.contains("-w 0")), "{lines:?}");
}

#[test]
fn kernels_are_committed_in_an_order_without_gaps() {
    let objects: Vec<_> = base::objects(&context(&config()), true)
        .into_iter()
        .chain(port::objects(&context(&config()), Scheduler::RoundRobin, &web()).into_objects())
        .collect();
    let script = |edits: Vec<Edit<Object>>| Planner::script(Family::V4, edits, [].iter());
    let place = |script: &str, text: &str| {
        let place = script.find(text);
        place.unwrap_or_else(|| panic!("{text} is not in\n{script}"))
    };
    let (entry, rule) = ("KUBE-CLUSTER-IP 10.96.0.20", "*nat");
    let (server, address) = ("-A -t 10.96.0.20:80", "address add 10.96.0.20/32");
    let made = script(objects.iter().cloned().map(Edit::Add).collect());
    let places = [entry, rule, server, address].map(|text| place(&made, text));
    assert!(places.is_sorted(), "{made}");

    let gone = script(objects.into_iter().map(Edit::Remove).collect());
    let (server, address) = ("-D -t 10.96.0.20:80", "link delete kube-ipvs0");
    let places = [rule, address, server, "destroy KUBE-CLUSTER-IP"];
    let places = places.map(|text| place(&gone, text));
    assert!(places.is_sorted(), "{gone}");
}
