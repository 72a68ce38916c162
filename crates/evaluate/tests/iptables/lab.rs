//! A client, a router with rules, and a server.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use testkit::iptables::Programs;
use testkit::link::{self, Hop};
use testkit::netns::Netns;
use testkit::nft;
use vipline_evaluate::Packet;
use vipline_evaluate::iptables::Rules;
use vipline_iptables::{Family, Tables, Variant, nft as over_netlink};
use vipline_nftables::expr::Expr;
use vipline_nftables::{Name, Object, TableId};

/// Addresses of the router, and a network without hosts that it routes to the server.
pub(crate) const LEFT: &str = "10.0.0.1/24";
pub(crate) const RIGHT: &str = "10.1.0.1/24";
pub(crate) const SERVICES: &str = "10.9.0.0/24";
/// Time until the counts of a packet are final.
const PATIENCE: Duration = Duration::from_secs(2);

/// Records received packets. Each has its own source port.
const RECORDER: &str = "table ip seen {
    set packets {
        type ipv4_addr . inet_service . ipv4_addr . inet_service
        flags dynamic
        size 65535
    }
    chain record {
        type filter hook HOOK priority 1000
        meta l4proto udp add @packets { ip saddr . th sport . ip daddr . th dport }
    }
}";

/// Counts of rules by table, chain and position. Rules without packets are left out.
pub(crate) type Counts = BTreeMap<(String, String, usize), u64>;

/// A namespace that received a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Received {
    Client,
    Router,
    Server,
}

/// The namespaces, with clients of the router and of the recorders.
pub(crate) struct Lab {
    client: Netns,
    router: Netns,
    _server: Netns,
    programs: Programs,
    variant: Variant,
    nft: vipline_nftables::Client,
    recorders: Vec<(Received, vipline_nftables::Client)>,
    before: Counts,
}

/// Runs a program in the namespace of the calling thread, and returns its output.
fn run(mut command: Command, input: &str) -> String {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}\n{input}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the tables of iptables-nft.
fn tables() -> [TableId; 4] {
    ["raw", "mangle", "nat", "filter"].map(|name| {
        let name = Name::new(name).unwrap();
        TableId::new(vipline_nftables::Family::Ip, name)
    })
}

impl Lab {
    pub(crate) fn new(variant: Variant) -> Self {
        let [client, router, server] = [(); 3].map(|()| Netns::new().unwrap());
        for netns in [&client, &router, &server] {
            netns.run(|| {
                link::set_sysctl("ipv6/conf/all/disable_ipv6", "1").unwrap();
                link::set_sysctl("ipv4/conf/all/rp_filter", "0").unwrap();
                link::set_sysctl("ipv4/conf/default/rp_filter", "0").unwrap();
            });
        }
        router.run(|| {
            link::set_sysctl("ipv4/conf/all/forwarding", "1").unwrap();
            link::add_pair("left", "client", client.as_fd()).unwrap();
            link::add_pair("right", "server", server.as_fd()).unwrap();
            for (name, addr) in [("left", LEFT), ("right", RIGHT)] {
                link::up(name).unwrap();
                link::add_address(name, addr.parse().unwrap()).unwrap();
            }
            let server = Hop::Via(IpAddr::from([10, 1, 0, 2]));
            link::add_route(SERVICES.parse().unwrap(), server, "right").unwrap();
        });
        let join = |netns: &Netns, name: &str, addrs: &[&str], gateway: [u8; 4]| {
            netns.run(|| {
                link::up(name).unwrap();
                for addr in addrs {
                    link::add_address(name, addr.parse().unwrap()).unwrap();
                }
                let gateway = Hop::Via(IpAddr::from(gateway));
                link::add_route("0.0.0.0/0".parse().unwrap(), gateway, name).unwrap();
            });
        };
        let clients = ["10.0.0.2/24", "10.0.0.3/24", "10.0.0.9/24"];
        join(&client, "client", &clients, [10, 0, 0, 1]);
        let servers = ["10.1.0.2/24", "10.1.0.3/24", "10.1.0.4/24"];
        join(&server, "server", &servers, [10, 1, 0, 1]);
        let recorders = [
            (Received::Client, &client, "prerouting"),
            (Received::Router, &router, "input"),
            (Received::Server, &server, "prerouting"),
        ];
        let recorders = recorders.map(|(at, netns, hook)| {
            let script = RECORDER.replace("HOOK", hook);
            netns.run(|| nft::succeeds(&["-f", "-"], &script));
            (at, netns.run(vipline_nftables::Client::open).unwrap())
        });
        let programs = Programs::new().unwrap();
        programs.variant(&format!("iptables-{variant}")).unwrap();
        Self {
            nft: router.run(vipline_nftables::Client::open).unwrap(),
            client,
            router,
            _server: server,
            programs,
            variant,
            recorders: recorders.into(),
            before: Counts::new(),
        }
    }

