//! A small cluster of network namespaces: client, nodes, pods, and the outside world.
//!
//! ```text
//!  client ── 192.0.2.0/24 ──┐         ┌── backend-1  10.244.1.11
//!  192.0.2.10               │         ├── backend-2  10.244.1.12
//!                          node ──────┼── backend-3  10.244.1.13
//!                           │ │       ├── …
//!  world ─ 198.51.100.0/24 ─┘ │       └── pod        10.244.1.101
//!                       172.16.0.0/24
//!                             │
//!                           node-2 ────── remote     10.244.2.11
//! ```
//!
//! The node forwards both families and is the gateway of all other hosts.
//! Each pod has its own link, so traffic between pods passes through the node.
//! The second node only forwards traffic of its single pod.
//! The world accepts all other addresses, and so receives packets that the node
//! wrongly forwards.
//! IPv6 addresses follow the same plan: `2001:db8::10` is the client,
//! `fd00:244:1::11` the first backend.
//!
//! Namespaces have no names and contain all links, so that nothing is left when the
//! process exits for any reason.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use ipnet::IpNet;

use crate::link::{self, Hop};
use crate::netns::Netns;

/// Range of ephemeral ports; wide enough for many connections.
const PORTS: &str = "1024 65535";

/// A namespace of the lab.
#[derive(Debug)]
pub struct Host {
    /// Name in answers: `client`, `node`, `backend-1`, `pod`, …
    pub name: String,
    /// IPv4 address.
    pub v4: Ipv4Addr,
    /// IPv6 address.
    pub v6: Ipv6Addr,
    /// Network namespace.
    pub netns: Netns,
}

/// Connected namespaces, removed when dropped.
#[derive(Debug)]
pub struct Lab {
    /// Host outside the cluster: 192.0.2.10 and 2001:db8::10.
    pub client: Host,
    /// Node on which the proxy runs: 192.0.2.1 and 2001:db8::1.
    ///
    /// Its addresses are 10.244.1.1 and fd00:244:1::1 for pods, 172.16.0.1 and fd00:172::1
    /// for the second node, and 198.51.100.1 and 2001:db8:1::1 for the world.
    pub node: Host,
    /// Pods for servers: 10.244.1.11 and fd00:244:1::11, and so on.
    pub backends: Vec<Host>,
    /// Pod for clients: 10.244.1.101 and fd00:244:1::101.
    pub pod: Host,
    /// Second node, without a proxy: 172.16.0.2 and fd00:172::2.
    pub neighbor: Host,
    /// Pod on the second node, for servers and clients: 10.244.2.11 and fd00:244:2::11.
    pub remote: Host,
    /// Outside world: 198.51.100.2, 2001:db8:1::2 and all other addresses.
    pub world: Host,
}

impl Host {
    fn new(name: &str, v4: &str, v6: &str) -> io::Result<Self> {
        let netns = Netns::new()?;
        netns.run(settings)?;
        Ok(Self {
            name: name.to_owned(),
            v4: v4.parse().expect("an address of the plan"),
            v6: v6.parse().expect("an address of the plan"),
            netns,
        })
    }

    /// Returns both addresses, IPv4 first.
    pub fn addresses(&self) -> [IpAddr; 2] {
        [self.v4.into(), self.v6.into()]
    }
}

impl Lab {
    /// Networks of all pods, as a value of `--cluster-cidr`.
    pub const POD_NETWORKS: &str = "10.244.0.0/16,fd00:244::/32";

