//! Random packets to virtual servers: the evaluation agrees with the kernel.
//!
//! Each packet starts a connection of UDP. Connection counts before and after show the real
//! server that the kernel selected.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};

use testkit::link;
use testkit::netns::Netns;
use vipline_evaluate::ipvs::{Balancer, Decision, Packet, Real, Servers, TemplateKey};
use vipline_ipvs::{Client, Command, Commands, Destination, ServiceKey, Transport, VirtualServer};

/// Held by the running test: a dump iterates over the servers of all namespaces, and can miss
/// some if others change.
static ALONE: Mutex<()> = Mutex::new(());

/// Clients, virtual servers and real servers of each family.
const PREFIXES: [[&str; 3]; 2] = [
    ["10.1.0.", "10.0.0.", "10.2.0."],
    ["fd01::", "fd00::", "fd02::"],
];
const CLIENTS: u64 = 9;
const VIRTUAL: u64 = 4;
/// Packets to each virtual server, a multiple of the sum of all weights.
const PACKETS: u64 = 24;

/// Schedulers with the options of each real server. Packets go to all virtual addresses, so
/// that `dh` has several destinations.
const TABLE: [(&str, [&str; 3]); 17] = [
    ("rr", ["-w 1", "-w 3", "-w 2"]),
    ("wrr", ["-w 1", "-w 3", "-w 2"]),
    ("wrr", ["-w 2", "-w 0", "-w 4"]),
    ("lc", ["-w 1", "-w 3", "-w 2"]),
    ("wlc", ["-w 1", "-w 3", "-w 2"]),
    ("wlc", ["-w 1 -x 3", "-w 0", "-w 2"]),
    ("sed", ["-w 1", "-w 3", "-w 2"]),
    ("nq", ["-w 1", "-w 3", "-w 2"]),
    ("fo", ["-w 1", "-w 3 -x 5", "-w 3"]),
    ("ovf", ["-w 1", "-w 3", "-w 2"]),
    ("dh", ["-w 1", "-w 3", "-w 0"]),
    ("sh", ["-w 1", "-w 3", "-w 2"]),
    ("sh -b sh-port", ["-w 1", "-w 0", "-w 2"]),
    ("sh -b sh-fallback,sh-port", ["-w 0", "-w 3", "-w 2"]),
    ("mh", ["-w 1", "-w 3", "-w 2"]),
    ("mh -b mh-port", ["-w 100", "-w 300", "-w 200"]),
    ("mh -b mh-fallback,mh-port", ["-w 1 -x 2", "-w 3", "-w 2"]),
];

/// Random numbers of a seed: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

fn addr(family: usize, kind: usize, number: u64) -> IpAddr {
    let text = format!("{}{}", PREFIXES[family][kind], number + 1);
    text.parse().unwrap()
}

/// Runs a test in a new network namespace.
fn with_client(test: impl FnOnce(&mut Client) + Send) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Netns::new().unwrap().run(|| {
        let mut client = Client::open().expect("the kernel has IPVS");
        test(&mut client);
        // The namespace is removed later and should have no servers then.
        client.flush().unwrap();
    });
}

/// Assigns the addresses of clients and virtual servers to the host.
fn assign_addresses() {
    link::up("lo").unwrap();
    for family in 0..2 {
        for (kind, count) in [(0, CLIENTS), (1, VIRTUAL)] {
            for number in 0..count {
                link::add_address("lo", addr(family, kind, number).into()).unwrap();
            }
        }
    }
}

/// The tables and the numbers of a test.
struct Bench<'c> {
    client: &'c mut Client,
    random: Random,
    /// Port of the last client.
    port: u16,
    templates: BTreeMap<TemplateKey, SocketAddr>,
    packets: usize,
}

