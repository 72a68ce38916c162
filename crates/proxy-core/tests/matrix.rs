//! The packet matrix: who gets a packet, and whom he sees, from everywhere to
//! everywhere, judged by real connections and datagrams in both families.
//!
//! A cell is what [`Stage::seen`] says: `all` endpoints (one on the node and one
//! on another) or the `local` one, with `M` when they saw the node's address
//! for the client's own; `REJECT` for a refusal at once, `DROP` for silence.
//! Where modes differ it names a case of the differences, all of which are with
//! the judges.
#![cfg(all(feature = "nftables", feature = "iptables"))]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the kernel judges what was programmed"
)]

mod fixtures;

mod rules;

mod stage;

mod cells;

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use cells::{Row, cells, compare, compare_hairpin, compare_service, in_each_way, judge};
use fixtures::{ELSEWHERE, NODE};
use ipnet::IpNet;
use proxy_core::Config;
use rules::{LOCALHOST_ACCEPTED, Rules};
use stage::{
    Destination, LOCALHOST, OTHER_PORT, PORT, Source, Stage, TO_WORLD, WAYS, Way, Web, addresses,
    config, node_port, serve,
};
use testkit::link;
use testkit::traffic::{Ask, Protocol, Server};
use vipline_iptables::nfacct;
use vipline_service_model::{DetectLocal, NodePortAddresses, api};

use Destination::{ClusterIp, ExternalIp, LoadBalancer, NodePort};
use Source::{External, Localhost, Node, Pod};

rules::tests_of_rules! {
    all {
        each_packet_takes_its_way
        each_packet_takes_its_way_when_pods_cannot_be_told_from_others
        each_packet_takes_its_way_when_all_traffic_to_cluster_ips_is_masqueraded
        each_packet_takes_its_way_when_pods_cannot_be_told_and_all_is_masqueraded
        an_endpoint_that_reaches_itself_sees_the_node_and_another_sees_it
        what_nobody_here_serves_is_refused_or_dropped
        addresses_of_services_are_refused_or_dropped_where_nothing_is_served
        terminating_endpoints_serve_as_long_as_no_others_do
        only_sources_in_the_ranges_reach_a_load_balancer
        a_node_that_has_the_address_of_a_load_balancer_may_use_it_as_any_in_its_ranges
        node_ports_are_served_on_the_addresses_that_the_configuration_says
        policies_of_others_bind_what_mode_iptables_has_not_accepted
    }
    iptables {
        node_ports_are_served_on_the_loopback_addresses_that_the_configuration_says
        who_uses_a_node_port_by_a_loopback_address_is_counted
        hosts_nearby_do_not_reach_what_listens_on_loopback_addresses
    }
}

/// Services of policy Cluster, external policy Local and internal policy Local.
#[rustfmt::skip]
const MATRIX: [Row<3>; 13] = [
    (Pod,       ClusterIp,    ["all",    "all",    "local"]),
    (Pod,       NodePort,     ["all M",  "all",    "all M"]),
    (Pod,       LoadBalancer, ["all M",  "all",    "all M"]),
    (Pod,       ExternalIp,   ["all M",  "all",    "all M"]),
    (Node,      ClusterIp,    ["all M",  "all M",  "local M"]),
    (Node,      NodePort,     ["all M",  "all M",  "all M"]),
    (Node,      LoadBalancer, ["all M",  "all M",  "all M"]),
    (Node,      ExternalIp,   ["all M",  "all M",  "all M"]),
    (Localhost, NodePort,     ["localhost", "localhost", "localhost"]),
    (External,  ClusterIp,    ["all M",  "all M",  "local M"]),
    (External,  NodePort,     ["all M",  "local",  "all M"]),
    (External,  LoadBalancer, ["all M",  "local",  "all M"]),
    (External,  ExternalIp,   ["all M",  "local",  "all M"]),
];

/// What differs when pods cannot be told from others.
#[rustfmt::skip]
const NO_DETECTOR: [Row<3>; 5] = [
    (Pod,       NodePort,     ["all M",  "local",  "all M"]),
    (Pod,       LoadBalancer, ["all M",  "local",  "all M"]),
    (Pod,       ExternalIp,   ["all M",  "local",  "all M"]),
    (Node,      ClusterIp,    ["all",    "all",    "local"]),
    (External,  ClusterIp,    ["all",    "all",    "local"]),
];

