//! Addresses and networks as text.
//!
//! - Old objects may have octets with leading zeros, and IPv4-mapped addresses: both mean
//!   the IPv4 address.
//! - The proxy refuses loopback, link-local, multicast, broadcast and unspecified
//!   addresses of external IPs, load balancers and endpoints.

use std::net::{IpAddr, Ipv4Addr};

use vipline_service_model::ipnet::IpNet;

/// Parses an address.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    let padded = || {
        let octets: Option<Vec<u8>> = text.split('.').map(|octet| octet.parse().ok()).collect();
        let octets: [u8; 4] = octets?.try_into().ok()?;
        Some(Ipv4Addr::from(octets).into())
    };
    let parsed = text.parse().ok().or_else(padded);
    parsed.map(|ip: IpAddr| ip.to_canonical())
}

/// Parses a network.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    let (ip, length) = text.trim().split_once('/')?;
    let length: u8 = length.parse().ok()?;
    let ip = address(ip)?;
    let is_mapped = ip.is_ipv4() && text.contains(':');
    let length = if is_mapped {
        length.checked_sub(96)?
    } else {
        length
    };
    Some(IpNet::new(ip, length).ok()?.trunc())
}

/// Parses an external address or the address of an endpoint.
pub(crate) fn reachable(text: &str) -> Option<IpAddr> {
    let is_refused = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    address(text).filter(|ip| {
        !is_refused(ip) && !ip.is_loopback() && !ip.is_multicast() && !ip.is_unspecified()
    })
}
