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

/// A protocol in a document: usually the number of an IP protocol.
///
/// The type is not [`vipline_inet::Protocol`], because the field has 32 bits, and HNS has
/// numbers that are no IP protocol, such as 256 for any protocol in rules of ACLs. A document
/// with such a number must be readable. [`From`] and [`ip`](Self::ip) convert.
///
/// This struct is exhaustive, because a protocol is one number.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(transparent)]
pub struct Protocol(pub u32);

impl Protocol {
    /// ICMP.
    pub const ICMP: Self = Self::of(vipline_inet::Protocol::ICMP);
    /// TCP.
    pub const TCP: Self = Self::of(vipline_inet::Protocol::TCP);
    /// UDP.
    pub const UDP: Self = Self::of(vipline_inet::Protocol::UDP);
    /// ICMPv6.
    pub const ICMPV6: Self = Self::of(vipline_inet::Protocol::ICMPV6);
    /// SCTP.
    pub const SCTP: Self = Self::of(vipline_inet::Protocol::SCTP);

    /// Returns the number of an IP protocol.
    pub const fn of(protocol: vipline_inet::Protocol) -> Self {
        Self(protocol.0 as u32)
    }

    /// Returns the IP protocol, or `None` for a number above 255.
    pub fn ip(self) -> Option<vipline_inet::Protocol> {
        u8::try_from(self.0).ok().map(vipline_inet::Protocol)
    }
}

impl From<vipline_inet::Protocol> for Protocol {
    fn from(protocol: vipline_inet::Protocol) -> Self {
        Self::of(protocol)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ip_protocol_has_its_number_in_documents() {
        let tcp = vipline_inet::Protocol::TCP;
        assert_eq!(Protocol::from(tcp), Protocol::TCP);
        assert_eq!((Protocol::TCP.0, Protocol::TCP.ip()), (6, Some(tcp)));
        assert_eq!(Protocol(256).ip(), None);
    }
}
