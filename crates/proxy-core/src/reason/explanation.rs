//! Reasons with the field of the API that decides.
//!
//! "Connection refused" is of no use to the author of a Service. What helps is which field of
//! which object to change, so a [`Reason`] has two forms: [`Reason::field`] is that field, and
//! [`Reason::sentence`] says what is wrong with it. For example, for a Service whose pods are all
//! starting:
//!
//! ```text
//! reason     NotReady { count: 3 }
//! field      endpoints[].conditions.ready
//! sentence   none of its 3 endpoints is ready
//! ```
//!
//! What must stay true: sentences name objects, fields and addresses as the author wrote them,
//! never a chain or a set of the rules; and callers put them into larger sentences, so they begin
//! in lower case and have no full stop.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use vipline_service_model::{
    Family, Limit, ObjectName, PortName, SkipReason, Transport, UnservedReason,
};

use crate::AddressKind;

/// Expected result of a connection attempt.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Expectation {
    /// An endpoint receives the connection.
    Reachable,
    /// The client gets an error at once.
    Refused,
    /// The packets are dropped.
    Dropped,
    /// The proxy has no rule for the packets.
    Unserved,
}

/// Reason for the result of a connection attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// Usable endpoints exist.
    Served,
    /// The service port has no endpoints.
    NoEndpoints,
    /// The service port has no endpoints: the EndpointSlices of the Service have other ports, or
    /// are of another family.
    OtherPorts {
        /// Family, name and protocol of the service port.
        wanted: (Family, String, Transport),
        /// Those of the EndpointSlices.
        found: Vec<(Family, String, Transport)>,
    },
    /// The proxy answers health checks of the load balancer there.
    HealthCheck {
        /// The Service.
        service: ObjectName,
    },
    /// The service port has endpoints, and none is ready.
    NotReady {
        /// Number of endpoints.
        count: u32,
    },
    /// The internal traffic policy is Local, and no usable endpoint is on this node.
    InternalPolicyLocal,
    /// The external traffic policy is Local, and no usable endpoint is on this node.
    ExternalPolicyLocal,
    /// The source ranges do not contain the source.
    SourceRanges(Arc<[IpNet]>),
    /// The Service has the address, and not this port.
    WrongPort {
        /// The Service.
        service: ObjectName,
        /// Ports of the Service at the address.
        served: Vec<(Transport, u16)>,
    },
    /// The Service has the address and the port, or the node port, and reached the limit of
    /// pairs of an address and a port with the ports before it.
    PortOverLimit {
        /// The Service.
        service: ObjectName,
        /// Protocol.
        protocol: Transport,
        /// Port or node port.
        port: u16,
        /// Whether it is a node port.
        is_node_port: bool,
    },
    /// No Service has this node port, and the destination is an address of this node.
    NoNodePort,
    /// Node ports are not served on this address of the node.
    NodePortAddress {
        /// Owner of the node port.
        owner: Arc<PortName>,
    },
    /// Another service port owns the address. Only of a question that names a Service: the search
    /// itself always finds the owner, so callers replace its reason.
    Contested {
        /// Owner of the address.
        owner: Arc<PortName>,
        /// Kind of the address in the Service that does not get it.
        kind: AddressKind,
    },
    /// The store does not serve the Service.
    Skipped {
        /// The Service.
        service: ObjectName,
        /// Reason.
        reason: SkipReason,
    },
    /// The store does not serve this external address.
    Unserved {
        /// The Service.
        service: ObjectName,
        /// Reason.
        reason: UnservedReason,
    },
    /// The proxy does not serve the family on this node.
    Family(Family),
    /// The address is in a ServiceCIDR, and no Service has it.
    UnusedClusterIp,
    /// The destination is an endpoint itself.
    Direct {
        /// A service port of the endpoint.
        owner: Arc<PortName>,
    },
    /// No Service has this address.
    UnknownAddress,
}

