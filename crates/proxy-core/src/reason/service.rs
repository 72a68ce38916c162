//! The addresses of a Service.

use std::net::SocketAddr;

use vipline_service_model::{ObjectName, SkippedService, Transport};

use super::{Finding, Reason, Scene};
use crate::{Address, AddressKind, Family};

impl Scene<'_> {
    /// Returns the addresses of a Service in the family of the context, with their
    /// protocols and kinds. A node port is at the first address that serves node ports.
    pub fn addresses_of(&self, service: &ObjectName) -> Vec<(Transport, SocketAddr, AddressKind)> {
        let family = self.context.family;
        let ports = self.store.ports_of(service).iter();
        let ports = ports.filter(|port| port.family == family);
        let addresses = ports.flat_map(|port| port.addresses());
        let mut found = Vec::new();
        for (address, kind) in addresses {
            let (protocol, addr, port) = match address {
                Address::Ip(addr, protocol, port) => (protocol, Some(addr), port),
                Address::NodePort(protocol, port) => (protocol, self.node_port_ip(), port),
            };
            if let Some(addr) = addr {
                let address = (protocol, SocketAddr::new(addr, port), kind);
                if !found.contains(&address) {
                    found.push(address);
                }
            }
        }
        found
    }

    /// Returns an address that serves node ports.
    fn node_port_ip(&self) -> Option<std::net::IpAddr> {
        let node = self.store.node();
        let mut addresses = self.context.node_port_ips();
        addresses.extend(node.address(self.context.family));
        let own = self.context.node_address;
        let own = own.filter(|addr| addresses.first() == Some(addr) || addresses.contains(addr));
        own.or_else(|| addresses.first().copied())
    }

    /// Returns why the store does not serve a Service, or `None` if it is served or
    /// unknown.
    pub fn skipped_service(&self, service: &ObjectName) -> Option<Finding> {
        let mut skipped = self.store.skipped();
        let (name, found) = skipped.find(|(name, _)| *name == service)?;
        Some(Finding::unserved(Reason::skipped(name, found)))
    }

    /// Returns why a Service has no address in the families of the proxy, or `None` if it
    /// has one or is unknown.
    pub fn unserved_service(&self, service: &ObjectName) -> Option<Finding> {
        let ports = self.store.ports_of(service);
        let is_served = |family: &Family| self.config.engine.families.contains(family);
        let families = ports.iter().map(|port| port.family);
        let family = families.min()?;
        let is_any_served = ports.iter().any(|port| is_served(&port.family));
        (!is_any_served).then(|| Finding::unserved(Reason::Family(family)))
    }
}

impl Reason {
    pub(super) fn skipped(service: &ObjectName, skipped: &SkippedService) -> Self {
        Self::Skipped {
            service: service.clone(),
            reason: skipped.reason.clone(),
        }
    }
}