impl Bench<'_> {
    /// Adds a virtual server with real servers.
    fn add(&mut self, service: ServiceKey, options: &str, reals: &[&str]) -> VirtualServer {
        let mut text = format!("-A {service} -s {options}\n");
        let family = usize::from(service.family() == vipline_ipvs::Family::V6);
        for (number, options) in (0..).zip(reals) {
            let real = SocketAddr::new(addr(family, 2, number), 8080);
            text += &format!("-a {service} -r {real} -m {options}\n");
        }
        let commands: Commands = text.parse().unwrap();
        self.client.commit(&commands).unwrap();
        let Command::Add(server) = commands.as_slice()[0] else {
            panic!("the first command adds the server");
        };
        server
    }

    fn dump(&mut self, server: &VirtualServer) -> Vec<Destination> {
        self.client.destinations(&server.service).unwrap()
    }

    /// Sends a packet of a random client, and compares the real server. Returns it.
    fn send(&mut self, server: &VirtualServer, to: SocketAddr) -> Option<SocketAddr> {
        self.port += 1;
        let family = usize::from(to.is_ipv6());
        let from = SocketAddr::new(addr(family, 0, self.random.below(CLIENTS)), self.port);
        let before = self.dump(server);
        let mut balancer = Balancer::new();
        balancer.add(*server, before.iter().copied().map(Real::from));
        let packet = Packet::new(Transport::Udp, from, to);
        let decision = balancer.decide(&packet, &self.templates).unwrap();
        let (expected, template) = match &decision {
            Decision::Forwarded {
                servers, template, ..
            } => {
                let targets: Vec<_> = match servers {
                    Servers::Shares(shares) => shares.iter().map(|(it, _)| *it).collect(),
                    Servers::Possible(targets) => targets.clone(),
                };
                let ends: Vec<_> = targets.iter().map(|it| it.server.endpoint()).collect();
                (ends, *template)
            }
            Decision::Rejected(_) => (Vec::new(), None),
            other => panic!("{server}: {other:?}"),
        };
        let socket = UdpSocket::bind(from).unwrap();
        // The real servers have no route: only the selection is tested.
        let _ = socket.send_to(b"x", to);
        let after = self.dump(server);
        let count = |all: &[Destination], end| {
            let found = all.iter().find(|it| it.server.endpoint() == end);
            found.map_or(0, |it| it.connections.active + it.connections.inactive)
        };
        let ends = after.iter().map(|it| it.server.endpoint());
        let selected: Vec<_> = ends
            .filter(|end| count(&after, *end) > count(&before, *end))
            .collect();
        let is_expected = match &*selected {
            [] => expected.is_empty(),
            [one] => expected.contains(one),
            _ => false,
        };
        assert!(
            is_expected,
            "-A {server}: {from} to {to}: selected {selected:?} instead of {expected:?}"
        );
        self.packets += 1;
        let selected = selected.first().copied();
        if let (Some(key), Some(selected)) = (template, selected) {
            self.templates.insert(key, selected);
        }
        selected
    }
}

fn with_bench(seed: u64, test: impl FnOnce(&mut Bench<'_>) + Send) {
    with_client(|client| {
        assign_addresses();
        let mut bench = Bench {
            client,
            random: Random(seed),
            port: 20_000,
            templates: BTreeMap::new(),
            packets: 0,
        };
        test(&mut bench);
        let packets = bench.packets;
        testkit::figures!("seed {seed}: {packets} packets, 0 disagreements");
    });
}

#[test]
fn the_selected_server_is_that_of_the_kernel() {
    with_bench(0x1234_5678, |bench| {
        for (row, (options, reals)) in (0..).zip(TABLE) {
            for family in 0..2 {
                let servers: Vec<_> = (0..VIRTUAL)
                    .map(|number| {
                        let key =
                            ServiceKey::new(Transport::Udp, addr(family, 1, number), 100 + row);
                        bench.add(key, options, &reals)
                    })
                    .collect();
                let count = if options.starts_with("dh") {
                    VIRTUAL
                } else {
                    1
                };
                for packet in 0..PACKETS {
                    let number = packet % count;
                    let to = SocketAddr::new(addr(family, 1, number), 100 + row);
                    bench.send(&servers[number as usize], to);
                }
            }
        }
        assert!(bench.packets >= 500);
    });
}

#[test]
fn shares_of_rr_and_wrr_are_exact_over_a_period() {
    with_bench(0x2345, |bench| {
        for (options, weights, expected) in [
            ("rr", ["-w 1", "-w 3", "-w 2"], [8, 8, 8]),
            ("wrr", ["-w 1", "-w 3", "-w 2"], [4, 12, 8]),
        ] {
            let to = SocketAddr::new(addr(0, 1, 0), 1000 + expected[0]);
            let key = ServiceKey::new(Transport::Udp, to.ip(), to.port());
            let server = bench.add(key, options, &weights);
            let mut counts = [0; 3];
            for _ in 0..PACKETS {
                let selected = bench.send(&server, to).unwrap();
                let place = (0..3).find(|at| addr(0, 2, *at) == selected.ip()).unwrap();
                counts[place as usize] += 1;
            }
            assert_eq!(counts, expected, "{options}");
        }
    });
}

#[test]
fn templates_keep_clients_and_unknown_state_leaves_several_servers() {
    with_bench(0x3456, |bench| {
        for (port, options, netmask) in [
            (2000, "rr -p 300", ""),
            (2001, "wrr -p 300", "-M 255.255.255.252"),
            (0, "rr -p 300", ""),
            (2002, "lblc", ""),
            (2003, "lblcr", ""),
        ] {
            let key = ServiceKey::new(Transport::Udp, addr(0, 1, 0), port);
            let reals = ["-w 1", "-w 3", "-w 2"];
            let server = bench.add(key, &format!("{options} {netmask}"), &reals);
            for packet in 0..PACKETS {
                let port = if port == 0 {
                    3000 + packet as u16 % 3
                } else {
                    port
                };
                bench.send(&server, SocketAddr::new(addr(0, 1, 0), port));
            }
        }
    });
}