/// What differs when all traffic to cluster IPs is masqueraded.
#[rustfmt::skip]
const MASQUERADE_ALL: [Row<3>; 1] = [
    (Pod,       ClusterIp,    ["all M",  "all M",  "local M"]),
];

/// What differs with both.
#[rustfmt::skip]
const NO_DETECTOR_AND_MASQUERADE_ALL: [Row<3>; 4] = [
    (Pod,       ClusterIp,    ["all M",  "all M",  "local M"]),
    (Pod,       NodePort,     ["all M",  "local",  "all M"]),
    (Pod,       LoadBalancer, ["all M",  "local",  "all M"]),
    (Pod,       ExternalIp,   ["all M",  "local",  "all M"]),
];

/// No endpoints with policies Cluster and Local; then an endpoint on the other
/// node alone, with external policy Local and internal policy Local.
#[rustfmt::skip]
const NOBODY_HERE: [Row<4>; 13] = [
    (Pod,       ClusterIp,    ["REJECT", "REJECT", "remote",   "DROP"]),
    (Pod,       NodePort,     ["REJECT", "REJECT", "remote",   "remote M"]),
    (Pod,       LoadBalancer, ["REJECT", "REJECT", "remote",   "remote M"]),
    (Pod,       ExternalIp,   ["REJECT", "REJECT", "remote",   "remote M"]),
    (Node,      ClusterIp,    ["REJECT", "REJECT", "remote M", "DROP"]),
    (Node,      NodePort,     ["REJECT", "REJECT", "remote M", "remote M"]),
    (Node,      LoadBalancer, ["from node, nobody", "from node, nobody", "remote M", "remote M"]),
    (Node,      ExternalIp,   ["from node, nobody", "from node, nobody", "remote M", "remote M"]),
    (Localhost, NodePort,     ["localhost, nobody", "localhost, nobody", "localhost, abroad", "localhost, far"]),
    (External,  ClusterIp,    ["REJECT", "REJECT", "remote M", "DROP"]),
    (External,  NodePort,     ["REJECT", "REJECT", "DROP",     "remote M"]),
    (External,  LoadBalancer, ["REJECT", "REJECT", "DROP",     "remote M"]),
    (External,  ExternalIp,   ["REJECT", "REJECT", "DROP",     "remote M"]),
];

/// The local endpoint terminates: external policy Local and Cluster; then both
/// do, with external policy Local.
#[rustfmt::skip]
const TERMINATING: [Row<3>; 7] = [
    (Pod,       ClusterIp,    ["remote",   "remote",   "all"]),
    (Pod,       NodePort,     ["remote",   "remote M", "all"]),
    (Node,      LoadBalancer, ["remote M", "remote M", "all M"]),
    (External,  ClusterIp,    ["remote M", "remote M", "all M"]),
    (External,  NodePort,     ["local",    "remote M", "local"]),
    (External,  LoadBalancer, ["local",    "remote M", "local"]),
    (External,  ExternalIp,   ["local",    "remote M", "local"]),
];

fn each_packet_takes_its_way(rules: Rules) {
    take_their_ways(rules, config(rules), &[]);
}

fn each_packet_takes_its_way_when_pods_cannot_be_told_from_others(rules: Rules) {
    let detect_local = DetectLocal::ClusterCidr(Vec::new());
    let config = Config {
        detect_local,
        ..config(rules)
    };
    take_their_ways(rules, config, &NO_DETECTOR);
}

fn each_packet_takes_its_way_when_all_traffic_to_cluster_ips_is_masqueraded(rules: Rules) {
    let config = Config {
        masquerade_all: true,
        ..config(rules)
    };
    take_their_ways(rules, config, &MASQUERADE_ALL);
}

fn each_packet_takes_its_way_when_pods_cannot_be_told_and_all_is_masqueraded(rules: Rules) {
    let config = Config {
        detect_local: DetectLocal::ClusterCidr(Vec::new()),
        masquerade_all: true,
        ..config(rules)
    };
    take_their_ways(rules, config, &NO_DETECTOR_AND_MASQUERADE_ALL);
}

