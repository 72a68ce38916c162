//! The packet matrix: who gets a packet, and whom he sees, from everywhere to
//! everywhere, judged by real connections and datagrams in both families.
//!
//! A cell is what [`Stage::seen`] says: `all` endpoints (one on the node and one
//! on another) or the `local` one, with `M` when they saw the node's address
//! for the client's own; `REJECT` for a refusal at once, `DROP` for silence.
#![cfg(feature = "nftables")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the kernel judges what was programmed"
)]

mod fixtures;

mod stage;

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fixtures::{ELSEWHERE, NODE};
use proxy_core::Config;
use stage::{
    Destination, OTHER_PORT, PORT, Source, Stage, WAYS, Web, addresses, config, node_port, serve,
};
use testkit::lab::{Host, Lab};
use testkit::traffic::{Ask, Protocol};
use vipline_service_model::{DetectLocal, NodePortAddresses, api};

use Destination::{ClusterIp, ExternalIp, LoadBalancer, NodePort};
use Source::{External, Localhost, Node, Pod};

/// How long something is waited for that does not happen.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long a client waits until it sends the first packet again.
///
/// A refusal that comes while the first packet is being sent is lost on it.
const SECOND_PACKET: Duration = Duration::from_secs(1);

/// How many cells are judged at a time.
const JUDGES: usize = 8;

