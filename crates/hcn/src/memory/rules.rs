//! The rules of the double for new objects and deletions.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Memory;
use crate::{
    Endpoint, HResult, Id, LoadBalancer, LoadBalancerFlags, Network, Protocol, SdnRoute, Subnet,
};

/// The fields of a load balancer that are unique in a network.
#[derive(PartialEq)]
struct Frontend<'a> {
    addresses: Vec<&'a str>,
    protocol: Protocol,
    port: u16,
    is_ipv6: bool,
}

impl<'a> Frontend<'a> {
    fn of(load_balancer: &'a LoadBalancer) -> Option<Self> {
        let mapping = load_balancer.port_mappings.first()?;
        let addresses = load_balancer.frontend_vips.iter();
        Some(Self {
            addresses: addresses.map(String::as_str).collect(),
            protocol: mapping.protocol,
            port: mapping.external_port,
            is_ipv6: load_balancer.flags.contains(LoadBalancerFlags::IPV6),
        })
    }
}

/// Returns the frontend of a load balancer for errors.
pub(super) fn frontend(load_balancer: &LoadBalancer) -> String {
    let addresses = load_balancer.frontend_vips.join(", ");
    let port = load_balancer.port_mappings.first();
    let port = port.map_or(0, |mapping| mapping.external_port);
    format!("{addresses} port {port}").trim_start().to_owned()
}

/// Returns the prefix of a subnet, which must have a default route with a gateway.
fn prefix(subnet: &Subnet) -> Result<Option<IpNet>, HResult> {
    if subnet.prefix.is_empty() {
        return Ok(None);
    }
    let prefix: IpNet = subnet
        .prefix
        .parse()
        .map_err(|_| HResult::HCN_E_INVALID_PREFIX)?;
    let has_gateways = subnet.routes.iter().all(|it| !it.next_hop.is_empty());
    let is_default = |destination: &str| ["0.0.0.0/0", "::/0"].contains(&destination);
    let has_default = subnet.routes.iter().any(|it| is_default(&it.destination));
    match has_gateways && has_default {
        true => Ok(Some(prefix)),
        false => Err(HResult::HCN_E_INVALID_SUBNET),
    }
}

impl Memory {
    pub(super) fn check_network(&self, network: &Network) -> Result<(), HResult> {
        let is_same = |it: &Network| it.name.eq_ignore_ascii_case(&network.name);
        if network.name.is_empty() {
            return Err(HResult::HCN_E_INVALID_NETWORK);
        }
        if self.networks.contains_key(&network.id) || self.networks.values().any(is_same) {
            return Err(HResult::HCN_E_NETWORK_ALREADY_EXISTS);
        }
        network.subnets().try_for_each(|it| prefix(it).map(drop))
    }

    pub(super) fn check_network_deletion(&self, id: &Id) -> Result<(), HResult> {
        if !self.networks.contains_key(id) {
            return Err(HResult::HCN_E_NETWORK_NOT_FOUND);
        }
        match self.endpoints.values().any(|it| it.network == *id) {
            true => Err(HResult::HCN_E_ENTITY_HAS_REFERENCES),
            false => Ok(()),
        }
    }

    pub(super) fn check_endpoint(&self, network: &Id, endpoint: &Endpoint) -> Result<(), HResult> {
        let network = self.networks.get(network);
        let network = network.ok_or(HResult::HCN_E_NETWORK_NOT_FOUND)?;
        if self.endpoints.contains_key(&endpoint.id) || !endpoint.namespace.is_empty() {
            return Err(HResult::HCN_E_INVALID_ENDPOINT);
        }
        for configuration in &endpoint.ip_configurations {
            let address = configuration.address.parse();
            let address = address.map_err(|_| HResult::HCN_E_INVALID_IP)?;
            self.check_address(network, endpoint, address)?;
        }
        Ok(())
    }