/// Sets up the three Services, and compares with the matrix and what differs.
fn take_their_ways(rules: Rules, config: Config, differences: &[Row<3>]) {
    let mut stage = Stage::new(rules, config);
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [web(1), web(2).externally_local(), web(3).internally_local()];
    stage.sync(services.into_iter().flat_map(Web::events));
    let rows = MATRIX.map(|row| {
        let same = |other: &&Row<3>| (other.0, other.1) == (row.0, row.1);
        differences.iter().find(same).copied().unwrap_or(row)
    });
    compare(&stage, &rows);
}

fn an_endpoint_that_reaches_itself_sees_the_node_and_another_sees_it(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [web(1), web(2).externally_local()];
    stage.sync(services.into_iter().flat_map(Web::events));
    let ways_in = [(ClusterIp, 1), (NodePort, 2), (LoadBalancer, 2)];
    compare_hairpin(&stage, &ways_in);
}

fn what_nobody_here_serves_is_refused_or_dropped(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let nobody = |number| Web::new(number, []);
    let far = |number| Web::new(number, [stage.far()]);
    let services = [
        nobody(1),
        nobody(2).externally_local().internally_local(),
        far(3).externally_local(),
        far(4).internally_local(),
    ];
    stage.sync(services.into_iter().flat_map(Web::events));
    // Without rules the node itself would answer at its ports.
    let node = &stage.lab.node;
    let all = |addresses: [IpAddr; 2]| -> Vec<Server> {
        let each = addresses.into_iter();
        each.flat_map(|address| {
            (1..=4).flat_map(move |number| serve(node, address, node_port(number)))
        })
        .collect()
    };
    let (own, local) = (all(node.addresses()), all(LOCALHOST));
    compare(&stage, &NOBODY_HERE);
    assert!(own.iter().all(|server| server.asked() == 0));
    drop(local);
}

fn addresses_of_services_are_refused_or_dropped_where_nothing_is_served(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    stage.sync(Web::new(1, [stage.near()]).events());
    let mut all = Vec::new();
    for (of, number, port, expected) in [
        (ClusterIp, 1, OTHER_PORT, "undefined port"),
        (ClusterIp, 99, PORT, "unallocated"),
        (LoadBalancer, 1, OTHER_PORT, "world"),
    ] {
        for from in [Pod, Node, External] {
            let ask = |way: Way| way.ask(addresses(of, number)[way.family], port);
            all.extend(in_each_way(&stage, stage.host(from), ask, expected));
        }
    }
    judge(&stage, all);
}

fn terminating_endpoints_serve_as_long_as_no_others_do(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let terminating = api::Conditions {
        ready: Some(false),
        serving: Some(true),
        terminating: Some(true),
    };
    let gone = api::Conditions {
        serving: Some(false),
        ..terminating.clone()
    };
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let here = |number| web(number).conditions(NODE, &terminating);
    let services = [
        here(1).externally_local(),
        here(2),
        here(3)
            .externally_local()
            .conditions(ELSEWHERE, &terminating),
        web(4).conditions(NODE, &gone).conditions(ELSEWHERE, &gone),
    ];
    stage.sync(services.into_iter().flat_map(Web::events));
    compare(&stage, &TERMINATING);
    compare_service(
        &stage,
        4,
        &[(Pod, ClusterIp, "REJECT"), (External, NodePort, "REJECT")],
    );
}

fn only_sources_in_the_ranges_reach_a_load_balancer(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [
        web(1).only_for(&["192.0.2.0/24", "2001:db8::/64"]),
        web(2).only_for(&[
            "198.51.100.1/32",
            "172.16.0.0/16",
            "2001:db8:1::1/128",
            "fd00:172::/64",
        ]),
        web(3)
            .only_for(&["192.0.2.0/24", "2001:db8::/64"])
            .externally_local(),
        Web::new(4, []).only_for(&["192.0.2.0/24", "2001:db8::/64"]),
    ];
    stage.sync(services.into_iter().flat_map(Web::events));
    let mut all = Vec::new();
    for (number, external, node, pod, neighbor) in [
        (1, "all M", "DROP", "DROP", "DROP"),
        (2, "DROP", "all M", "DROP", "all M"),
        (3, "local", "DROP", "DROP", "DROP"),
        (
            4,
            "REJECT",
            "from node, guarded, nobody",
            "guarded, nobody",
            "guarded, nobody",
        ),
    ] {
        for (from, expected) in [(External, external), (Node, node), (Pod, pod)] {
            all.extend(cells(&stage, number, from, LoadBalancer, expected));
        }
        let ask = |way| stage.ask(External, LoadBalancer, number, way);
        all.extend(in_each_way(&stage, &stage.lab.neighbor, ask, neighbor));
    }
    // Nothing but the load balancer's addresses is guarded.
    for to in [ClusterIp, NodePort, ExternalIp] {
        all.extend(cells(&stage, 2, External, to, "all M"));
    }
    judge(&stage, all);
}

