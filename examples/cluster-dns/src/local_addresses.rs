//! Addresses of this server, by which the zone finds the Services in its `NS` records.

use std::net::{IpAddr, SocketAddr};

use tracing::warn;
use vipline_netlink::Dump;
use vipline_rtnl::{Client, Error, Name};

/// Interface of kube-proxy in mode ipvs. Its addresses belong to Services.
const IPVS_INTERFACE: &str = "kube-ipvs0";

/// Returns the addresses on which listeners are reachable.
///
/// A listener on a wildcard address is reachable on the interfaces' addresses of its
/// family, as of this call, except for loopback and link-local addresses. If they cannot be
/// read, a warning is logged, and only the other listeners count.
pub fn of_listeners(listen: &[SocketAddr]) -> Vec<IpAddr> {
    let (wildcards, mut addresses): (Vec<_>, Vec<_>) = listen
        .iter()
        .map(SocketAddr::ip)
        .partition(IpAddr::is_unspecified);
    if !wildcards.is_empty() {
        let found = of_interfaces().unwrap_or_else(|error| {
            warn!("NS records lack the addresses of the interfaces: {error}");
            Vec::new()
        });
        let is_served =
            |address: &IpAddr| wildcards.iter().any(|it| it.is_ipv4() == address.is_ipv4());
        addresses.extend(found.into_iter().filter(is_served));
    }
    addresses
}

/// Returns the addresses of the interfaces in the network namespace of the calling thread.
fn of_interfaces() -> Result<Vec<IpAddr>, Error> {
    let mut client = Client::open()?;
    let ipvs = Name::new(IPVS_INTERFACE).expect("a valid name");
    let ipvs = client.link(&ipvs)?.map(|link| link.index);
    // Addresses that change all the time are better than none.
    let (Dump::Complete(mut found) | Dump::Interrupted(mut found)) = client.dump_addresses()?;
    found.retain(|address| Some(address.index) != ipvs);
    let addresses = found.into_iter().map(|address| address.net.addr());
    Ok(addresses.filter(is_reachable).collect())
}

/// Returns whether clients of other hosts can use an address.
fn is_reachable(address: &IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !address.is_loopback() && !is_link_local
}
