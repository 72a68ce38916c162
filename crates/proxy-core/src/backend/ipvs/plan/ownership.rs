//! Attribution of virtual servers to kube-proxy.
//!
//! A virtual server belongs to kube-proxy if its address is on the link of mode ipvs, or
//! its address and port are in an ipset of the mode.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use vipline_ipset::{Member, Port, SetDump, Sets};
use vipline_ipvs::{Family, ServiceKey};

/// Criteria for virtual servers of kube-proxy.
#[derive(Debug, Default)]
pub(in crate::backend::ipvs) struct Ownership {
    addresses: HashSet<IpAddr>,
    address_ports: HashSet<(IpAddr, Port)>,
    node_ports: HashSet<(Family, Port)>,
}

impl Ownership {
    /// Creates the criteria from the sets of the mode, of one family or both, and from the
    /// addresses on the link.
    pub(in crate::backend::ipvs) fn new(
        sets: &Sets,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Self {
        let mut owned = Self {
            addresses: addresses.into_iter().collect(),
            ..Self::default()
        };
        for listed in sets.iter() {
            let ports = node_ports(listed);
            for entry in &listed.entries {
                match (&entry.member, ports) {
                    (Member::Ip(ip), _) => drop(owned.addresses.insert(*ip)),
                    (Member::IpPort(ip, port), _) => drop(owned.address_ports.insert((*ip, *port))),
                    (Member::Port(number), Some((family, port))) => {
                        owned.node_ports.insert((family, port(*number)));
                    }
                    _ => {}
                }
            }
        }
        owned
    }

    /// Returns whether no virtual server belongs to kube-proxy.
    pub(in crate::backend::ipvs) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.address_ports.is_empty() && self.node_ports.is_empty()
    }

    /// Returns whether a virtual server belongs to kube-proxy.
    pub(in crate::backend::ipvs) fn owns(&self, service: &ServiceKey) -> bool {
        let ServiceKey::Address {
            protocol,
            address,
            port,
        } = *service
        else {
            return false;
        };
        let port = Port::new(protocol, port);
        self.addresses.contains(&address)
            || self.address_ports.contains(&(address, port))
            || self.node_ports.contains(&(Family::of(address), port))
    }
}

/// Creates a port of a protocol from its number.
type PortFromNumber = fn(u16) -> Port;

/// Returns family and protocol of the ports in a set, if it is a set of node ports.
fn node_ports(listed: &SetDump) -> Option<(Family, PortFromNumber)> {
    let name = listed.set.name.as_str();
    let family = match name.starts_with("KUBE-6-") {
        true => Family::V6,
        false => Family::V4,
    };
    let protocols: [(&str, PortFromNumber); 3] = [
        ("-TCP", Port::tcp),
        ("-UDP", Port::udp),
        ("-SCTP", Port::sctp),
    ];
    let mut protocols = protocols.into_iter();
    let found = protocols.find(|(end, _)| name.ends_with(end));
    found.map(|(_, port)| (family, port))
}

/// Returns whether the address of a virtual server is in one of the `excluded` networks.
pub(in crate::backend::ipvs) fn is_excluded(service: &ServiceKey, excluded: &[IpNet]) -> bool {
    match service {
        ServiceKey::Address { address, .. } => excluded.iter().any(|net| net.contains(address)),
        ServiceKey::Mark { .. } => false,
    }
}