/// Where from, where to, and what happens with each Service of the table.
type Row<const N: usize> = (Source, Destination, [&'static str; N]);

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
    (Localhost, NodePort,     ["REJECT", "REJECT", "REJECT"]),
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
const NOBODY_HERE: [Row<4>; 12] = [
    (Pod,       ClusterIp,    ["REJECT", "REJECT", "remote",   "DROP"]),
    (Pod,       NodePort,     ["REJECT", "REJECT", "remote",   "remote M"]),
    (Pod,       LoadBalancer, ["REJECT", "REJECT", "remote",   "remote M"]),
    (Pod,       ExternalIp,   ["REJECT", "REJECT", "remote",   "remote M"]),
    (Node,      ClusterIp,    ["REJECT", "REJECT", "remote M", "DROP"]),
    (Node,      NodePort,     ["REJECT", "REJECT", "remote M", "remote M"]),
    (Node,      LoadBalancer, ["REJECT", "REJECT", "remote M", "remote M"]),
    (Node,      ExternalIp,   ["REJECT", "REJECT", "remote M", "remote M"]),
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

#[test]
fn each_packet_takes_its_way() {
    take_their_ways(config(), &[]);
}

#[test]
fn each_packet_takes_its_way_when_pods_cannot_be_told_from_others() {
    let detect_local = DetectLocal::ClusterCidr(Vec::new());
    let config = Config {
        detect_local,
        ..config()
    };
    take_their_ways(config, &NO_DETECTOR);
}

#[test]
fn each_packet_takes_its_way_when_all_traffic_to_cluster_ips_is_masqueraded() {
    let config = Config {
        masquerade_all: true,
        ..config()
    };
    take_their_ways(config, &MASQUERADE_ALL);
}

#[test]
fn each_packet_takes_its_way_when_pods_cannot_be_told_and_all_is_masqueraded() {
    let config = Config {
        detect_local: DetectLocal::ClusterCidr(Vec::new()),
        masquerade_all: true,
        ..config()
    };
    take_their_ways(config, &NO_DETECTOR_AND_MASQUERADE_ALL);
}

/// Sets up the three Services, and compares with the matrix and what differs.
fn take_their_ways(config: Config, differences: &[Row<3>]) {
    let mut stage = Stage::new(config);
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [web(1), web(2).externally_local(), web(3).internally_local()];
    stage.sync(services.into_iter().flat_map(Web::events));
    let rows = MATRIX.map(|row| {
        let same = |other: &&Row<3>| (other.0, other.1) == (row.0, row.1);
        differences.iter().find(same).copied().unwrap_or(row)
    });
    compare(&stage, &rows);
}

#[test]
fn an_endpoint_that_reaches_itself_sees_the_node_and_another_sees_it() {
    let mut stage = Stage::new(config());
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [web(1), web(2).externally_local()];
    stage.sync(services.into_iter().flat_map(Web::events));
    let (itself, _) = stage.near();
    for way in WAYS {
        let node = Lab::GATEWAYS[way.family];
        for (to, number) in [(ClusterIp, 1), (NodePort, 2), (LoadBalancer, 2)] {
            let ask = stage.ask(Pod, to, number, way);
            let answers: Vec<_> = (0..40)
                .map(|_| ask.once(&itself.netns).expect("it is served"))
                .collect();
            let (near, far): (Vec<_>, Vec<_>) = answers
                .iter()
                .partition(|answer| answer.server == itself.name);
            assert!(!near.is_empty() && !far.is_empty(), "{way:?} {to:?}");
            let own = itself.addresses()[way.family];
            assert!(near.iter().all(|answer| answer.client == node), "{near:?}");
            assert!(far.iter().all(|answer| answer.client == own), "{far:?}");
        }
    }
}

#[test]
fn what_nobody_here_serves_is_refused_or_dropped() {
    let mut stage = Stage::new(config());
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
    let own = node.addresses().into_iter().flat_map(|address| {
        (1..=4).flat_map(move |number| serve(node, address, node_port(number)))
    });
    let own: Vec<_> = own.collect();
    compare(&stage, &NOBODY_HERE);
    assert!(own.iter().all(|server| server.asked() == 0));
}

#[test]
fn addresses_of_services_are_refused_or_dropped_where_nothing_is_served() {
    let mut stage = Stage::new(config());
    stage.sync(Web::new(1, [stage.near()]).events());
    for (of, number, port, expected) in [
        (ClusterIp, 1, OTHER_PORT, "REJECT"),
        (ClusterIp, 99, PORT, "DROP"),
        (LoadBalancer, 1, OTHER_PORT, "world"),
    ] {
        let cells = [Pod, Node, External].map(|from| {
            WAYS.map(|way| Cell {
                from: stage.host(from),
                ask: way.ask(addresses(of, number)[way.family], port),
                expected,
            })
        });
        judge(&stage, cells.into_iter().flatten());
    }
}

#[test]
fn terminating_endpoints_serve_as_long_as_no_others_do() {
    let mut stage = Stage::new(config());
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

#[test]
fn only_sources_in_the_ranges_reach_a_load_balancer() {
    let mut stage = Stage::new(config());
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
    ];
    stage.sync(services.into_iter().flat_map(Web::events));
    for (number, external, node, pod, neighbor) in [
        (1, "all M", "DROP", "DROP", "DROP"),
        (2, "DROP", "all M", "DROP", "all M"),
        (3, "local", "DROP", "DROP", "DROP"),
    ] {
        compare_service(
            &stage,
            number,
            &[
                (External, LoadBalancer, external),
                (Node, LoadBalancer, node),
                (Pod, LoadBalancer, pod),
            ],
        );
        let cells = WAYS.map(|way| Cell {
            from: &stage.lab.neighbor,
            ask: stage.ask(External, LoadBalancer, number, way),
            expected: neighbor,
        });
        judge(&stage, cells);
    }
    // Nothing but the load balancer's addresses is guarded.
    compare_service(
        &stage,
        2,
        &[
            (External, ClusterIp, "all M"),
            (External, NodePort, "all M"),
            (External, ExternalIp, "all M"),
        ],
    );
}

#[test]
fn a_node_that_has_the_address_of_a_load_balancer_may_use_it_as_any_in_its_ranges() {
    let mut stage = Stage::new(config());
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [
        web(1).only_for(&["192.0.2.0/24", "2001:db8::/64"]),
        web(2).only_for(&["192.0.2.128/25", "2001:db8:ffff::/64"]),
    ];
    for number in [1, 2] {
        for address in addresses(LoadBalancer, number) {
            let add = || testkit::link::add_address("lo", address.into());
            stage.lab.node.netns.run(add).expect("the address is new");
        }
    }
    stage.sync(services.into_iter().flat_map(Web::events));
    compare_service(&stage, 1, &[(Node, LoadBalancer, "all M")]);
    compare_service(&stage, 2, &[(Node, LoadBalancer, "DROP")]);
}

#[test]
fn node_ports_are_served_on_the_addresses_that_the_configuration_says() {
    let world = ["198.51.100.0/24", "2001:db8:1::/64"].map(|text| text.parse().expect("a network"));
    for (node_port_addresses, primary, other) in [
        (NodePortAddresses::Primary, "all M", "node"),
        (NodePortAddresses::Within(world.into()), "node", "all M"),
        (NodePortAddresses::All, "all M", "all M"),
    ] {
        let mut stage = Stage::new(Config {
            node_port_addresses,
            ..config()
        });
        stage.sync(Web::new(1, [stage.near(), stage.far()]).events());
        compare_service(&stage, 1, &[(Localhost, NodePort, "REJECT")]);
        let other_address =
            ["198.51.100.1", "2001:db8:1::1"].map(|text| text.parse().expect("an address"));
        let node = &stage.lab.node;
        let own: Vec<_> = [node.addresses(), other_address]
            .into_iter()
            .flatten()
            .flat_map(|address| serve(node, address, node_port(1)))
            .collect();
        for (addresses, expected) in [(node.addresses(), primary), (other_address, other)] {
            let cells = [Pod, Node, External].map(|from| {
                WAYS.map(|way| Cell {
                    from: stage.host(from),
                    ask: way.ask(addresses[way.family], node_port(1)),
                    expected,
                })
            });
            judge(&stage, cells.into_iter().flatten());
        }
        drop(own);
    }
}

/// A question, and what is to be seen of its answers.
struct Cell<'a> {
    from: &'a Host,
    ask: Ask,
    expected: &'static str,
}

/// Compares what happens with the rows, Services being numbered from 1.
fn compare<const N: usize>(stage: &Stage, rows: &[Row<N>]) {
    let cells = rows.iter().flat_map(|&(from, to, expected)| {
        let numbered = (1..).zip(expected);
        numbered.flat_map(move |(number, expected)| in_all_ways(stage, number, from, to, expected))
    });
    judge(stage, cells);
}

/// Compares what happens with one Service.
fn compare_service(stage: &Stage, number: u16, rows: &[(Source, Destination, &'static str)]) {
    let rows = rows.iter();
    let cells =
        rows.flat_map(|&(from, to, expected)| in_all_ways(stage, number, from, to, expected));
    judge(stage, cells);
}

fn in_all_ways<'a>(
    stage: &'a Stage,
    number: u16,
    from: Source,
    to: Destination,
    expected: &'static str,
) -> [Cell<'a>; 4] {
    WAYS.map(|way| Cell {
        from: stage.host(from),
        ask: stage.ask(from, to, number, way),
        expected,
    })
}

/// Judges some cells at a time, since most of the time is spent waiting.
fn judge<'a>(stage: &'a Stage, cells: impl IntoIterator<Item = Cell<'a>>) {
    let cells: Vec<_> = cells.into_iter().filter(Cell::is_told).collect();
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..JUDGES {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let seen = stage.seen(cell.from, cell.patient_ask());
                    if seen != cell.expected {
                        let line = format!("{cell} {seen}");
                        wrong.lock().expect("no judge panics").push(line);
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().expect("no judge panics");
    wrong.sort();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

impl Cell<'_> {
    /// Tells whether a failure can be told from the other: a node's own datagrams
    /// fail in the same way whether they are refused or dropped.
    fn is_told(&self) -> bool {
        let fails = ["REJECT", "DROP"].contains(&self.expected);
        !(fails && self.from.name == "node" && self.ask.protocol == Protocol::Udp)
    }

    /// Waits shortly for what is not to come, but not less than a refusal takes.
    fn patient_ask(&self) -> Ask {
        match (self.expected, self.ask.protocol) {
            ("DROP" | "world", Protocol::Udp) => self.ask.patience(PATIENCE),
            ("DROP", Protocol::Tcp) => self.ask.patience(PATIENCE + SECOND_PACKET),
            _ => self.ask,
        }
    }
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ask {
            protocol, target, ..
        } = self.ask;
        write!(
            f,
            "{} to {target} by {protocol}: expected {}, seen",
            self.from.name, self.expected
        )
    }
}
