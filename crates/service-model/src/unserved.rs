//! Services and addresses that a proxy does not serve, with the reason.

use std::net::IpAddr;

use crate::api::{self, MetadataKey};
use crate::{Limit, Transport, parse_address};

/// A Service that the store does not serve.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SkippedService {
    /// Reason.
    pub reason: SkipReason,
    /// Cluster IPs, external IPs and load balancer IPs of the object.
    pub addresses: Vec<IpAddr>,
    /// Ports with their protocols. Unknown protocols are left out.
    pub ports: Vec<(Transport, u16)>,
    /// Node ports with their protocols.
    pub node_ports: Vec<(Transport, u16)>,
}

/// Reason for which the store does not serve a Service.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SkipReason {
    /// The label `service.kubernetes.io/service-proxy-name` names another proxy.
    OtherProxy(Box<str>),
    /// The Service is headless: its cluster IP is `None`.
    Headless,
    /// The Service has no cluster IP yet.
    NoClusterIp,
    /// The type is `ExternalName`: the Service is an alias of this DNS name.
    ExternalName(Box<str>),
    /// No cluster IP is valid and of a listed family.
    InvalidClusterIp,
}

/// An external address of a Service that the store does not serve.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct UnservedAddress {
    /// Address.
    pub addr: IpAddr,
    /// Reason.
    pub reason: UnservedReason,
}

/// Reason for which the store does not serve an external address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum UnservedReason {
    /// The Service has no cluster IP of the family.
    Family,
    /// The load balancer delivers packets to other addresses (`ipMode: Proxy`).
    ProxyMode,
    /// External IPs are [ignored](crate::ExternalIps::Ignore).
    ExternalIpsIgnored,
    /// The Service reached a limit with the addresses before it.
    OverLimit {
        /// Field of the Service that lists the address: `status.loadBalancer.ingress` or
        /// `spec.externalIPs`.
        field: &'static str,
        /// The limit.
        limit: Limit,
    },
}

impl SkippedService {
    /// Describes a Service that is not served.
    pub(crate) fn new(service: &api::Service) -> Self {
        let spec = &service.spec;
        let ingress = service.status.load_balancer.ingress.iter();
        let texts = [&spec.cluster_ip]
            .into_iter()
            .chain(&spec.cluster_ips)
            .chain(&spec.external_ips)
            .chain(ingress.map(|it| &it.ip));
        let mut addresses: Vec<_> = texts.filter_map(|text| parse_address(text)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let ports = |number: fn(&api::ServicePortSpec) -> u16| {
            let ports = spec.ports.iter().filter(move |port| number(port) != 0);
            let named = ports.filter_map(move |port| {
                port.protocol
                    .transport()
                    .map(|protocol| (protocol, number(port)))
            });
            named.collect()
        };
        Self {
            reason: SkipReason::of(service),
            addresses,
            ports: ports(|port| port.port),
            node_ports: ports(|port| port.node_port),
        }
    }
}

impl SkipReason {
    fn of(service: &api::Service) -> Self {
        let spec = &service.spec;
        let label = service.metadata.label(MetadataKey::ServiceProxyName);
        match (label, &*spec.cluster_ip) {
            (Some(name), _) => Self::OtherProxy(name.into()),
            _ if spec.kind == api::ServiceType::ExternalName => {
                Self::ExternalName(spec.external_name.as_str().into())
            }
            (None, "None") => Self::Headless,
            (None, "") => Self::NoClusterIp,
            _ => Self::InvalidClusterIp,
        }
    }

    /// Returns the field of the Service that is the reason.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::OtherProxy(_) => "metadata.labels[service.kubernetes.io/service-proxy-name]",
            Self::Headless | Self::NoClusterIp => "spec.clusterIP",
            Self::ExternalName(_) => "spec.type",
            Self::InvalidClusterIp => "spec.clusterIPs",
        }
    }
}
