//! Node ports.
//!
//! - Node ports are served on addresses of the node: on all, on the primary address of the
//!   family, or on those within the networks of the family.
//! - The primary address is the first InternalIP of the Node object, otherwise the first
//!   ExternalIP. Without one, or with a loopback address, all addresses count.
//! - Node ports are not served on loopback addresses.

use std::net::IpAddr;

use vipline_service_model::NodePortAddresses;
use vipline_service_model::ipnet::IpNet;

use super::{Oracle, text};

/// Returns whether node ports are served on an address.
pub(crate) fn is_served(oracle: &Oracle<'_>, ip: IpAddr) -> bool {
    oracle.world.node.is_local(ip) && !ip.is_loopback() && is_selected(oracle, ip)
}

/// Returns whether `--nodeport-addresses` selects an address.
pub(crate) fn is_selected(oracle: &Oracle<'_>, ip: IpAddr) -> bool {
    let networks = match &oracle.world.config.engine.node_port_addresses {
        NodePortAddresses::All => Vec::new(),
        NodePortAddresses::Within(networks) => networks.clone(),
        NodePortAddresses::Primary => {
            let primary = primary(oracle, ip.is_ipv4()).filter(|ip| !ip.is_loopback());
            primary.map(IpNet::from).into_iter().collect()
        }
    };
    let of_family = networks
        .iter()
        .filter(|it| it.addr().is_ipv4() == ip.is_ipv4());
    let of_family: Vec<_> = of_family.collect();
    let is_all = of_family.is_empty() || of_family.iter().any(|it| it.prefix_len() == 0);
    is_all || of_family.iter().any(|network| network.contains(&ip))
}

/// Returns the primary address of the node in a family.
pub(crate) fn primary(oracle: &Oracle<'_>, is_v4: bool) -> Option<IpAddr> {
    let addresses = &oracle.world.node_object.as_ref()?.status.addresses;
    let of_kind = |kind: &'static str| {
        let own = addresses.iter().filter(move |each| each.kind == kind);
        own.filter_map(|each| text::address(&each.address))
    };
    let mut ordered = of_kind("InternalIP").chain(of_kind("ExternalIP"));
    ordered.find(|ip| ip.is_ipv4() == is_v4)
}
