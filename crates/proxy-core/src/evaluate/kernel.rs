//! Reading of the addresses and routes of this node.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io;

use vipline_nftables::evaluate::{Host, Interface};
use vipline_rtnl::Client;

use super::routes::{self, ProcRoute};

/// Routing tables of the network namespace of the calling thread.
const IPV4_ROUTES: &str = "/proc/thread-self/net/route";
const IPV6_ROUTES: &str = "/proc/thread-self/net/ipv6_route";

/// The addresses or routes of the node cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The addresses cannot be read.
    #[error("list the addresses of the interfaces")]
    Addresses(#[from] vipline_rtnl::Error),
    /// The routes cannot be read.
    #[error("read {path}")]
    Routes {
        /// File of the kernel.
        path: &'static str,
        /// The error.
        source: io::Error,
    },
}

/// Returns the addresses and routes in the network namespace of the calling thread.
///
/// Routes of the main table are considered, and policy routing is not. No packet exceeds a
/// limit. Requires no capability.
///
/// # Errors
///
/// rtnetlink or a file of `/proc` cannot be read. A kernel without IPv6 is no error.
pub fn observed_host() -> Result<Host, HostError> {
    let snapshot = Client::open()?.dump()?;
    let links = snapshot.links().map(|link| {
        let name = link.name.to_string();
        let interface = Interface::new(&*name).with_index(link.index);
        (name, interface)
    });
    let links: BTreeMap<String, Interface> = links.collect();
    let interface = |name: String| match links.get(&name) {
        Some(interface) => interface.clone(),
        None => Interface::new(name),
    };
    let addresses = snapshot.addresses();
    let host = addresses.fold(Host::new(), |host, address| {
        host.with_addr(interface(address.interface.to_string()), address.net)
    });
    // Of several routes to a network, the last one with the lowest metric is used.
    let mut routes = read_routes()?;
    routes.sort_by_key(|route| std::cmp::Reverse(route.metric));
    let host = routes.into_iter().fold(host, |host, route| {
        host.with_route(route.destination, interface(route.interface))
    });
    Ok(host.with_limits_exceeded(false))
}

fn read_routes() -> Result<Vec<ProcRoute>, HostError> {
    let mut all = routes::ipv4(&read(IPV4_ROUTES)?.unwrap_or_default());
    let ipv6 = read(IPV6_ROUTES)?;
    all.extend(routes::ipv6(&ipv6.unwrap_or_default()));
    Ok(all)
}

/// Reads a file of the kernel. Returns `None` if it does not exist.
fn read(path: &'static str) -> Result<Option<String>, HostError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(HostError::Routes { path, source }),
    }
}