impl Reason {
    /// Returns the field or flag that decides, if there is one.
    pub fn field(&self) -> Option<&'static str> {
        Some(match self {
            Self::Served | Self::Direct { .. } | Self::UnknownAddress => return None,
            Self::NoEndpoints => "endpoints",
            // Slices of the other family only: no pod has an address in the wanted one.
            Self::OtherPorts { wanted, found } => match of_family(found, wanted.0).next() {
                Some(_) => "spec.ports[].targetPort",
                None => "spec.ipFamilies",
            },
            Self::HealthCheck { .. } => "spec.healthCheckNodePort",
            Self::NotReady { .. } => "endpoints[].conditions.ready",
            Self::InternalPolicyLocal => "spec.internalTrafficPolicy",
            Self::ExternalPolicyLocal => "spec.externalTrafficPolicy",
            Self::SourceRanges(_) => "spec.loadBalancerSourceRanges",
            Self::WrongPort { .. } | Self::PortOverLimit { .. } => "spec.ports",
            Self::NoNodePort => "spec.ports[].nodePort",
            Self::NodePortAddress { .. } => "--nodeport-addresses",
            Self::Contested { kind, .. } => match kind {
                AddressKind::ClusterIp => "spec.clusterIPs",
                AddressKind::LoadBalancerIp => "status.loadBalancer.ingress",
                AddressKind::ExternalIp => "spec.externalIPs",
                AddressKind::NodePort => "spec.ports[].nodePort",
            },
            Self::Skipped { reason, .. } => reason.field(),
            Self::Unserved { reason, .. } => match reason {
                UnservedReason::ProxyMode => "status.loadBalancer.ingress[].ipMode",
                UnservedReason::ExternalIpsIgnored => "--feature-gates",
                UnservedReason::OverLimit { field, .. } => field,
                // `UnservedReason::Family`. The enum is of another crate and may get more reasons.
                _ => "spec.ipFamilies",
            },
            Self::Family(_) => "spec.ipFamilies",
            Self::UnusedClusterIp => "spec.clusterIP",
        })
    }

    /// Returns the sentence about a destination, without a full stop.
    pub fn sentence(&self, addr: IpAddr) -> String {
        format!("{}", Sentence(self, addr))
    }
}

/// A reason with the address that it is about.
struct Sentence<'a>(&'a Reason, IpAddr);

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(reason, addr) = self;
        match reason {
            Reason::Served => f.write_str("usable endpoints exist"),
            Reason::NoEndpoints => f.write_str("the service port has no endpoints"),
            Reason::OtherPorts { wanted, found } => other_ports(f, wanted, found),
            Reason::HealthCheck { service } => write!(
                f,
                "it is the health check node port of Service {service}: the proxy answers HTTP \
                 requests there, 200 if the node has a usable endpoint and 503 otherwise"
            ),
            // "none of its 1 endpoints" would be wrong.
            Reason::NotReady { count: 1 } => f.write_str("its one endpoint is not ready"),
            Reason::NotReady { count } => write!(f, "none of its {count} endpoints is ready"),
            Reason::InternalPolicyLocal => f.write_str(
                "internalTrafficPolicy is Local, and no usable endpoint is on this node",
            ),
            Reason::ExternalPolicyLocal => f.write_str(
                "externalTrafficPolicy is Local, and no usable endpoint is on this node",
            ),
            Reason::SourceRanges(ranges) => {
                f.write_str("loadBalancerSourceRanges do not contain the source: ")?;
                list(f, ranges.iter())
            }
            Reason::WrongPort { service, served } => {
                write!(
                    f,
                    "Service {service} has the address, and serves other ports there: "
                )?;
                let ports = served.iter();
                list(
                    f,
                    ports.map(|(protocol, port)| format!("{port}/{protocol}")),
                )
            }
            Reason::PortOverLimit {
                service,
                protocol,
                port,
                is_node_port,
            } => {
                let kind = if *is_node_port { "node port" } else { "port" };
                let limit = Limit::AddressPortPairs;
                write!(
                    f,
                    "{kind} {port}/{protocol} of Service {service} is not served: {limit}"
                )
            }
            Reason::NoNodePort => write!(
                f,
                "{addr} is an address of this node, and no Service has this node port"
            ),
            Reason::NodePortAddress { owner } => {
                write!(
                    f,
                    "the node port belongs to {owner}, and node ports are not served on {addr}"
                )
            }
            Reason::Contested { owner, .. } => {
                write!(f, "the address belongs to {owner}, which takes precedence")
            }
            Reason::Skipped { service, reason } => skipped(f, service, reason),
            Reason::Unserved { service, reason } => unserved(f, service, *reason, *addr),
            Reason::Family(family) => write!(f, "the proxy does not serve {family} on this node"),
            Reason::UnusedClusterIp => {
                write!(f, "{addr} is in a ServiceCIDR, and no Service has it")
            }
            Reason::Direct { owner } => {
                write!(
                    f,
                    "{addr} is an endpoint of {owner}, and needs no rule of the proxy"
                )
            }
            Reason::UnknownAddress => {
                write!(f, "no Service that the proxy serves has address {addr}")
            }
        }
    }
}