    /// Runs `iptables-save` or `iptables-restore` of the variant on the router.
    fn program(&self, name: &str, args: &[&str], input: &str) -> String {
        let path = self
            .programs
            .path(&format!("iptables-{}-{name}", self.variant));
        let mut command = Command::new(path);
        command.args(args);
        self.router.run(|| run(command, input))
    }

    /// Replaces sets and rules.
    pub(crate) fn install(&mut self, document: &str, sets: &str) {
        let mut ipset = Command::new("ipset");
        ipset.arg("restore");
        self.router.run(|| run(ipset, sets));
        self.program("restore", &[], document);
        self.before = Counts::new();
    }

    /// Returns the output of `iptables-save` with counters.
    pub(crate) fn saved(&self) -> String {
        self.program("save", &["-c"], "")
    }

    /// Returns the rules over netlink, for the nft variant.
    pub(crate) fn dumped(&mut self) -> Option<Rules> {
        if self.variant != Variant::Nft {
            return None;
        }
        let sets = self.router.run(|| {
            let mut client = over_netlink::Client::open(Family::V4).unwrap();
            client.set_names().unwrap()
        });
        let dump = self.nft.dump(&tables()).unwrap();
        Some(Rules::from_dump(dump, sets))
    }

    /// Returns the counts of all packets since the rules were installed: as
    /// `iptables-legacy-save` prints them, or over netlink.
    fn counts(&mut self) -> Counts {
        let mut counts = Counts::new();
        if self.variant == Variant::Nft {
            for object in self.nft.dump(&tables()).unwrap() {
                let Object::Chain(chain) = object else {
                    continue;
                };
                for (at, rule) in chain.rules.iter().enumerate() {
                    let counter = rule.exprs.iter().find_map(|expr| match expr {
                        Expr::Counter(counter) => Some(counter.packets),
                        _ => None,
                    });
                    let (table, chain) = (chain.table.name.to_string(), chain.name.to_string());
                    counts.insert((table, chain, at), counter.unwrap());
                }
            }
            return counts;
        }
        let saved = self.saved();
        let tables = Tables::parse(&saved).unwrap();
        for table in tables.iter() {
            let mut places: BTreeMap<&str, usize> = BTreeMap::new();
            for rule in table.rules() {
                let at = places.entry(rule.chain()).or_default();
                let place = (table.name().to_owned(), rule.chain().to_owned(), *at);
                *at += 1;
                counts.insert(place, rule.counters().unwrap().packets);
            }
        }
        counts
    }

    /// Sends a packet and returns its counts. Waits until they are as expected, up to a
    /// limit.
    pub(crate) fn counts_of(
        &mut self,
        packet: &Packet,
        is_expected: impl Fn(&Counts) -> bool,
    ) -> Counts {
        let end = |addr, port: Option<u16>| SocketAddr::new(addr, port.unwrap());
        let source = end(packet.source(), packet.source_port());
        let destination = end(packet.destination(), packet.destination_port());
        let from = match packet.input() {
            Some(_) => &self.client,
            None => &self.router,
        };
        from.run(|| {
            let socket = UdpSocket::bind(source).unwrap();
            // The kernel reports to a local sender that a rule dropped the packet.
            let _ = socket.send_to(b"x", destination);
        });
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = self.counts();
            let change = now.iter().map(|(place, count)| {
                let before = self.before.get(place).copied().unwrap_or(0);
                (place.clone(), count - before)
            });
            let change: Counts = change.filter(|(_, count)| *count != 0).collect();
            if is_expected(&change) || Instant::now() > deadline {
                self.before = now;
                return change;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the recorded packets by source port.
    pub(crate) fn received(&mut self) -> BTreeMap<u16, (Received, String)> {
        let id = TableId::new(vipline_nftables::Family::Ip, Name::new("seen").unwrap());
        let mut received = BTreeMap::new();
        for (at, client) in &mut self.recorders {
            let dump = client.dump(&id).unwrap();
            let (set, _) = dump.set(&id, "packets").unwrap();
            for element in client.elements(set).unwrap() {
                let key = element.key_bytes();
                let addr = |at: usize| Ipv4Addr::from(*key[at..].first_chunk::<4>().unwrap());
                let port = |at: usize| u16::from_be_bytes(*key[at..].first_chunk().unwrap());
                let text = format!("udp {}:{} -> {}:{}", addr(0), port(4), addr(8), port(12));
                received.insert(port(4), (*at, text));
            }
        }
        received
    }
}
