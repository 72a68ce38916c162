//! A lab with IPVS on the node: clients send requests, pods reply.

use std::net::SocketAddr;
use std::sync::MutexGuard;

use testkit::lab::{Host, Lab};
use testkit::link;
use testkit::traffic::{Connection, Probe, Protocol, Server};
use vipline_ipvs::{Client, ServiceKey};

use crate::{alone, commands, ip};

/// Addresses of the virtual servers, assigned to the node.
pub(crate) const VIRTUAL: [&str; 2] = ["203.0.113.1", "2001:db8:2::1"];

/// Port of the real servers.
pub(crate) const PORT: u16 = 8080;

/// A lab, an IPVS client on its node, and a server in each backend.
///
/// No other test runs while it exists.
pub(crate) struct Site {
    pub(crate) lab: Lab,
    pub(crate) client: Client,
    pub(crate) servers: Vec<Server>,
    /// Port of the last virtual server.
    port: u16,
    _alone: MutexGuard<'static, ()>,
}

impl Site {
    pub(crate) fn new(backends: usize) -> Self {
        let alone = alone();
        let lab = Lab::with_backends(backends).unwrap();
        let client = lab.node.netns.run(|| {
            for address in VIRTUAL {
                link::add_address("lo", ip(address).into()).unwrap();
            }
            Client::open().expect("the kernel has IPVS")
        });
        let mut servers = Vec::new();
        for backend in &lab.backends {
            for (protocol, address) in both().into_iter().flat_map(|protocol| {
                let addresses = backend.addresses().into_iter();
                addresses.map(move |address| (protocol, address))
            }) {
                let at = (address, PORT).into();
                servers.push(Server::start(&backend.netns, protocol, at, &backend.name).unwrap());
            }
        }
        Self {
            lab,
            client,
            servers,
            port: 1000,
            _alone: alone,
        }
    }

    /// Adds a virtual server at a new port, with the first backends as real servers,
    /// each with its options.
    /// Returns a request to it.
    pub(crate) fn serve(
        &mut self,
        protocol: Protocol,
        family: usize,
        options: &str,
        reals: &[&str],
    ) -> Probe {
        self.port += 1;
        let target = SocketAddr::new(ip(VIRTUAL[family]), self.port);
        let mut text = format!("-A {} {options}\n", service(protocol, target));
        for (place, options) in reals.iter().enumerate() {
            text += &self.real(protocol, target, place, options);
        }
        self.commit(&text);
        Probe::new(protocol, target)
    }

    /// Returns the line that adds a backend to a virtual server.
    pub(crate) fn real(
        &self,
        protocol: Protocol,
        target: SocketAddr,
        place: usize,
        options: &str,
    ) -> String {
        let family = usize::from(target.is_ipv6());
        let real = SocketAddr::new(self.lab.backends[place].addresses()[family], PORT);
        format!("-a {} -r {real} -m {options}\n", service(protocol, target))
    }

    pub(crate) fn commit(&mut self, text: &str) {
        self.client.commit(&commands(text)).unwrap();
    }

    /// Sends requests and returns the number of replies of each backend.
    pub(crate) fn shares(&self, probe: Probe, from: &Host, count: usize) -> Vec<usize> {
        let answers = probe.times(&from.netns, count);
        assert!(answers.failures.is_empty(), "{probe:?}: {answers}");
        let backends = self.lab.backends.iter();
        backends
            .map(|backend| answers.count(&backend.name))
            .collect()
    }

    /// Opens connections sequentially and keeps them open.
    pub(crate) fn hold(&self, probe: Probe, count: usize) -> Vec<Connection> {
        let open = || Connection::open(&self.lab.client.netns, probe).unwrap();
        (0..count).map(|_| open()).collect()
    }

    /// Returns the number of connections to each backend.
    pub(crate) fn held(&self, connections: &[Connection]) -> Vec<usize> {
        let backends = self.lab.backends.iter();
        let held = backends.map(|backend| {
            let servers = connections.iter().map(Connection::server);
            servers.filter(|server| *server == backend.name).count()
        });
        held.collect()
    }

    /// Returns the number of requests that each backend received, over all
    /// protocols.
    pub(crate) fn requests(&self) -> Vec<usize> {
        let servers = self
            .servers
            .chunks(self.servers.len() / self.lab.backends.len());
        servers
            .map(|servers| servers.iter().map(Server::requests).sum())
            .collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The namespace is removed later and should have no servers then.
        let _ = self.client.flush();
    }
}

/// Returns the key of the service at an address.
fn service(protocol: Protocol, target: SocketAddr) -> ServiceKey {
    let protocol = match protocol {
        Protocol::Tcp => vipline_ipvs::Transport::Tcp,
        Protocol::Udp => vipline_ipvs::Transport::Udp,
    };
    ServiceKey::new(protocol, target.ip(), target.port())
}

/// Returns the protocols of the servers.
pub(crate) fn both() -> [Protocol; 2] {
    [Protocol::Tcp, Protocol::Udp]
}
