//! Policies of networks.

use crate::document::{document, names};
use crate::policy::acl::NetworkAclPolicy;
use crate::policy::endpoint::{InterfaceConstraintPolicy, ProviderAddressPolicy};
use crate::policy::policies;
use crate::policy::proxy::L4ProxyPolicy;

policies! {
    /// A policy of a network.
    pub enum NetworkPolicy {
        /// The source MAC address of the network.
        SourceMacAddress(SourceMacAddressPolicy) = "SourceMacAddress",
        /// The network adapter, by name.
        NetAdapterName(NetAdapterNamePolicy) = "NetAdapterName",
        /// An extension of the switch.
        VSwitchExtension(VSwitchExtensionPolicy) = "VSwitchExtension",
        /// The MAC address of the distributed router.
        DrMacAddress(DrMacAddressPolicy) = "DrMacAddress",
        /// Automatic DNS settings.
        AutomaticDns(AutomaticDnsPolicy) = "AutomaticDNS",
        /// An interface of the host.
        InterfaceConstraint(InterfaceConstraintPolicy) = "InterfaceConstraint",
        /// The network adapter, by address.
        ProviderAddress(ProviderAddressPolicy) = "ProviderAddress",
        /// The subnet of another host.
        RemoteSubnetRoute(RemoteSubnetRoutePolicy) = "RemoteSubnetRoute",
        /// The UDP port of VXLAN.
        VxlanPort(VxlanPortPolicy) = "VxlanPort",
        /// A set of addresses.
        Set(SetPolicy) = "SetPolicy",
        /// A layer-4 proxy.
        L4Proxy(L4ProxyPolicy) = "L4Proxy",
        /// A layer.
        LayerConstraint(LayerConstraintPolicy) = "LayerConstraint",
        /// A firewall rule.
        Acl(NetworkAclPolicy) = "NetworkACL",
    }
}

names! {
    /// The type of a set.
    pub enum SetType {
        /// Addresses.
        IpSet = "IPSET",
        /// Names of sets.
        NestedIpSet = "NESTEDIPSET",
    }
}

document! {
    /// The source MAC address of a network: `SourceMacAddress`.
    pub struct SourceMacAddressPolicy {
        /// MAC address.
        "SourceMacAddress"? address: String,
    }
}

document! {
    /// The network adapter of a network: `NetAdapterName`.
    pub struct NetAdapterNamePolicy {
        /// Name of the adapter.
        "NetworkAdapterName"? name: String,
    }
}

document! {
    /// An extension of the switch: `VSwitchExtension`.
    pub struct VSwitchExtensionPolicy {
        /// Identifier of the extension.
        "ExtensionID"? extension_id: String,
        /// Whether the extension is on.
        "Enable"? enable: bool,
    }
}

document! {
    /// The MAC address of the distributed router: `DrMacAddress`.
    pub struct DrMacAddressPolicy {
        /// MAC address.
        "Address"? address: String,
    }
}

document! {
    /// Automatic DNS settings: `AutomaticDNS`.
    pub struct AutomaticDnsPolicy {
        /// Whether the settings are automatic.
        "Enable"? enable: bool,
    }
}

document! {
    /// The subnet of another host in an overlay network: `RemoteSubnetRoute`.
    pub struct RemoteSubnetRoutePolicy {
        /// Addresses of the subnet in CIDR notation.
        "DestinationPrefix" destination: String,
        /// VXLAN network identifier.
        "IsolationId" isolation_id: u32,
        /// Address of the host.
        "ProviderAddress" provider_address: String,
        /// MAC address of the host's router.
        "DistributedRouterMacAddress" router_mac_address: String,
    }
}

impl RemoteSubnetRoutePolicy {
    /// Creates a policy.
    pub fn new(
        destination: &str,
        isolation_id: u32,
        provider_address: &str,
        router_mac_address: &str,
    ) -> Self {
        Self {
            destination: destination.into(),
            isolation_id,
            provider_address: provider_address.into(),
            router_mac_address: router_mac_address.into(),
            ..Self::default()
        }
    }
}

document! {
    /// The UDP port of VXLAN: `VxlanPort`. Requires
    /// [`Features::VXLAN_PORT`](crate::Features::VXLAN_PORT).
    pub struct VxlanPortPolicy {
        /// Port.
        "Port" port: u16,
    }
}

document! {
    /// A set that rules can refer to: `SetPolicy`. Requires
    /// [`Features::SET_POLICY`](crate::Features::SET_POLICY).
    pub struct SetPolicy {
        /// Identifier.
        "Id" id: String,
        /// Name.
        "Name" name: String,
        /// Type.
        "PolicyType" set_type: SetType,
        /// Elements, separated by commas.
        "Values" values: String,
    }
}

document! {
    /// A layer: `LayerConstraint`.
    pub struct LayerConstraintPolicy {
        /// Identifier.
        "LayerId"? layer_id: String,
    }
}
