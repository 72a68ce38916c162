//! Service ports: the addresses of a Service that clients connect to.
//!
//! - Headless Services, Services of type ExternalName and those of another proxy have none.
//! - A Service has one cluster IP per family, named by the position in `ipFamilies`. Without
//!   `ipFamilies`, the families are those of the addresses.
//! - Ingress points count with an address and mode VIP only.
//! - The old client ranges of the other family do not count.

use std::net::IpAddr;

use vipline_service_model::ipnet::IpNet;
use vipline_service_model::{ExternalIps, Transport, api};

use super::policy::Lists;
use super::{candidate, policy, source_ranges, text};
use crate::world::World;

/// The order of claims of one kind: the oldest Service first, then by name.
pub(crate) type Precedence = (bool, Option<String>, String, String, String, Transport);

/// A port of a Service in one family.
#[derive(Clone, Debug)]
pub(crate) struct Frontend {
    pub(crate) precedence: Precedence,
    pub(crate) protocol: Transport,
    pub(crate) cluster_ip: IpAddr,
    pub(crate) port: u16,
    pub(crate) node_port: u16,
    /// Port of health checks, or 0.
    pub(crate) health_check_port: u16,
    pub(crate) external_ips: Vec<IpAddr>,
    pub(crate) load_balancer_ips: Vec<IpAddr>,
    pub(crate) source_ranges: Vec<IpNet>,
    pub(crate) has_affinity: bool,
    pub(crate) is_internal_local: bool,
    pub(crate) is_external_local: bool,
    pub(crate) lists: Lists,
}

/// Returns all service ports of a world.
pub(crate) fn all(world: &World) -> Vec<Frontend> {
    let services = world.services.iter().filter(|service| is_served(service));
    let mut frontends = Vec::new();
    for service in services {
        for cluster_ip in cluster_ips(&service.spec) {
            let ports = service.spec.ports.iter();
            frontends.extend(ports.map(|port| frontend(world, service, cluster_ip, port)));
        }
    }
    frontends
}

fn is_served(service: &api::Service) -> bool {
    let label = "service.kubernetes.io/service-proxy-name";
    !service.metadata.labels.contains_key(label)
        && !["", "None"].contains(&&*service.spec.cluster_ip)
        && service.spec.kind != api::ServiceType::ExternalName
}

fn cluster_ips(spec: &api::ServiceSpec) -> Vec<IpAddr> {
    let first = std::slice::from_ref(&spec.cluster_ip);
    let texts = if spec.cluster_ips.is_empty() {
        first
    } else {
        &spec.cluster_ips
    };
    let listed = texts.iter().enumerate().filter_map(|(place, text)| {
        let family = spec.ip_families.get(place);
        let is_v4 = family.map(|family| *family == api::IpFamily::V4);
        let ip = text::address(text)?;
        let is_listed = spec.ip_families.is_empty() || is_v4 == Some(ip.is_ipv4());
        is_listed.then_some(ip)
    });
    let listed: Vec<_> = listed.collect();
    let of_family = |is_v4| listed.iter().find(|ip| ip.is_ipv4() == is_v4).copied();
    [of_family(true), of_family(false)]
        .into_iter()
        .flatten()
        .collect()
}

fn frontend(
    world: &World,
    service: &api::Service,
    cluster_ip: IpAddr,
    port: &api::ServicePortSpec,
) -> Frontend {
    let (metadata, spec) = (&service.metadata, &service.spec);
    let protocol = protocol(&port.protocol);
    let of_family = |texts: Vec<&String>| -> Vec<IpAddr> {
        let ips = texts.into_iter().filter_map(|it| text::reachable(it));
        ips.filter(|ip| ip.is_ipv4() == cluster_ip.is_ipv4())
            .collect()
    };
    let external_ips = of_family(spec.external_ips.iter().collect());
    let ingress = service.status.load_balancer.ingress.iter();
    let vips = ingress.filter(|each| each.ip_mode == api::IpMode::Vip);
    let load_balancer_ips = of_family(vips.map(|each| &each.ip).collect());
    let is_exposed =
        port.node_port != 0 || !external_ips.is_empty() || !load_balancer_ips.is_empty();
    let is_internal_local = spec.internal_traffic_policy == api::TrafficPolicy::Local;
    let is_external_local = policy::is_external_local(spec);
    let candidates = candidate::all(world, service, cluster_ip.is_ipv4(), port);
    Frontend {
        precedence: (
            metadata.creation_timestamp.is_none(),
            metadata.creation_timestamp.clone(),
            metadata.namespace.clone(),
            metadata.name.clone(),
            port.name.clone(),
            protocol,
        ),
        protocol,
        cluster_ip,
        port: port.port,
        node_port: port.node_port,
        health_check_port: match (&spec.kind, is_external_local) {
            (api::ServiceType::LoadBalancer, true) => spec.health_check_node_port,
            _ => 0,
        },
        external_ips: match world.config.engine.external_ips {
            ExternalIps::Serve => external_ips,
            ExternalIps::Ignore => Vec::new(),
        },
        load_balancer_ips,
        source_ranges: source_ranges::of(spec, cluster_ip.is_ipv4()),
        has_affinity: spec.session_affinity == api::Affinity::ClientIp,
        is_internal_local,
        is_external_local,
        lists: policy::lists(
            world,
            &candidates,
            is_exposed,
            is_internal_local,
            is_external_local,
        ),
    }
}

pub(crate) fn protocol(protocol: &api::TransportProtocol) -> Transport {
    match protocol {
        api::TransportProtocol::Udp => Transport::Udp,
        api::TransportProtocol::Sctp => Transport::Sctp,
        _ => Transport::Tcp,
    }
}