fn a_node_that_has_the_address_of_a_load_balancer_may_use_it_as_any_in_its_ranges(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [
        web(1).only_for(&["192.0.2.0/24", "2001:db8::/64"]),
        web(2).only_for(&["192.0.2.128/25", "2001:db8:ffff::/64"]),
    ];
    for number in [1, 2] {
        for address in addresses(LoadBalancer, number) {
            let add = || link::add_address("lo", address.into());
            stage.lab.node.netns.run(add).expect("the address is new");
        }
    }
    stage.sync(services.into_iter().flat_map(Web::events));
    compare_service(&stage, 1, &[(Node, LoadBalancer, "all M")]);
    compare_service(&stage, 2, &[(Node, LoadBalancer, "DROP")]);
}

fn node_ports_are_served_on_the_addresses_that_the_configuration_says(rules: Rules) {
    let world = ["198.51.100.0/24", "2001:db8:1::/64"].map(|text| text.parse().expect("a network"));
    for (node_port_addresses, primary, other, localhost) in [
        (NodePortAddresses::Primary, "all M", "node", "REJECT"),
        (
            NodePortAddresses::Within(world.into()),
            "node",
            "all M",
            "REJECT",
        ),
        (NodePortAddresses::All, "all M", "all M", "localhost"),
    ] {
        let config = Config {
            node_port_addresses,
            ..config(rules)
        };
        let mut stage = Stage::new(rules, config);
        stage.sync(Web::new(1, [stage.near(), stage.far()]).events());
        compare_service(&stage, 1, &[(Localhost, NodePort, localhost)]);
        let node = &stage.lab.node;
        let own: Vec<_> = [node.addresses(), TO_WORLD]
            .into_iter()
            .flatten()
            .flat_map(|address| serve(node, address, node_port(1)))
            .collect();
        for (addresses, expected) in [(node.addresses(), primary), (TO_WORLD, other)] {
            let cells = [Pod, Node, External].map(|from| {
                let ask = |way: Way| way.ask(addresses[way.family], node_port(1));
                in_each_way(&stage, stage.host(from), ask, expected)
            });
            judge(&stage, cells.into_iter().flatten());
        }
        drop(own);
    }
}

fn node_ports_are_served_on_the_loopback_addresses_that_the_configuration_says(rules: Rules) {
    let loopback: [IpNet; 2] =
        ["127.0.0.0/8", "::1/128"].map(|text| text.parse().expect("a network"));
    for (is_wanted, node_port_addresses, v4, primary) in [
        (
            true,
            NodePortAddresses::Within(loopback.into()),
            "all M",
            "node",
        ),
        (
            false,
            NodePortAddresses::Within(loopback.into()),
            "node",
            "node",
        ),
        (false, NodePortAddresses::All, "node", "all M"),
    ] {
        let mut config = Config {
            node_port_addresses,
            ..config(rules)
        };
        config.iptables.localhost_node_ports = is_wanted;
        let mut stage = Stage::new(rules, config);
        stage.sync(Web::new(1, [stage.near(), stage.far()]).events());
        let node = &stage.lab.node;
        let own: Vec<_> = [node.addresses(), LOCALHOST]
            .into_iter()
            .flatten()
            .flat_map(|address| serve(node, address, node_port(1)))
            .collect();
        for (is_v4, expected) in [(true, v4), (false, "node")] {
            let ask = |way| stage.ask(Localhost, NodePort, 1, way);
            let cells = in_each_way(&stage, node, ask, expected).into_iter();
            judge(
                &stage,
                cells.filter(|cell| cell.ask.target.is_ipv4() == is_v4),
            );
        }
        compare_service(&stage, 1, &[(External, NodePort, primary)]);
        drop(own);
    }
}