    /// Addresses of the node for its pods.
    pub const GATEWAYS: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(10, 244, 1, 1)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0x244, 1, 0, 0, 0, 0, 1)),
    ];

    /// Addresses of the node for the second node.
    pub const TO_NEIGHBOR: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(172, 16, 0, 1)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0x172, 0, 0, 0, 0, 0, 1)),
    ];

    /// Addresses of the second node for its pod.
    const NEIGHBOR_GATEWAYS: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(10, 244, 2, 1)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0x244, 2, 0, 0, 0, 0, 1)),
    ];

    /// Creates a lab with three backends.
    ///
    /// # Errors
    ///
    /// If a namespace or link cannot be created, mostly because the process lacks
    /// privileges; see [`become_root`](crate::privilege::become_root).
    pub fn new() -> io::Result<Self> {
        Self::with_backends(3)
    }

    /// Creates a lab with `count` backends, at most 80.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_backends(count: usize) -> io::Result<Self> {
        assert!(count <= 80, "the plan has room for 80 backends");
        let lab = Self {
            client: Host::new("client", "192.0.2.10", "2001:db8::10")?,
            node: Host::new("node", "192.0.2.1", "2001:db8::1")?,
            backends: (1..=count)
                .map(|number| pod(&format!("backend-{number}"), 10 + number))
                .collect::<io::Result<_>>()?,
            pod: pod("pod", 101)?,
            neighbor: Host::new("node-2", "172.16.0.2", "fd00:172::2")?,
            remote: Host::new("remote", "10.244.2.11", "fd00:244:2::11")?,
            world: Host::new("world", "198.51.100.2", "2001:db8:1::2")?,
        };
        for node in [&lab.node, &lab.neighbor] {
            node.netns.run(|| {
                link::set_sysctl("ipv4/conf/all/forwarding", "1")?;
                link::set_sysctl("ipv6/conf/all/forwarding", "1")
            })?;
        }
        lab.join(&lab.client, ["192.0.2.1/24", "2001:db8::1/64"])?;
        lab.join(&lab.world, ["198.51.100.1/24", "2001:db8:1::1/64"])?;
        lab.join(&lab.neighbor, ["172.16.0.1/24", "fd00:172::1/64"])?;
        lab.accept_all_addresses_in_the_world()?;
        for pod in lab.pods() {
            join_pod(&lab.node, pod, Self::GATEWAYS)?;
        }
        lab.join_remote()?;
        Ok(lab)
    }

    /// Returns the pods on the node: the backends and the client pod.
    pub fn pods(&self) -> impl Iterator<Item = &Host> {
        self.backends.iter().chain([&self.pod])
    }

    /// Connects the node, with addresses `gateways`, to a host in the same two networks.
    fn join(&self, host: &Host, gateways: [&str; 2]) -> io::Result<()> {
        let gateways = gateways.map(net);
        connect(&self.node, host)?;
        self.node.netns.run(|| {
            gateways
                .iter()
                .try_for_each(|gateway| link::add_address(&host.name, *gateway))
        })?;
        host.netns.run(|| {
            for (address, gateway) in host.addresses().into_iter().zip(gateways) {
                let address = IpNet::new(address, gateway.prefix_len()).expect("same family");
                link::add_address("eth0", address)?;
                if host.name != "world" {
                    link::add_route(default(address), Hop::Via(gateway.addr()), "eth0")?;
                }
            }
            Ok(())
        })
    }

    /// Connects the second node to its pod, and adds routes to the pod on the node.
    fn join_remote(&self) -> io::Result<()> {
        join_pod(&self.neighbor, &self.remote, Self::NEIGHBOR_GATEWAYS)?;
        self.node.netns.run(|| {
            for (pods, hop) in ["10.244.2.0/24", "fd00:244:2::/64"]
                .map(net)
                .into_iter()
                .zip(self.neighbor.addresses())
            {
                link::add_route(pods, Hop::Via(hop), &self.neighbor.name)?;
            }
            Ok(())
        })
    }

    /// Routes all addresses outside the lab to the world, which accepts them as local.
    fn accept_all_addresses_in_the_world(&self) -> io::Result<()> {
        self.world.netns.run(|| {
            for (lab, gateway) in [
                ("192.0.2.0/24", "198.51.100.1"),
                ("10.244.0.0/16", "198.51.100.1"),
                ("172.16.0.0/24", "198.51.100.1"),
                ("2001:db8::/64", "2001:db8:1::1"),
                ("fd00:172::/64", "2001:db8:1::1"),
                ("fd00:244::/32", "2001:db8:1::1"),
            ] {
                let gateway = gateway.parse().expect("an address of the plan");
                link::add_route(net(lab), Hop::Via(gateway), "eth0")?;
            }
            for address in self.world.addresses() {
                link::add_route(default(address.into()), Hop::Local, "lo")?;
            }
            io::Result::Ok(())
        })?;
        self.node.netns.run(|| {
            for address in self.world.addresses() {
                link::add_route(default(address.into()), Hop::Via(address), "world")?;
            }
            Ok(())
        })
    }
}

/// Adds a pair of links. The node's end has the name of the host.
fn connect(node: &Host, host: &Host) -> io::Result<()> {
    node.netns
        .run(|| link::add_pair(&host.name, "eth0", host.netns.as_fd()))?;
    node.netns.run(|| link::up(&host.name))?;
    host.netns.run(|| link::up("eth0"))
}

/// Connects a node, with addresses `gateways`, to a pod whose only route is the node.
fn join_pod(node: &Host, pod: &Host, gateways: [IpAddr; 2]) -> io::Result<()> {
    connect(node, pod)?;
    for (address, gateway) in pod.addresses().into_iter().zip(gateways) {
        let (address, gateway) = (IpNet::from(address), IpNet::from(gateway));
        node.netns.run(|| {
            link::add_address(&pod.name, gateway)?;
            link::add_route(address, Hop::Link, &pod.name)
        })?;
        pod.netns.run(|| {
            link::add_address("eth0", address)?;
            link::add_route(gateway, Hop::Link, "eth0")?;
            link::add_route(default(address), Hop::Via(gateway.addr()), "eth0")
        })?;
    }
    Ok(())
}

fn pod(name: &str, number: usize) -> io::Result<Host> {
    let v4 = format!("10.244.1.{number}");
    let v6 = format!("fd00:244:1::{number}");
    Host::new(name, &v4, &v6)
}

