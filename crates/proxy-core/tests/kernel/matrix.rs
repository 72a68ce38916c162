//! The packet matrix: the endpoint and the visible client address of packets from every
//! source to every destination, tested with real connections and datagrams in both
//! families.
//!
//! A cell is an observation of [`Stage::observe`]: `all` endpoints (one on the node and
//! one on another node) or the `local` one, with `M` if they saw the address of the
//! node instead of the client's (masquerading). `REJECT` is an immediate rejection,
//! `DROP` is silence. Cells in which modes differ name a case of the table of
//! differences in module [`cells`].

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use ipnet::IpNet;
use proxy_core::Config;
use testkit::link;
use testkit::traffic::{Probe, Protocol, Server};
use vipline_iptables::nfacct;
use vipline_service_model::{DetectLocal, NodePortAddresses, api};

use Destination::{ClusterIp, ExternalIp, LoadBalancer, NodePort};
use Source::{External, Localhost, Node, Pod};

use crate::cells::{
    Row, cells, cells_of_request, check_cells, compare, compare_hairpin, compare_service,
};
use crate::fixtures::{NODE, OTHER_NODE};
use crate::rules::{LOCALHOST_ACCEPTED, Rules};
use crate::stage::{
    Destination, LOCALHOST, OTHER_PORT, PORT, Source, Stage, TO_WORLD, WAYS, Way, Web, addresses,
    config, node_port, serve,
};

crate::rules::tests_of_rules! {
    all {
        each_packet_reaches_the_expected_destination
        each_packet_reaches_the_expected_destination_without_local_traffic_detection
        each_packet_reaches_the_expected_destination_with_masquerade_all
        each_packet_reaches_the_expected_destination_with_masquerade_all_and_no_detection
        only_hairpin_connections_of_an_endpoint_are_masqueraded
        services_without_usable_endpoints_are_rejected_or_dropped
        undefined_ports_and_unallocated_cluster_ips_are_rejected_or_dropped
        terminating_endpoints_serve_only_without_ready_endpoints
        only_sources_in_the_ranges_reach_a_load_balancer
        a_node_that_owns_a_load_balancer_ip_is_subject_to_its_source_ranges
        node_ports_are_served_on_the_configured_addresses
        foreign_policies_apply_to_packets_that_mode_iptables_does_not_accept
    }
    iptables {
        node_ports_are_served_on_the_configured_loopback_addresses
        node_port_connections_to_a_loopback_address_are_counted
        neighboring_hosts_cannot_reach_loopback_listeners
    }
    netlink {
        each_packet_reaches_the_expected_destination
        services_without_usable_endpoints_are_rejected_or_dropped
        only_sources_in_the_ranges_reach_a_load_balancer
        node_ports_are_served_on_the_configured_loopback_addresses
        node_port_connections_to_a_loopback_address_are_counted
        neighboring_hosts_cannot_reach_loopback_listeners
    }
}

/// Three Services: traffic policies Cluster, external policy Local, internal policy
/// Local.
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

/// Rows that differ without local traffic detection.
#[rustfmt::skip]
const NO_DETECTOR: [Row<3>; 5] = [
    (Pod,       NodePort,     ["all M",  "local",  "all M"]),
    (Pod,       LoadBalancer, ["all M",  "local",  "all M"]),
    (Pod,       ExternalIp,   ["all M",  "local",  "all M"]),
    (Node,      ClusterIp,    ["all",    "all",    "local"]),
    (External,  ClusterIp,    ["all",    "all",    "local"]),
];

/// Rows that differ if all traffic to cluster IPs is masqueraded.
#[rustfmt::skip]
const MASQUERADE_ALL: [Row<3>; 1] = [
    (Pod,       ClusterIp,    ["all M",  "all M",  "local M"]),
];

/// Rows that differ without detection and with masquerading of all cluster IP traffic.
#[rustfmt::skip]
const NO_DETECTOR_AND_MASQUERADE_ALL: [Row<3>; 4] = [
    (Pod,       ClusterIp,    ["all M",  "all M",  "local M"]),
    (Pod,       NodePort,     ["all M",  "local",  "all M"]),
    (Pod,       LoadBalancer, ["all M",  "local",  "all M"]),
    (Pod,       ExternalIp,   ["all M",  "local",  "all M"]),
];

