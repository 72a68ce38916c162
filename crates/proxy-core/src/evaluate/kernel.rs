//! Reading of addresses, routes and the state of all modes of this node.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::collections::BTreeMap;
use std::fs;

use vipline_evaluate::{Host, ReversePath};
use vipline_netlink::{Errno, Protocol, Request, Requester};
use vipline_nftables::{self as nftables, DumpOptions, Family, HookEntry, RecordedDump};
use vipline_rtnl::{self as rtnl, Client};

use super::routes::{self, MainRoute, Target};
use super::saved::{HOOKS, KernelState, Link, SavedRoute, Way};
use crate::{Error, Mode};

/// Whether packets of bridges pass the rules of IPv4 and IPv6, if `br_netfilter` is loaded.
const BRIDGE_SYSCTLS: [&str; 2] = [
    "/proc/sys/net/bridge/bridge-nf-call-iptables",
    "/proc/sys/net/bridge/bridge-nf-call-ip6tables",
];

/// Maximum number of attempts to read the routes.
const ATTEMPTS: usize = 10;

/// The operation of requests, the routes and the rules of policy routing, in errors.
const LIST: &str = "list";
const ROUTES: &str = "routes";
const RULES: &str = "rules of policy routing";

/// Returns the addresses and routes in the network namespace of the calling thread.
///
/// Routes of the main table are considered, and policy routing is not. No packet exceeds a
/// limit. Requires no capability.
///
/// # Errors
///
/// rtnetlink cannot be read. A kernel without IPv6 is no error.
pub fn observed_host() -> Result<Host, Error> {
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
/// As [`observed_host`], and the error of a mode whose state cannot be read.
pub fn read_kernel() -> Result<KernelState, Error> {
    let mut state = read_host()?;
    match record_tables() {
        Err(nftables::Error::Unsupported { .. }) => {}
        recorded => {
            (state.dump, state.hooks) =
                recorded.map_err(Error::of("read the tables of nf_tables"))?;
        }
    }
    for mode in Mode::BUILT_IN {
        mode.backend().and_then(|it| it.save(&mut state))?;
    }
    Ok(state)
}

/// Records the tables that packets pass, and the order of their base chains.
fn record_tables() -> Result<(RecordedDump, Vec<HookEntry>), nftables::Error> {
    let mut client = nftables::Client::open()?;
    let families = [Family::Ip, Family::Ip6, Family::Inet, Family::Netdev];
    let mut tables: Vec<_> = client.tables()?.into_iter().map(|it| it.id).collect();
    tables.retain(|table| families.contains(&table.family));
    let options = DumpOptions::new().with_dynamic_elements();
    let dump = client.record(&tables, options)?;
    let mut hooks = read_hooks(&mut client, Family::Ip)?;
    hooks.extend(read_hooks(&mut client, Family::Ip6)?);
    Ok((dump, hooks))
}

/// Reads the base chains that packets of a family pass, in the order of the kernel. Empty if
/// the kernel does not list them.
pub(crate) fn read_hooks(
    client: &mut nftables::Client,
    family: Family,
) -> Result<Vec<HookEntry>, nftables::Error> {
    let mut entries = read_functions(client, family)?.unwrap_or_default();
    entries.retain(|it| it.chain.is_some());
    Ok(entries)
}

/// Reads what packets of a family pass at the hooks. `None`: the kernel does not list it.
pub(crate) fn read_functions(
    client: &mut nftables::Client,
    family: Family,
) -> Result<Option<Vec<HookEntry>>, nftables::Error> {
    let mut entries = Vec::new();
    for hook in HOOKS {
        match client.hooks(family, hook) {
            Ok(found) => entries.extend(found),
            Err(nftables::Error::KernelTooOld { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(entries))
}

fn of_routes(error: rtnl::Error) -> Error {
    Error::of("list the routes of the main table")(error)
}

fn read_host() -> Result<KernelState, Error> {
    let snapshot = Client::open().and_then(|mut client| client.dump());
    let snapshot = snapshot.map_err(Error::of("list the addresses of the interfaces"))?;
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
    let routes = read_routes().map_err(of_routes)?.into_iter();
    let routes = routes.map(|route| saved(route, &names));
    let routes: Result<_, _> = routes.collect();
    let bridges = snapshot
        .links()
        .filter(|link| link.kind.name() == Some("bridge"));
    let bridges = bridges.map(|link| link.name.to_string()).collect();
    let (bridges, unfiltered) = match are_bridges_filtered() {
        true => (bridges, Vec::new()),
        false => (Vec::new(), bridges),
    };
    let links = || {
        snapshot
            .links()
            .filter(|link| link.name.to_str() != Some("lo"))
    };
    let works = |link: &&rtnl::Link| {
        link.flags
            .contains(rtnl::LinkFlags::UP | rtnl::LinkFlags::LOWER_UP)
    };
    let down = links().filter(|link| !works(link));
    let working = || links().filter(works).map(|link| link.name.to_string());
    let filters = working().filter_map(|name| Some((reverse_path(&name)?, name)));
    Ok(KernelState {
        down: down.map(|link| link.name.to_string()).collect(),
        not_forwarding: not_forwarding(working),
        policies: read_policies().map_err(of_routes)?,
        filters: filters.collect(),
        addresses: addresses.collect(),
        bridges,
        unfiltered,
        routes: routes.map_err(of_routes)?,
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
            let name = name.ok_or_else(|| vipline_rtnl::Error::Interrupted {
                operation: LIST,
                object: ROUTES.into(),
                attempts: 1,
            })?;
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

/// Returns the interfaces that do not forward packets, with the family.
///
/// IPv4 has a sysctl for each interface. In IPv6 that of all interfaces decides (`ip6_forward`
/// of `net/ipv6/ip6_output.c`). A missing sysctl decides nothing.
fn not_forwarding<N: Iterator<Item = String>>(names: impl Fn() -> N) -> Vec<(Family, String)> {
    let is_off = |path: String| {
        let value = fs::read_to_string(path);
        value.is_ok_and(|value| value.trim() == "0")
    };
    let v4 = |name: &String| is_off(format!("/proc/sys/net/ipv4/conf/{name}/forwarding"));
    let v6 = is_off("/proc/sys/net/ipv6/conf/all/forwarding".to_owned());
    let of_v4 = names().filter(v4).map(|name| (Family::Ip, name));
    let of_v6 = names().filter(|_| v6).map(|name| (Family::Ip6, name));
    of_v4.chain(of_v6).collect()
}

/// Returns the reverse path filter of an interface: the maximum of its sysctl and that of all
/// interfaces (`IN_DEV_RPFILTER` of `linux/inetdevice.h`).
fn reverse_path(name: &str) -> Option<ReversePath> {
    let value = |name: &str| -> Option<u8> {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    ReversePath::from_number(value(name).max(value("all"))?)
}

/// Returns the priorities of the rules of policy routing besides those of each network
/// namespace.
fn read_policies() -> Result<Vec<u32>, vipline_rtnl::Error> {
    let listed = Requester::<vipline_rtnl::Command>::open(Protocol::ROUTE)?.list(
        Request::new(routes::GET_RULE, LIST, &RULES),
        ATTEMPTS,
        |request| request.extend_from_slice(&[0; routes::HEADER]),
        Vec::new,
        |all, message| {
            if message.ty == routes::NEW_RULE {
                all.push(routes::priority(message.payload)?);
            }
            Ok(())
        },
    );
    let mut priorities = match listed {
        // The kernel lacks `CONFIG_FIB_RULES`.
        Err(error) if error.errno() == Some(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        listed => listed?,
    };
    priorities.retain(|priority| !routes::DEFAULT_RULES.contains(priority));
    priorities.sort_unstable();
    priorities.dedup();
    Ok(priorities)
}

fn read_routes() -> Result<Vec<MainRoute>, vipline_rtnl::Error> {
    Requester::open(Protocol::ROUTE)?.list(
        Request::new(routes::GET_ROUTE, LIST, &ROUTES),
        ATTEMPTS,
        |request| request.extend_from_slice(&[0; routes::HEADER]),
        Vec::new,
        |all, message| {
            if message.ty == routes::NEW_ROUTE {
                all.extend(routes::decode(message.payload)?);
            }
            Ok(())
        },
    )
}