    /// Checks an address of a new endpoint.
    fn check_address(
        &self,
        network: &Network,
        endpoint: &Endpoint,
        address: IpAddr,
    ) -> Result<(), HResult> {
        let same_place =
            |it: &&Endpoint| it.network == network.id && it.is_remote() == endpoint.is_remote();
        let mut others = self.endpoints.values().filter(same_place);
        if others.any(|it| it.addresses().any(|other| other == address)) {
            return Err(HResult::HCN_E_ADDR_INVALID_OR_RESERVED);
        }
        let mut prefixes = network.subnets().filter_map(|it| prefix(it).ok().flatten());
        let mut subnets = prefixes.by_ref().peekable();
        let is_free = endpoint.is_remote() || subnets.peek().is_none();
        match is_free || subnets.any(|it| it.contains(&address)) {
            true => Ok(()),
            false => Err(HResult::HCN_E_INVALID_IP_SUBNET),
        }
    }

    pub(super) fn check_endpoint_deletion(&self, id: &Id) -> Result<(), HResult> {
        if !self.endpoints.contains_key(id) {
            return Err(HResult::HCN_E_ENDPOINT_NOT_FOUND);
        }
        let load_balancers = self.load_balancers.values().map(|it| &it.endpoints);
        let routes = self.sdn_routes.values().map(|it| &it.endpoints);
        match load_balancers.chain(routes).any(|it| it.contains(id)) {
            true => Err(HResult::HCN_E_ENTITY_HAS_REFERENCES),
            false => Ok(()),
        }
    }

    /// Checks a load balancer, which replaces the one with the identifier `old`.
    pub(super) fn check_load_balancer(
        &self,
        old: Option<&Id>,
        new: &LoadBalancer,
    ) -> Result<(), HResult> {
        let ([_], Some(frontend)) = (&*new.port_mappings, Frontend::of(new)) else {
            return Err(HResult::HCN_E_INVALID_POLICY);
        };
        if frontend
            .addresses
            .iter()
            .any(|it| it.parse::<IpAddr>().is_err())
        {
            return Err(HResult::HCN_E_INVALID_IP);
        }
        if old.is_none() && self.load_balancers.contains_key(&new.id) {
            return Err(HResult::HCN_E_POLICY_ALREADY_EXISTS);
        }
        let network = self.network_of(new)?;
        let others = self
            .load_balancers
            .iter()
            .filter(|(id, _)| Some(*id) != old);
        let mut others = others.map(|(_, it)| it);
        let is_same = |other: &LoadBalancer| {
            Frontend::of(other).is_some_and(|it| it == frontend) && self.occupies(other, network)
        };
        match others.any(is_same) {
            true => Err(HResult::HCN_E_PORT_ALREADY_EXISTS),
            false => Ok(()),
        }
    }

    /// Checks an SDN route.
    pub(super) fn check_sdn_route(&self, new: &SdnRoute) -> Result<(), HResult> {
        if new.settings.is_empty() || new.endpoints.is_empty() {
            return Err(HResult::HCN_E_INVALID_POLICY);
        }
        let exists = |id: &Id| self.endpoints.contains_key(id);
        if !new.endpoints.iter().all(exists) {
            return Err(HResult::HCN_E_ENDPOINT_NOT_FOUND);
        }
        let is_prefix = |text: &str| text.parse::<IpNet>().is_ok();
        match new.settings.iter().all(|it| is_prefix(&it.destination)) {
            true => Ok(()),
            false => Err(HResult::HCN_E_INVALID_PREFIX),
        }
    }

    /// Returns whether a load balancer occupies its frontend in a network: also if all its
    /// endpoints are gone.
    fn occupies(&self, load_balancer: &LoadBalancer, network: &Id) -> bool {
        let endpoints = load_balancer.endpoints.iter();
        let existing = endpoints.filter_map(|id| self.endpoints.get(id));
        let mut networks = existing.map(|it| &it.network).peekable();
        networks.peek().is_none() || networks.any(|it| it == network)
    }

    /// Returns the network of the endpoints of a load balancer.
    fn network_of(&self, load_balancer: &LoadBalancer) -> Result<&Id, HResult> {
        let mut networks = load_balancer.endpoints.iter().map(|id| {
            let endpoint = self.endpoints.get(id);
            endpoint
                .map(|it| &it.network)
                .ok_or(HResult::HCN_E_ENDPOINT_NOT_FOUND)
        });
        let first = networks.next().ok_or(HResult::HCN_E_INVALID_POLICY)??;
        for network in networks {
            if network? != first {
                return Err(HResult::HCN_E_INVALID_ENDPOINT);
            }
        }
        Ok(first)
    }
}
