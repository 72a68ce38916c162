//! The ports of a Service.

use std::fmt;

/// A port of a Service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServicePort {
    /// The name, which no other port of the Service has.
    pub name: Box<str>,
    /// The protocol.
    pub protocol: Protocol,
    /// The port at the address of the Service.
    pub port: u16,
    /// That on every node, if it is asked for or given.
    pub node_port: Option<u16>,
}

/// A protocol of a port.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(missing_docs, reason = "these are names")]
pub enum Protocol {
    Sctp,
    Tcp,
    Udp,
}

/// How a Service is reached.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ServiceType {
    /// At its address, inside of the cluster.
    ClusterIp,
    /// Under another name, without an address.
    ExternalName,
    /// From a load balancer, too.
    LoadBalancer,
    /// At a port of every node, too.
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

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sctp => "SCTP",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}