/// Services 1 and 2: no endpoints, policies Cluster and Local. Services 3 and 4: an
/// endpoint on the other node only, external policy Local and internal policy Local.
#[rustfmt::skip]
const NO_USABLE_ENDPOINTS: [Row<4>; 13] = [
    (Pod,       ClusterIp,    ["REJECT", "REJECT", "remote",   "DROP"]),
    (Pod,       NodePort,     ["REJECT", "REJECT", "remote",   "remote M"]),
    (Pod,       LoadBalancer, ["REJECT", "REJECT", "remote",   "remote M"]),
    (Pod,       ExternalIp,   ["REJECT", "REJECT", "remote",   "remote M"]),
    (Node,      ClusterIp,    ["REJECT", "REJECT", "remote M", "DROP"]),
    (Node,      NodePort,     ["REJECT", "REJECT", "remote M", "remote M"]),
    (Node,      LoadBalancer, ["from node, none", "from node, none", "remote M", "remote M"]),
    (Node,      ExternalIp,   ["from node, none", "from node, none", "remote M", "remote M"]),
    (Localhost, NodePort,     ["localhost, none", "localhost, none", "localhost, no local", "localhost, remote"]),
    (External,  ClusterIp,    ["REJECT", "REJECT", "remote M", "DROP"]),
    (External,  NodePort,     ["REJECT", "REJECT", "DROP",     "remote M"]),
    (External,  LoadBalancer, ["REJECT", "REJECT", "DROP",     "remote M"]),
    (External,  ExternalIp,   ["REJECT", "REJECT", "DROP",     "remote M"]),
];

/// Services 1 and 2: the local endpoint terminates, external policy Local and Cluster.
/// Service 3: both endpoints terminate, external policy Local.
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

fn each_packet_reaches_the_expected_destination(rules: Rules) {
    assert_matrix(rules, config(rules), &[]);
}

fn each_packet_reaches_the_expected_destination_without_local_traffic_detection(rules: Rules) {
    let detect_local = DetectLocal::ClusterCidr(Vec::new());
    let config = config(rules).with_detect_local(detect_local);
    assert_matrix(rules, config, &NO_DETECTOR);
}

fn each_packet_reaches_the_expected_destination_with_masquerade_all(rules: Rules) {
    let config = config(rules).with_masquerade_all(true);
    assert_matrix(rules, config, &MASQUERADE_ALL);
}

fn each_packet_reaches_the_expected_destination_with_masquerade_all_and_no_detection(rules: Rules) {
    let config = config(rules)
        .with_detect_local(DetectLocal::ClusterCidr(Vec::new()))
        .with_masquerade_all(true);
    assert_matrix(rules, config, &NO_DETECTOR_AND_MASQUERADE_ALL);
}

/// Sets up the three Services and compares observations with the matrix, in which
/// `differences` replace rows.
fn assert_matrix(rules: Rules, config: Config, differences: &[Row<3>]) {
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

fn only_hairpin_connections_of_an_endpoint_are_masqueraded(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [web(1), web(2).externally_local()];
    stage.sync(services.into_iter().flat_map(Web::events));
    let ways_in = [(ClusterIp, 1), (NodePort, 2), (LoadBalancer, 2)];
    compare_hairpin(&stage, &ways_in);
}

fn services_without_usable_endpoints_are_rejected_or_dropped(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let no_endpoints = |number| Web::new(number, []);
    let far = |number| Web::new(number, [stage.far()]);
    let services = [
        no_endpoints(1),
        no_endpoints(2).externally_local().internally_local(),
        far(3).externally_local(),
        far(4).internally_local(),
    ];
    stage.sync(services.into_iter().flat_map(Web::events));
    // Without rules the node itself would answer on its ports.
    let node = &stage.lab.node;
    let all = |addresses: [IpAddr; 2]| -> Vec<Server> {
        let each = addresses.into_iter();
        each.flat_map(|address| {
            (1..=4).flat_map(move |number| serve(node, address, node_port(number)))
        })
        .collect()
    };
    let (own, local) = (all(node.addresses()), all(LOCALHOST));
    compare(&stage, &NO_USABLE_ENDPOINTS);
    assert!(own.iter().all(|server| server.requests() == 0));
    drop(local);
}

fn undefined_ports_and_unallocated_cluster_ips_are_rejected_or_dropped(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    stage.sync(Web::new(1, [stage.near()]).events());
    let mut all = Vec::new();
    for (of, number, port, expected) in [
        (ClusterIp, 1, OTHER_PORT, "undefined port"),
        (ClusterIp, 99, PORT, "unallocated"),
        (LoadBalancer, 1, OTHER_PORT, "world"),
    ] {
        for from in [Pod, Node, External] {
            let probe = |way: Way| way.probe(addresses(of, number)[way.family], port);
            all.extend(cells_of_request(&stage, stage.host(from), probe, expected));
        }
    }
    check_cells(&stage, all);
}

fn terminating_endpoints_serve_only_without_ready_endpoints(rules: Rules) {
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
            .conditions(OTHER_NODE, &terminating),
        web(4).conditions(NODE, &gone).conditions(OTHER_NODE, &gone),
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
        web(1).with_source_ranges(&["192.0.2.0/24", "2001:db8::/64"]),
        web(2).with_source_ranges(&[
            "198.51.100.1/32",
            "172.16.0.0/16",
            "2001:db8:1::1/128",
            "fd00:172::/64",
        ]),
        web(3)
            .with_source_ranges(&["192.0.2.0/24", "2001:db8::/64"])
            .externally_local(),
        Web::new(4, []).with_source_ranges(&["192.0.2.0/24", "2001:db8::/64"]),
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
            "from node, ranges, none",
            "ranges, none",
            "ranges, none",
        ),
    ] {
        for (from, expected) in [(External, external), (Node, node), (Pod, pod)] {
            all.extend(cells(&stage, number, from, LoadBalancer, expected));
        }
        let probe = |way| stage.probe(External, LoadBalancer, number, way);
        all.extend(cells_of_request(
            &stage,
            &stage.lab.neighbor,
            probe,
            neighbor,
        ));
    }
    // Source ranges apply only to load balancer IPs.
    for to in [ClusterIp, NodePort, ExternalIp] {
        all.extend(cells(&stage, 2, External, to, "all M"));
    }
    check_cells(&stage, all);
}

