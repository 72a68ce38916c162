//! The ports of a Service.

use std::fmt;

use vipline_inet::Transport;

/// A port of a Service.
///
/// Exhaustive: callers copy every field of their Service and must not miss a new one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServicePort {
    /// Name, unique within the Service.
    pub name: Box<str>,
    /// Protocol.
    pub protocol: Transport,
    /// Port at the cluster IP.
    pub port: u16,
    /// Node port, if requested or assigned.
    pub node_port: Option<u16>,
}

/// Type of a Service.
///
/// Exhaustive: the API has four types.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ServiceType {
    /// `ClusterIP`: cluster IP only.
    ClusterIp,
    /// `ExternalName`: DNS alias without a cluster IP.
    ExternalName,
    /// `LoadBalancer`: cluster IP, node ports and an external load balancer.
    LoadBalancer,
    /// `NodePort`: cluster IP and node ports.
    NodePort,
}

impl fmt::Display for ServiceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusterIp => "ClusterIP",
            Self::ExternalName => "ExternalName",
            Self::LoadBalancer => "LoadBalancer",
            Self::NodePort => "NodePort",
        })
    }
}