fn who_uses_a_node_port_by_a_loopback_address_is_counted(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    stage.sync(Web::new(1, [stage.near(), stage.far()]).events());
    let name = nfacct::Name::new(LOCALHOST_ACCEPTED).expect("it is short");
    let counted = || {
        let client = nfacct::Client::open();
        client.and_then(|mut client| client.get(&name))
    };
    for (from, once) in [(Node, 0), (External, 0), (Localhost, 1)] {
        let v4 = WAYS.into_iter().filter(|way| way.family == 0);
        for ask in v4.map(|way| stage.ask(from, NodePort, 1, way)) {
            let netns = &stage.lab.node.netns;
            let before = netns.run(counted).expect("the kernel has nfacct");
            assert_eq!(ask.times(&stage.host(from).netns, 10).answered(), 10);
            let after = netns.run(counted).expect("the kernel has nfacct");
            assert_eq!(after.packets - before.packets, 10 * once, "{ask:?}");
        }
    }
}

fn hosts_nearby_do_not_reach_what_listens_on_loopback_addresses(rules: Rules) {
    let stage = Stage::new(rules, config(rules));
    let [localhost, _] = LOCALHOST;
    let servers = serve(&stage.lab.node, localhost, PORT);
    // The client takes the loopback address for one of the node.
    stage.lab.client.netns.run(|| {
        link::set_sysctl("ipv4/conf/all/route_localnet", "1").expect("it is a setting");
        ip("addr del 127.0.0.1/8 dev lo");
        ip("route add 127.0.0.1 via 192.0.2.1 src 192.0.2.10");
    });
    let asks = [Protocol::Tcp, Protocol::Udp];
    let asks = asks.map(|protocol| Ask::new(protocol, (localhost, PORT).into()));
    let client = &stage.lab.client;
    let seen = |patience| asks.map(|ask| stage.seen(client, ask.patience(patience)));
    assert_eq!(seen(Duration::from_millis(300)), ["DROP", "DROP"]);
    let open = "*filter\n-F KUBE-FIREWALL\nCOMMIT\n";
    stage.lab.node.netns.run(|| rules.restore(open));
    let reached = seen(Duration::from_secs(3));
    assert_eq!(reached, ["node", "node"], "without the rule");
    drop(servers);
}

fn ip(args: &str) {
    let output = Command::new("ip").args(args.split(' ')).output();
    let output = output.expect("ip is installed");
    assert!(output.status.success(), "ip {args}: {output:?}");
}

fn policies_of_others_bind_what_mode_iptables_has_not_accepted(rules: Rules) {
    const HEALTH_CHECK: u16 = 32_000;
    let mut stage = Stage::new(rules, config(rules));
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let mut local = web(2).externally_local();
    local.service.spec.health_check_node_port = HEALTH_CHECK;
    let services = [web(1), local];
    stage.sync(services.into_iter().flat_map(Web::events));
    let policies = "*filter\n:FORWARD DROP [0:0]\n-A INPUT -p tcp -j DROP\nCOMMIT\n";
    stage.lab.node.netns.run(|| rules.restore(policies));
    let mut all = Vec::new();
    for (number, from, to, expected) in [
        (1, External, ClusterIp, "forwarded, marked"),
        (1, External, NodePort, "forwarded, marked"),
        (1, External, LoadBalancer, "forwarded, marked"),
        (1, Pod, ExternalIp, "forwarded, marked"),
        (1, Pod, ClusterIp, "DROP"),
        (2, External, LoadBalancer, "DROP"),
    ] {
        all.extend(cells(&stage, number, from, to, expected));
    }
    let node = &stage.lab.node;
    let mut own = Vec::new();
    for (port, expected) in [(HEALTH_CHECK, "health check"), (HEALTH_CHECK + 1, "DROP")] {
        own.extend(node.addresses().map(|address| serve(node, address, port)));
        let ask = |way: Way| way.ask(node.addresses()[way.family], port);
        let asked = in_each_way(&stage, &stage.lab.client, ask, expected).into_iter();
        all.extend(asked.filter(|cell| cell.ask.protocol == Protocol::Tcp));
    }
    judge(&stage, all);
    drop(own);
}