fn a_node_that_owns_a_load_balancer_ip_is_subject_to_its_source_ranges(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [
        web(1).with_source_ranges(&["192.0.2.0/24", "2001:db8::/64"]),
        web(2).with_source_ranges(&["192.0.2.128/25", "2001:db8:ffff::/64"]),
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

fn node_ports_are_served_on_the_configured_addresses(rules: Rules) {
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
        let config = config(rules).with_node_port_addresses(node_port_addresses);
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
                let probe = |way: Way| way.probe(addresses[way.family], node_port(1));
                cells_of_request(&stage, stage.host(from), probe, expected)
            });
            check_cells(&stage, cells.into_iter().flatten());
        }
        drop(own);
    }
}

fn node_ports_are_served_on_the_configured_loopback_addresses(rules: Rules) {
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
        let mut config = config(rules).with_node_port_addresses(node_port_addresses);
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
            let probe = |way| stage.probe(Localhost, NodePort, 1, way);
            let cells = cells_of_request(&stage, node, probe, expected).into_iter();
            check_cells(
                &stage,
                cells.filter(|cell| cell.probe.target.is_ipv4() == is_v4),
            );
        }
        compare_service(&stage, 1, &[(External, NodePort, primary)]);
        drop(own);
    }
}

fn node_port_connections_to_a_loopback_address_are_counted(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    stage.sync(Web::new(1, [stage.near(), stage.far()]).events());
    let name = nfacct::Name::new(LOCALHOST_ACCEPTED).expect("the name is short");
    let counted = || {
        let client = nfacct::Client::open();
        client.and_then(|mut client| client.get(&name))
    };
    for (from, once) in [(Node, 0), (External, 0), (Localhost, 1)] {
        let v4 = WAYS.into_iter().filter(|way| way.family == 0);
        for probe in v4.map(|way| stage.probe(from, NodePort, 1, way)) {
            let netns = &stage.lab.node.netns;
            let before = netns.run(counted).expect("the kernel has nfacct");
            assert_eq!(probe.times(&stage.host(from).netns, 10).succeeded(), 10);
            let after = netns.run(counted).expect("the kernel has nfacct");
            assert_eq!(after.packets - before.packets, 10 * once, "{probe:?}");
        }
    }
}

fn neighboring_hosts_cannot_reach_loopback_listeners(rules: Rules) {
    let stage = Stage::new(rules, config(rules));
    let [localhost, _] = LOCALHOST;
    let servers = serve(&stage.lab.node, localhost, PORT);
    // The client routes the loopback address to the node.
    stage.lab.client.netns.run(|| {
        link::set_sysctl("ipv4/conf/all/route_localnet", "1").expect("it is a setting");
        ip("addr del 127.0.0.1/8 dev lo");
        ip("route add 127.0.0.1 via 192.0.2.1 src 192.0.2.10");
    });
    let probes = [Protocol::Tcp, Protocol::Udp];
    let probes = probes.map(|protocol| Probe::new(protocol, (localhost, PORT).into()));
    let client = &stage.lab.client;
    let seen = |timeout| probes.map(|probe| stage.observe(client, probe.timeout(timeout)));
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

fn foreign_policies_apply_to_packets_that_mode_iptables_does_not_accept(rules: Rules) {
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
        let probe = |way: Way| way.probe(node.addresses()[way.family], port);
        let asked = cells_of_request(&stage, &stage.lab.client, probe, expected).into_iter();
        all.extend(asked.filter(|cell| cell.probe.protocol == Protocol::Tcp));
    }
    check_cells(&stage, all);
    drop(own);
}