/// Configures a namespace before links are added.
///
/// Disables duplicate address detection, ICMP rate limits and redirects.
fn settings() -> io::Result<()> {
    link::set_sysctl("ipv4/ip_local_port_range", PORTS)?;
    for limit in ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"] {
        link::set_sysctl(limit, "0")?;
    }
    for scope in ["all", "default"] {
        for (setting, value) in [
            ("ipv4/conf/SCOPE/send_redirects", "0"),
            ("ipv4/conf/SCOPE/accept_redirects", "0"),
            ("ipv4/conf/SCOPE/rp_filter", "0"),
            ("ipv6/conf/SCOPE/disable_ipv6", "0"),
            ("ipv6/conf/SCOPE/accept_dad", "0"),
            ("ipv6/conf/SCOPE/accept_ra", "0"),
            ("ipv6/conf/SCOPE/accept_redirects", "0"),
        ] {
            link::set_sysctl(&setting.replace("SCOPE", scope), value)?;
        }
    }
    Ok(())
}

/// Returns the destination of the default route in the family of an address.
fn default(address: IpNet) -> IpNet {
    match address {
        IpNet::V4(_) => net("0.0.0.0/0"),
        IpNet::V6(_) => net("::/0"),
    }
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a network of the plan")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Probe, Protocol, Server};

    #[test]
    fn client_node_and_pod_reach_each_backend_with_their_own_address() {
        let lab = Lab::new().unwrap();
        for backend in &lab.backends {
            for (family, address) in backend.addresses().into_iter().enumerate() {
                for protocol in [Protocol::Tcp, Protocol::Udp] {
                    let at = (address, 8080).into();
                    let server = Server::start(&backend.netns, protocol, at, &backend.name);
                    let probe = Probe::new(protocol, server.as_ref().unwrap().address());
                    for host in [&lab.client, &lab.pod] {
                        let answer = probe.once(&host.netns).unwrap();
                        assert_eq!(answer.server, backend.name);
                        assert_eq!(answer.client, host.addresses()[family]);
                    }
                    let answer = probe.once(&lab.node.netns).unwrap();
                    assert_eq!(answer.client, Lab::GATEWAYS[family]);
                }
            }
        }
    }

    #[test]
    fn the_pod_of_the_second_node_is_reachable_and_keeps_its_own_address() {
        let lab = Lab::with_backends(1).unwrap();
        let backend = &lab.backends[0];
        for family in 0..2 {
            let listen = |host: &Host| {
                let at = (host.addresses()[family], 8080).into();
                Server::start(&host.netns, Protocol::Tcp, at, &host.name).unwrap()
            };
            let (near_server, far_server) = (listen(backend), listen(&lab.remote));
            let near = Probe::new(Protocol::Tcp, near_server.address());
            let far = Probe::new(Protocol::Tcp, far_server.address());
            for host in [&lab.client, &lab.pod, backend] {
                let answer = far.once(&host.netns).unwrap();
                assert_eq!(answer.server, "remote");
                assert_eq!(answer.client, host.addresses()[family]);
                assert_eq!(answer.client, answer.local);
            }
            assert_eq!(
                far.once(&lab.node.netns).unwrap().client,
                Lab::TO_NEIGHBOR[family]
            );
            let answer = near.once(&lab.remote.netns).unwrap();
            assert_eq!(answer.client, lab.remote.addresses()[family]);
        }
    }

    #[test]
    fn packets_to_unknown_addresses_reach_the_world() {
        let lab = Lab::with_backends(0).unwrap();
        for (any, target) in [
            (Ipv4Addr::UNSPECIFIED.into(), "10.96.0.10:80"),
            (Ipv6Addr::UNSPECIFIED.into(), "[fd00:10:96::10]:80"),
        ] {
            let any: IpAddr = any;
            let netns = &lab.world.netns;
            let _server = Server::start(netns, Protocol::Tcp, (any, 80).into(), "world").unwrap();
            let probe = Probe::new(Protocol::Tcp, target.parse().unwrap());
            for host in [&lab.client, &lab.node, &lab.pod, &lab.neighbor, &lab.remote] {
                assert_eq!(probe.once(&host.netns).unwrap().server, "world");
            }
        }
    }

    #[test]
    fn requests_to_a_stopped_server_are_counted_as_failures() {
        let lab = Lab::new().unwrap();
        let backend = &lab.backends[0];
        let at = (backend.v4, 8080).into();
        let server = Server::start(&backend.netns, Protocol::Tcp, at, "gone").unwrap();
        let probe = Probe::new(Protocol::Tcp, server.address());
        assert_eq!(probe.times(&lab.client.netns, 50).count("gone"), 50);
        drop(server);
        let answers = probe.times(&lab.client.netns, 5);
        assert_eq!(answers.failures.len(), 5);
        assert_eq!(answers.failures[0].kind, io::ErrorKind::ConnectionRefused);
    }
}
