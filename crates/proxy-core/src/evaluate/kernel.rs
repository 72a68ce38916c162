//! Reading of addresses, routes and the state of all modes of this node.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::collections::BTreeMap;
use std::fs;

use vipline_netlink::{Protocol, Socket};
use vipline_nftables::evaluate::Host;
use vipline_nftables::{self as nftables, DumpOptions, Family, RecordedDump};
use vipline_rtnl::Client;

use super::routes::{self, MainRoute, Target};
use super::saved::{KernelState, Link, SavedRoute, Way};
use crate::{Error, Mode};

/// Whether packets of bridges pass the rules of IPv4 and IPv6, if `br_netfilter` is loaded.
const BRIDGE_SYSCTLS: [&str; 2] = [
    "/proc/sys/net/bridge/bridge-nf-call-iptables",
    "/proc/sys/net/bridge/bridge-nf-call-ip6tables",
];

/// Maximum number of attempts to read the routes.
const ATTEMPTS: usize = 10;

/// The routes, in errors.
const ROUTES: &str = "routes";

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
    #[error("list the routes of the main table")]
    Routes(#[source] vipline_rtnl::Error),
}

/// Returns the addresses and routes in the network namespace of the calling thread.
///
/// Routes of the main table are considered, and policy routing is not. No packet exceeds a
/// limit. Requires no capability.
///
/// # Errors
///
/// rtnetlink cannot be read. A kernel without IPv6 is no error.
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
    let indexes: BTreeMap<String, u32> = snapshot
        .links()
        .map(|link| (link.name.to_string(), link.index))
        .collect();
    let link = |name: String| Link {
        index: indexes.get(&name).copied(),
        name,
    };
    let addresses = snapshot.addresses();
    let addresses = addresses.map(|it| (it.net, link(it.interface.to_string())));
    let names: BTreeMap<u32, String> = snapshot
        .links()
        .map(|link| (link.index, link.name.to_string()))
        .collect();
    let routes = read_routes().map_err(HostError::Routes)?.into_iter();
    let routes = routes.map(|route| saved(route, &names));
    let routes: Result<_, _> = routes.collect();
    let bridges = snapshot
        .links()
        .filter(|link| link.kind.name() == Some("bridge"));
    let is_filtered = are_bridges_filtered();
    let bridges = bridges.filter(|_| is_filtered);
    Ok(KernelState {
        addresses: addresses.collect(),
        bridges: bridges.map(|link| link.name.to_string()).collect(),
        routes: routes.map_err(HostError::Routes)?,
        ..KernelState::default()
    })
}

/// Names the interface of a route. Fails if the interface was created after the links were
/// read.
fn saved(
    route: MainRoute,
    names: &BTreeMap<u32, String>,
) -> Result<SavedRoute, vipline_rtnl::Error> {
    let way = match route.target {
        Target::Discard(kind) => Way::Discard(kind),
        Target::Interface(index, source) => {
            let name = names.get(&index).cloned();
            let name = name.ok_or(vipline_rtnl::Error::Interrupted { what: ROUTES })?;
            let index = Some(index);
            Way::Interface(Link { index, name }, source)
        }
    };
    Ok(SavedRoute {
        destination: route.destination,
        metric: route.metric,
        way,
    })
}

/// Returns whether packets of bridges pass the rules.
fn are_bridges_filtered() -> bool {
    let mut values = BRIDGE_SYSCTLS.iter().map(fs::read_to_string);
    values.any(|value| value.is_ok_and(|value| value.trim() != "0"))
}

fn read_routes() -> Result<Vec<MainRoute>, vipline_rtnl::Error> {
    let mut socket = Socket::open(Protocol::ROUTE)?;
    let request = [0; routes::HEADER];
    let dump = socket.dump(
        routes::GET_ROUTE,
        &request,
        ATTEMPTS,
        Vec::new,
        |all, message| {
            if message.ty == routes::NEW_ROUTE {
                all.extend(routes::decode(message.payload)?);
            }
            Ok::<(), vipline_netlink::Error>(())
        },
    )?;
    let interrupted = vipline_rtnl::Error::Interrupted { what: ROUTES };
    dump.complete().ok_or(interrupted)
}
