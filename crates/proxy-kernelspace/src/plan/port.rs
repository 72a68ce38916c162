//! Objects of one service port: load balancers, and the endpoints that they use.

use std::net::IpAddr;

use vipline_hcn::{Distribution, Features, LoadBalancerFlags, PortMappingFlags};
use vipline_service_model::{Endpoint, Family, ServicePort};

use super::endpoint::{needs_node_as_source, remote, vip};
use super::object::{LoadBalancer, Object};
use super::selection::{is_local_dsr, select};
use crate::Settings;
use proxy_engine::Fragment;
use proxy_engine::{Address, AddressKind, Context, PortObjects};

/// Returns the objects of a service port.
///
/// Without endpoints a service port has no load balancer: Windows then drops packets to
/// its addresses.
pub(super) fn objects(cx: &Context, settings: &Settings, of: &ServicePort) -> PortObjects<Object> {
    let mut out = Fragment::default();
    if settings.is_overlay {
        out.own.push(vip(cx, settings, of.cluster_ip));
    }
    let selection = select(settings, of);
    let Some(last) = selection.endpoints.last() else {
        return out.into();
    };
    let remotes: Vec<_> = selection
        .endpoints
        .iter()
        .filter(|it| !it.is_local)
        .collect();
    let is_overlay = settings.is_overlay;
    let mut needs_node = remotes
        .iter()
        .map(|it| needs_node_as_source(settings, it.addr));
    let source_vip = match is_overlay && needs_node.any(|needs| needs) {
        true => cx.node_address,
        false => settings.source_vip.filter(|_| is_overlay),
    };
    let mut addresses: Vec<_> = remotes.iter().map(|it| it.addr).collect();
    addresses.dedup();
    out.own
        .extend(addresses.into_iter().map(|it| remote(cx, settings, it)));
    let has_dsr = settings.features.contains(Features::DSR);
    let mut port = Port {
        cx,
        settings,
        of,
        // A load balancer has one internal port.
        internal_port: last.port,
        endpoints: selection.endpoints,
        source_vip,
        is_local_dsr: is_local_dsr(settings, of),
        preserves_dip: of.preserves_destination && has_dsr,
        out,
    };
    port.cluster_ip();
    for (addr, kind) in of.external_addresses() {
        match kind {
            AddressKind::LoadBalancerIp => port.load_balancer_ip(addr),
            _ if selection.serves_external => port.external_ip(addr),
            _ => {}
        }
    }
    if selection.serves_external {
        if let Some(number) = of.node_port {
            port.node_port(number);
        }
        for addr in &*of.load_balancer_ips {
            port.health_check(*addr);
        }
    }
    port.out.into()
}

/// Collects the objects of a service port.
struct Port<'a> {
    cx: &'a Context,
    settings: &'a Settings,
    of: &'a ServicePort,
    internal_port: u16,
    endpoints: Vec<Endpoint>,
    source_vip: Option<IpAddr>,
    is_local_dsr: bool,
    preserves_dip: bool,
    out: Fragment<Object>,
}

