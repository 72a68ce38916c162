//! Policies of endpoints.

use crate::Protocol;
use crate::document::{document, flags};
use crate::policy::acl::{AclPolicy, TierAclPolicy};
use crate::policy::policies;
use crate::policy::proxy::{L4ProxyPolicy, L4WfpProxyPolicy};

policies! {
    /// A policy of an endpoint.
    pub enum EndpointPolicy {
        /// A port of the host that leads to the endpoint.
        PortMapping(PortMappingPolicy) = "PortMapping",
        /// A firewall rule.
        Acl(AclPolicy) = "ACL",
        /// A limit of bandwidth.
        Qos(QosPolicy) = "QOS",
        /// Translation of source addresses.
        OutboundNat(OutboundNatPolicy) = "OutBoundNAT",
        /// A route of software-defined networking.
        SdnRoute(SdnRoutePolicy) = "SDNRoute",
        /// A layer-4 proxy.
        L4Proxy(L4ProxyPolicy) = "L4Proxy",
        /// A layer-4 proxy by the Windows Filtering Platform.
        L4WfpProxy(Box<L4WfpProxyPolicy>) = "L4WFPPROXY",
        /// A name of the port.
        PortName(PortNamePolicy) = "PortName",
        /// Bytes for encapsulation.
        EncapOverhead(EncapOverheadPolicy) = "EncapOverhead",
        /// I/O virtualization.
        Iov(IovPolicy) = "Iov",
        /// The address of the host of a remote endpoint.
        ProviderAddress(ProviderAddressPolicy) = "ProviderAddress",
        /// An interface of the host.
        InterfaceConstraint(InterfaceConstraintPolicy) = "InterfaceConstraint",
        /// A tier of firewall rules.
        TierAcl(TierAclPolicy) = "TierAcl",
    }
}

flags! {
    /// Flags of address translation.
    pub struct NatFlags {
        /// The host itself can reach the address.
        const LOCAL_ROUTED_VIP = 1;
        /// The translation is for IPv6.
        const IPV6 = 2;
    }
}

document! {
    /// A port of the host that leads to an endpoint: `PortMapping`.
    pub struct PortMappingPolicy {
        /// Protocol.
        "Protocol"? protocol: Protocol,
        /// Port of the endpoint.
        "InternalPort"? internal_port: u16,
        /// Port of the host.
        "ExternalPort"? external_port: u16,
        /// Address of the host. Without one, all addresses.
        "VIP"? vip: String,
        /// Flags.
        "Flags"? flags: NatFlags,
    }
}

document! {
    /// A limit of bandwidth: `QOS`.
    pub struct QosPolicy {
        /// Highest rate from the endpoint, in bytes per second.
        "MaximumOutgoingBandwidthInBytes" max_outgoing_bandwidth: u64,
    }
}

document! {
    /// Translation of source addresses: `OutBoundNAT`.
    pub struct OutboundNatPolicy {
        /// Source address after the translation. Without one, the address of the host.
        "VirtualIP"? virtual_ip: String,
        /// Prefixes of destinations without translation.
        "Exceptions"? exceptions: Vec<String>,
        /// Prefixes of destinations with translation. Without any, all.
        "Destinations"? destinations: Vec<String>,
        /// Flags.
        "Flags"? flags: NatFlags,
        /// Highest share of the ports of the host, in percent.
        "MaxPortPoolUsage"? max_port_pool_usage: u16,
    }
}

document! {
    /// A route of software-defined networking: `SDNRoute`.
    pub struct SdnRoutePolicy {
        /// Destination in CIDR notation.
        "DestinationPrefix"? destination: String,
        /// Address of the gateway.
        "NextHop"? next_hop: String,
        /// Whether packets are encapsulated.
        "NeedEncap"? needs_encapsulation: bool,
    }
}

impl SdnRoutePolicy {
    /// Creates a route. Without a next hop, the destination is on the link.
    pub fn new(destination: &str, next_hop: &str) -> Self {
        Self {
            destination: destination.into(),
            next_hop: next_hop.into(),
            ..Self::default()
        }
    }
}

document! {
    /// A name of the port: `PortName`.
    pub struct PortNamePolicy {
        /// Name.
        "Name"? name: String,
    }
}

document! {
    /// Bytes for encapsulation: `EncapOverhead`.
    pub struct EncapOverheadPolicy {
        /// Number of bytes.
        "Overhead"? overhead: u16,
    }
}

document! {
    /// I/O virtualization: `Iov`.
    pub struct IovPolicy {
        /// Weight of offloading. 0: off.
        "IovOffloadWeight"? offload_weight: u32,
        /// Number of pairs of queues.
        "QueuePairsRequested"? queue_pairs: u32,
        /// Moderation of interrupts.
        "InterruptModeration"? interrupt_moderation: u32,
    }
}

document! {
    /// The address of a host: `ProviderAddress`.
    pub struct ProviderAddressPolicy {
        /// Address.
        "ProviderAddress"? address: String,
    }
}

impl ProviderAddressPolicy {
    /// Creates a policy.
    pub fn new(address: &str) -> Self {
        Self {
            address: address.into(),
            ..Self::default()
        }
    }
}

document! {
    /// An interface of the host: `InterfaceConstraint`. All members that are set must
    /// match.
    pub struct InterfaceConstraintPolicy {
        /// GUID.
        "InterfaceGuid"? guid: String,
        /// Locally unique identifier.
        "InterfaceLuid"? luid: u64,
        /// Index.
        "InterfaceIndex"? index: u32,
        /// Media type.
        "InterfaceMediaType"? media_type: u32,
        /// Alias.
        "InterfaceAlias"? alias: String,
        /// Description.
        "InterfaceDescription"? description: String,
    }
}
