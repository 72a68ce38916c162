//! Load balancers.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::document::{document, flags};
use crate::{Id, Version};

flags! {
    /// Flags of a load balancer.
    pub struct LoadBalancerFlags {
        /// Direct Server Return: replies do not pass the load balancer.
        const DSR = 1;
        /// The load balancer is for IPv6.
        const IPV6 = 2;
    }
}

flags! {
    /// Flags of a port mapping.
    pub struct PortMappingFlags {
        /// Internal load balancing: the source address is translated.
        const ILB = 1;
        /// The host itself can reach the frontend.
        const LOCAL_ROUTED_VIP = 2;
        /// Direct Server Return through a multiplexer, for node ports.
        const USE_MUX = 4;
        /// Packets keep the frontend as destination.
        const PRESERVE_DIP = 8;
        /// The frontend is an external address.
        const VIP_EXTERNAL_IP = 16;
    }
}

/// A protocol number of IP, as in `/etc/protocols`.
///
/// This struct is exhaustive, because a protocol is one number.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(transparent)]
pub struct Protocol(pub u32);

impl Protocol {
    /// ICMP.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// ICMPv6.
    pub const ICMPV6: Self = Self(58);
    /// SCTP.
    pub const SCTP: Self = Self(132);
}

/// The fields that select the endpoint of a packet.
///
/// This struct is exhaustive, because the distribution is one number.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Distribution(pub u32);

impl Distribution {
    /// Addresses, ports and protocol: each connection has an endpoint of its own.
    pub const CONNECTION: Self = Self(0);
    /// Source address and protocol.
    pub const SOURCE_IP_PROTOCOL: Self = Self(1);
    /// Source address.
    pub const SOURCE_IP: Self = Self(2);
}

document! {
    /// A load balancer of the Virtual Filtering Platform.
    pub struct LoadBalancer {
        /// Identifier.
        "ID"? id: Id,
        /// Identifiers of endpoints.
        "HostComputeEndpoints"? endpoints: Vec<Id>,
        /// Source address of translated packets.
        "SourceVIP"? source_vip: String,
        /// Addresses of the frontend. Without one, all addresses of the host.
        "FrontendVIPs"? frontend_vips: Vec<String>,
        /// Ports. HNS supports one port mapping.
        "PortMappings"? port_mappings: Vec<PortMapping>,
        /// Version of the schema.
        "SchemaVersion"? schema_version: Version,
        /// Flags.
        "Flags"? flags: LoadBalancerFlags,
    }
}

impl LoadBalancer {
    /// Creates a load balancer with one port. `None` as frontend means all addresses of
    /// the host.
    pub fn new(
        frontend: Option<IpAddr>,
        mapping: PortMapping,
        endpoints: impl IntoIterator<Item = Id>,
    ) -> Self {
        Self {
            endpoints: endpoints.into_iter().collect(),
            frontend_vips: frontend.iter().map(IpAddr::to_string).collect(),
            port_mappings: vec![mapping],
            schema_version: Version::SCHEMA,
            ..Self::default()
        }
    }

    /// Sets the source address of translated packets.
    #[must_use]
    pub fn with_source_vip(mut self, address: IpAddr) -> Self {
        self.source_vip = address.to_string();
        self
    }

    /// Adds flags.
    #[must_use]
    pub fn with_flags(mut self, flags: LoadBalancerFlags) -> Self {
        self.flags |= flags;
        self
    }
}

document! {
    /// A port of a load balancer.
    pub struct PortMapping {
        /// Protocol.
        "Protocol"? protocol: Protocol,
        /// Port of the endpoints.
        "InternalPort"? internal_port: u16,
        /// Port of the frontend.
        "ExternalPort"? external_port: u16,
        /// Distribution of packets to endpoints.
        "DistributionType"? distribution: Distribution,
        /// Flags.
        "Flags"? flags: PortMappingFlags,
    }
}

impl PortMapping {
    /// Creates a port mapping.
    pub fn new(protocol: Protocol, external_port: u16, internal_port: u16) -> Self {
        Self {
            protocol,
            internal_port,
            external_port,
            ..Self::default()
        }
    }

    /// Sets the distribution.
    #[must_use]
    pub fn with_distribution(mut self, distribution: Distribution) -> Self {
        self.distribution = distribution;
        self
    }

    /// Adds flags.
    #[must_use]
    pub fn with_flags(mut self, flags: PortMappingFlags) -> Self {
        self.flags |= flags;
        self
    }
}