impl Port<'_> {
    /// ```hns
    /// load balancer 10.96.0.10:80/TCP to port 8080 of 10.244.1.7 10.244.2.3
    /// load balancer 10.96.0.10:80/TCP to port 8080 of 10.244.1.7 10.244.2.3 affinity DSR
    /// ```
    fn cluster_ip(&mut self) {
        let of = self.of;
        let mut new = self.load_balancer(Some(of.cluster_ip), of.port);
        new.endpoints = self.addresses(of.internal_policy_local);
        new.flags
            .set(LoadBalancerFlags::DSR, self.settings.enable_dsr);
        self.claim(AddressKind::ClusterIp, Address::ip(of, of.cluster_ip), new);
    }

    /// ```hns
    /// load balancer *:30080/TCP to port 8080 of 10.244.1.7 10.244.2.3 LOCAL_ROUTED_VIP VIP_EXTERNAL_IP
    /// load balancer *:30080/TCP to port 8080 of 10.244.1.7 DSR LOCAL_ROUTED_VIP VIP_EXTERNAL_IP
    /// ```
    fn node_port(&mut self, number: u16) {
        let mut new = self.load_balancer(None, number);
        new.endpoints = self.addresses(self.preserves_dip || self.is_local_dsr);
        new.flags.set(LoadBalancerFlags::DSR, self.is_local_dsr);
        new.port_flags = PortMappingFlags::VIP_EXTERNAL_IP | PortMappingFlags::LOCAL_ROUTED_VIP;
        let address = Address::NodePort(self.of.protocol, number);
        self.claim(AddressKind::NodePort, address, new);
    }

    /// ```hns
    /// load balancer 192.0.2.7:80/TCP to port 8080 of 10.244.1.7 10.244.2.3 VIP_EXTERNAL_IP
    /// load balancer 192.0.2.7:80/TCP to port 8080 of 10.244.1.7 DSR VIP_EXTERNAL_IP
    /// ```
    fn external_ip(&mut self, addr: IpAddr) {
        let mut new = self.load_balancer(Some(addr), self.of.port);
        new.endpoints = self.addresses(self.is_local_dsr);
        new.flags.set(LoadBalancerFlags::DSR, self.is_local_dsr);
        new.port_flags = PortMappingFlags::VIP_EXTERNAL_IP;
        let address = Address::ip(self.of, addr);
        self.claim(AddressKind::ExternalIp, address, new);
    }

    /// ```hns
    /// load balancer 203.0.113.9:80/TCP to port 8080 of 10.244.1.7 10.244.2.3 VIP_EXTERNAL_IP
    /// load balancer 203.0.113.9:80/TCP to port 8080 of 10.244.1.7 DSR USE_MUX PRESERVE_DIP VIP_EXTERNAL_IP
    /// ```
    fn load_balancer_ip(&mut self, addr: IpAddr) {
        let is_local = self.preserves_dip || self.is_local_dsr;
        let mut new = self.load_balancer(Some(addr), self.of.port);
        new.endpoints = self.addresses(is_local);
        new.flags.set(LoadBalancerFlags::DSR, is_local);
        new.port_flags = PortMappingFlags::VIP_EXTERNAL_IP | self.preserving();
        let address = Address::ip(self.of, addr);
        self.claim(AddressKind::LoadBalancerIp, address, new);
    }

    /// ```hns
    /// load balancer 203.0.113.9:32000/TCP to port 32000 of 10.244.1.1
    /// ```
    ///
    /// Forwards health checks of a load balancer IP to the host, if HNS has an endpoint of
    /// the service port and health checks have a port. Service ports share this object, and
    /// the first one counts. As in upstream, it lacks the flag for IPv6.
    fn health_check(&mut self, addr: IpAddr) {
        let settings = self.settings;
        let port = self
            .of
            .health_check_node_port
            .unwrap_or(settings.healthz_port);
        let gateway = settings.gateway(self.cx.family);
        let Some(gateway) = gateway.filter(|_| port != 0) else {
            return;
        };
        let object = LoadBalancer {
            internal_port: port,
            endpoints: vec![gateway],
            depends_on: self.addresses(false),
            flags: LoadBalancerFlags::empty(),
            port_flags: self.preserving(),
            distribution: Distribution::CONNECTION,
            ..self.load_balancer(Some(addr), port)
        };
        self.out.own.push(object.into());
    }

    /// Returns the flags of a port that preserves the destination.
    fn preserving(&self) -> PortMappingFlags {
        match self.preserves_dip {
            true => PortMappingFlags::USE_MUX | PortMappingFlags::PRESERVE_DIP,
            false => PortMappingFlags::empty(),
        }
    }

    /// Returns the addresses of the endpoints, or of the local ones.
    fn addresses(&self, is_local: bool) -> Vec<IpAddr> {
        let endpoints = self.endpoints.iter().filter(|it| it.is_local || !is_local);
        let mut addresses: Vec<_> = endpoints.map(|it| it.addr).collect();
        addresses.dedup();
        addresses
    }

    /// Returns a load balancer without endpoints.
    fn load_balancer(&self, frontend: Option<IpAddr>, external_port: u16) -> LoadBalancer {
        let mut flags = LoadBalancerFlags::empty();
        flags.set(LoadBalancerFlags::IPV6, self.cx.family == Family::V6);
        LoadBalancer {
            frontend,
            protocol: self.of.protocol,
            external_port,
            internal_port: self.internal_port,
            endpoints: Vec::new(),
            depends_on: Vec::new(),
            source_vip: self.source_vip,
            flags,
            port_flags: PortMappingFlags::empty(),
            distribution: match self.of.affinity {
                Some(_) => Distribution::SOURCE_IP,
                None => Distribution::CONNECTION,
            },
        }
    }

    /// Adds a load balancer for an address, unless it has no endpoints.
    fn claim(&mut self, kind: AddressKind, address: Address, new: LoadBalancer) {
        if !new.endpoints.is_empty() {
            self.out.at(kind, address).push(new.into());
        }
    }
}
