//! Reading of addresses, routes and the state of all modes of this node.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io;

use vipline_nftables::evaluate::Host;
use vipline_nftables::{self as nftables, DumpOptions, Family, RecordedDump};
use vipline_rtnl::Client;

use super::routes::{self, ProcRoute};
use super::saved::{KernelState, Link};
use crate::{Error, Mode};

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
    /// The tables of nf_tables cannot be read.
    #[error("read the tables of nf_tables")]
    Nftables(#[from] nftables::Error),
    /// The rules of another variant of iptables, IP sets or virtual servers cannot be read.
    #[error(transparent)]
    Modes(#[from] Box<Error>),
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
    Ok(read_host()?.host())
}

/// Reads addresses, routes and the state of all modes in the network namespace of the calling
/// thread.
///
/// Programs of iptables print the rules of the legacy variant. A kernel without nf_tables,
/// IP sets or IPVS has no such state.
///
/// # Errors
///
/// As [`observed_host`]. [`HostError::Nftables`] and [`HostError::Modes`] if state of a mode
/// cannot be read.
pub fn read_kernel() -> Result<KernelState, HostError> {
    let mut state = read_host()?;
    match record_tables() {
        Err(nftables::Error::Unsupported { .. }) => {}
        dump => state.dump = dump?,
    }
    for mode in Mode::BUILT_IN {
        let saved = mode.backend().and_then(|it| it.save(&mut state));
        saved.map_err(Box::new)?;
    }
    Ok(state)
}

/// Records the tables that packets pass.
fn record_tables() -> Result<RecordedDump, nftables::Error> {
    let mut client = nftables::Client::open()?;
    let families = [Family::Ip, Family::Ip6, Family::Inet, Family::Netdev];
    let mut tables: Vec<_> = client.tables()?.into_iter().map(|it| it.id).collect();
    tables.retain(|table| families.contains(&table.family));
    let options = DumpOptions::new().with_dynamic_elements();
    client.record(&tables, options)
}

fn read_host() -> Result<KernelState, HostError> {
    let snapshot = Client::open()?.dump()?;
    let links: BTreeMap<String, u32> = snapshot
        .links()
        .map(|link| (link.name.to_string(), link.index))
        .collect();
    let link = |name: String| Link {
        index: links.get(&name).copied(),
        name,
    };
    let addresses = snapshot.addresses();
    let addresses = addresses.map(|it| (it.net, link(it.interface.to_string())));
    let routes = read_routes()?.into_iter();
    let routes = routes.map(|it| (it.destination, it.metric, link(it.interface)));
    Ok(KernelState {
        addresses: addresses.collect(),
        routes: routes.collect(),
        ..KernelState::default()
    })
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
