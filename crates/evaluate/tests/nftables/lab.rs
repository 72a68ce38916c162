//! A client, a router with a ruleset, and a server.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use testkit::link::{self, Hop};
use testkit::netns::Netns;
use testkit::nft;
use vipline_evaluate::Packet;
use vipline_nftables::expr::Expr;
use vipline_nftables::{Client, Edit, Family, Name, Object, Ruleset, TableId, Transaction};

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

/// Counts of rules by chain and position. Rules without packets are left out.
pub(crate) type Counts = BTreeMap<(String, usize), u64>;

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
    nft: Client,
    recorders: Vec<(Received, Client)>,
    _server: Netns,
    before: Counts,
    is_installed: bool,
}

pub(crate) fn table() -> TableId {
    TableId::new(Family::Ip, Name::new("t").unwrap())
}

impl Lab {
    pub(crate) fn new() -> Self {
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
        router.run(|| {
            let server = Hop::Via(IpAddr::from([10, 1, 0, 2]));
            link::add_route(SERVICES.parse().unwrap(), server, "right").unwrap();
        });
        let recorders = [
            (Received::Client, &client, "prerouting"),
            (Received::Router, &router, "input"),
            (Received::Server, &server, "prerouting"),
        ];
        let recorders = recorders.map(|(at, netns, hook)| {
            let script = RECORDER.replace("HOOK", hook);
            netns.run(|| nft::succeeds(&["-f", "-"], &script));
            (at, netns.run(Client::open).unwrap())
        });
        Self {
            nft: router.run(Client::open).unwrap(),
            recorders: recorders.into(),
            client,
            router,
            _server: server,
            before: Counts::new(),
            is_installed: false,
        }
    }

    /// Replaces the ruleset and returns its dump, with the elements of dynamic sets: none.
    pub(crate) fn install(&mut self, objects: Vec<Object>) -> Ruleset {
        if self.is_installed {
            let table = vipline_nftables::Table::new(table());
            self.nft.delete(table).unwrap();
        }
        let edits: Vec<_> = objects.into_iter().map(Edit::Add).collect();
        self.nft.commit(&Transaction::from_edits(&edits)).unwrap();
        self.is_installed = true;
        self.before = Counts::new();
        self.nft.dump(&[table()]).unwrap()
    }

    /// Returns the counts of all packets since the ruleset was installed.
    fn counts(&mut self) -> Counts {
        let mut counts = Counts::new();
        for object in self.nft.dump(&[table()]).unwrap() {
            let Object::Chain(chain) = object else {
                continue;
            };
            for (at, rule) in chain.rules.iter().enumerate() {
                for expr in &rule.exprs {
                    if let Expr::Counter(counter) = expr {
                        counts.insert((chain.name.to_string(), at), counter.packets);
                    }
                }
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
            let change = now.iter().map(|(key, count)| {
                let before = self.before.get(key).copied().unwrap_or(0);
                (key.clone(), count - before)
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
        let id = TableId::new(Family::Ip, Name::new("seen").unwrap());
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
