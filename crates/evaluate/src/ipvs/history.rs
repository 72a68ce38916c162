//! Connections and persistence templates of the past.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use vipline_ipvs::Connection;
use vipline_ipvs::Netmask;

/// The key of a persistence template: connections with the same key go to the same real
/// server.
///
/// Exhaustive: these values identify a template.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TemplateKey {
    /// Address of the client under the netmask of the virtual server.
    pub client: IpAddr,
    /// Protocol, or 0 for a firewall mark.
    pub protocol: u8,
    /// Address of the virtual server. `None`: a firewall mark.
    pub address: Option<IpAddr>,
    /// Firewall mark, or 0.
    pub mark: u32,
    /// Port of the virtual server. 0 for FTP, port 0 and firewall marks.
    pub port: u16,
}

/// States of templates: `ip_vs_state_name` of `net/netfilter/ipvs/ip_vs_proto.c`.
const STATES: [&str; 2] = ["NONE", "ASSURED"];

/// Protocols of templates, `IP` for a firewall mark: `IPPROTO_*` of `linux/in.h`.
const PROTOCOLS: [(&str, u8); 4] = [("IP", 0), ("TCP", 6), ("UDP", 17), ("SCTP", 132)];

impl TemplateKey {
    /// Returns the key of an entry of the connection table, or `None` if the entry is no
    /// template or belongs to a persistence engine. The real server is its destination.
    pub fn of(connection: &Connection) -> Option<Self> {
        let is_template = connection.client.port() == 0 && STATES.contains(&&*connection.state);
        if !is_template || connection.persistence.is_some() {
            return None;
        }
        let mut known = PROTOCOLS.into_iter();
        let (_, protocol) = known.find(|(name, _)| *name == connection.protocol.as_str())?;
        let service = connection.service;
        // The first bytes of the address of the template of a firewall mark are the mark.
        let mark = match service.ip() {
            IpAddr::V4(mark) => mark.to_bits(),
            IpAddr::V6(mark) => u32::try_from(mark.to_bits() >> 96).ok()?,
        };
        let is_mark = protocol == 0;
        Some(Self {
            client: connection.client.ip(),
            protocol,
            address: (!is_mark).then_some(service.ip()),
            mark: if is_mark { mark } else { 0 },
            port: service.port(),
        })
    }
}

/// Answers about the past: which templates exist.
///
/// A map of all templates implements it, and [`Unknown`] knows none.
pub trait History {
    /// Returns the real server of a template: `None` if it is unknown whether the template
    /// exists, and `Some(None)` if the template does not exist.
    fn template(&self, key: &TemplateKey) -> Option<Option<SocketAddr>>;
}

/// An unknown history.
///
/// Exhaustive: it has no values.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Unknown;

impl History for Unknown {
    fn template(&self, _: &TemplateKey) -> Option<Option<SocketAddr>> {
        None
    }
}

impl History for BTreeMap<TemplateKey, SocketAddr> {
    fn template(&self, key: &TemplateKey) -> Option<Option<SocketAddr>> {
        Some(self.get(key).copied())
    }
}

/// Applies a netmask to an address.
pub(super) fn masked(addr: IpAddr, mask: Netmask) -> IpAddr {
    match (addr, mask) {
        (IpAddr::V4(addr), Netmask::V4(mask)) => {
            Ipv4Addr::from_bits(addr.to_bits() & mask.to_bits()).into()
        }
        (IpAddr::V6(addr), Netmask::V6(bits)) => {
            let shift = 128_u32.saturating_sub(bits.into());
            let mask = u128::MAX.checked_shl(shift).unwrap_or(0);
            Ipv6Addr::from_bits(addr.to_bits() & mask).into()
        }
        (addr, _) => addr,
    }
}