/// Family, name and protocol of a port of an EndpointSlice.
type SlicePort = (Family, String, Transport);

/// Returns the ports of a family.
fn of_family(ports: &[SlicePort], family: Family) -> impl Iterator<Item = &SlicePort> {
    ports.iter().filter(move |port| port.0 == family)
}

fn other_ports(f: &mut fmt::Formatter<'_>, wanted: &SlicePort, found: &[SlicePort]) -> fmt::Result {
    let (family, name, protocol) = wanted;
    // A Service with one port may leave its name out, and so do its slices.
    let text = |(_, name, protocol): &SlicePort| match &**name {
        "" => format!("an unnamed port ({protocol})"),
        name => format!("{name} ({protocol})"),
    };
    let mut of_family = of_family(found, *family).peekable();
    if of_family.peek().is_none() {
        return write!(
            f,
            "the Service has endpoints of the other IP family only, and none in {family}: the \
             pods have no {family} address"
        );
    }
    let named = text(&(*family, name.clone(), *protocol));
    write!(
        f,
        "the service port has no endpoints: its EndpointSlices do not have {named}: no container \
         port has the name that targetPort states, or the slices name their ports otherwise; \
         they have "
    )?;
    list(f, of_family.map(text))
}

fn skipped(f: &mut fmt::Formatter<'_>, service: &ObjectName, reason: &SkipReason) -> fmt::Result {
    match reason {
        SkipReason::OtherProxy(name) => {
            write!(
                f,
                "the label service.kubernetes.io/service-proxy-name leaves Service {service} to proxy {name:?}"
            )
        }
        SkipReason::Headless => write!(
            f,
            "Service {service} is headless: clients use the addresses of its endpoints"
        ),
        SkipReason::NoClusterIp => write!(f, "Service {service} has no cluster IP"),
        SkipReason::ExternalName(name) => {
            write!(
                f,
                "Service {service} has type ExternalName: it is an alias of {name:?} in DNS"
            )
        }
        // `SkipReason::InvalidClusterIp`.
        _ => write!(
            f,
            "Service {service} has no valid cluster IP of a listed family"
        ),
    }
}

fn unserved(
    f: &mut fmt::Formatter<'_>,
    service: &ObjectName,
    reason: UnservedReason,
    addr: IpAddr,
) -> fmt::Result {
    match reason {
        UnservedReason::ProxyMode => {
            write!(
                f,
                "Service {service} has {addr} with ipMode Proxy: the load balancer sends packets to other addresses"
            )
        }
        UnservedReason::ExternalIpsIgnored => {
            write!(
                f,
                "{addr} is an external IP of Service {service}, and feature gate AllowServiceExternalIPs is off"
            )
        }
        UnservedReason::OverLimit { limit, .. } => {
            write!(
                f,
                "address {addr} of Service {service} is not served: {limit}"
            )
        }
        // `UnservedReason::Family`.
        _ => {
            let family = Family::of(addr);
            write!(
                f,
                "Service {service} has {addr}, and no cluster IP in {family}"
            )
        }
    }
}

/// Writes items with commas.
fn list(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = impl fmt::Display>) -> fmt::Result {
    for (index, item) in items.enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(f, "{separator}{item}")?;
    }
    Ok(())
}
