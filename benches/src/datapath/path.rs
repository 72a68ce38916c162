//! Three namespaces on one path: client, router, sink.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;

use proxy_core::ipnet::{IpNet, Ipv4Net};
use testkit::link::{self, Hop};
use testkit::netns::Netns;

/// Address of the node for its clients. Node ports are served on this address.
pub const NODE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Address of the node for the sink.
pub const SINK_GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// Network of all pods. Sources in this network are not masqueraded.
pub const POD_NETWORK: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 128, 0, 0), 9);

/// Pods behind the client, the sources of all flows.
pub const CLIENTS: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 200, 0, 0), 16);

/// Link-layer address of the gateway of the endpoints. No link has this address.
const UNUSED: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The namespaces, removed when dropped.
#[derive(Debug)]
pub struct Path {
    /// Pods of the node, without address in [`CLIENTS`].
    pub client: Netns,
    /// The node.
    pub router: Netns,
    /// Pods of other nodes. Drops all received packets.
    pub sink: Netns,
}

impl Path {
    /// Creates the namespaces, without a ruleset.
    ///
    /// # Errors
    ///
    /// If the process lacks CAP_NET_ADMIN or CAP_SYS_ADMIN.
    pub fn new() -> io::Result<Self> {
        let path = Self {
            client: Netns::new()?,
            router: Netns::new()?,
            sink: Netns::new()?,
        };
        for netns in [&path.client, &path.router, &path.sink] {
            netns.run(settings)?;
        }
        path.connect(&path.client, "client", [192, 0, 2])?;
        path.connect(&path.sink, "sink", [198, 51, 100])?;
        path.router.run(|| {
            link::set_sysctl("ipv4/conf/all/forwarding", "1")?;
            let [client, sink] = [[192, 0, 2, 2], [198, 51, 100, 2]].map(IpAddr::from);
            link::add_route(CLIENTS.into(), Hop::Via(client), "client")?;
            link::add_route(Ipv4Net::default().into(), Hop::Via(sink), "sink")?;
            // The sink drops packets for another link before routing.
            link::add_neighbor("sink", sink, UNUSED)
        })?;
        Ok(path)
    }

    /// Connects the router to a host; the addresses in the network are 1 and 2.
    fn connect(&self, host: &Netns, name: &str, [a, b, c]: [u8; 3]) -> io::Result<()> {
        let address = |number| Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, number), 24);
        self.router.run(|| {
            link::add_pair(name, "eth0", host.as_fd())?;
            link::up(name)?;
            link::add_address(name, address(1).into())
        })?;
        host.run(|| {
            link::up("eth0")?;
            link::add_address("eth0", address(2).into())?;
            let gateway = address(1).addr().into();
            let all: IpNet = Ipv4Net::default().into();
            link::add_route(all, Hop::Via(gateway), "eth0")
        })
    }

    /// Returns the number of packets that the sink received.
    ///
    /// # Errors
    ///
    /// If the kernel does not report statistics of the link.
    pub fn received(&self) -> io::Result<u64> {
        self.sink.run(|| link::received("eth0"))
    }
}

fn settings() -> io::Result<()> {
    for scope in ["all", "default"] {
        for setting in ["rp_filter", "send_redirects", "accept_redirects"] {
            link::set_sysctl(&format!("ipv4/conf/{scope}/{setting}"), "0")?;
        }
        link::set_sysctl(&format!("ipv6/conf/{scope}/disable_ipv6"), "1")?;
    }
    Ok(())
}
