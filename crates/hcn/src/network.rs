//! Networks.

use crate::document::{document, flags, names};
use crate::policy::{NetworkPolicy, Policy, SubnetPolicy};
use crate::{Id, Version};

names! {
    /// The type of a network.
    pub enum NetworkType {
        /// Containers behind the addresses of the host.
        Nat = "NAT",
        /// Containers with addresses of the physical network and MAC addresses of their own.
        Transparent = "Transparent",
        /// Containers with addresses of the physical network and the MAC address of the
        /// host.
        L2Bridge = "L2Bridge",
        /// As [`Self::L2Bridge`], with all traffic through the physical host.
        L2Tunnel = "L2Tunnel",
        /// Internet connection sharing.
        Ics = "ICS",
        /// Containers without a connection to the host.
        Private = "Private",
        /// VXLAN between hosts.
        Overlay = "Overlay",
    }
}

impl NetworkType {
    /// Returns whether the type is [`Self::Overlay`]. Case does not count.
    pub fn is_overlay(&self) -> bool {
        self.as_str().eq_ignore_ascii_case(Self::Overlay.as_str())
    }
}

flags! {
    /// Flags of a network.
    pub struct NetworkFlags {
        /// The network is not persistent.
        const NON_PERSISTENT = 8;
        /// The host has no port on the network.
        const DISABLE_HOST_PORT = 1024;
        /// I/O virtualization.
        const IOV = 8192;
    }
}

flags! {
    /// Flags of a subnet.
    pub struct SubnetFlags {
        /// The address of the gateway may be the address of the host.
        const DO_NOT_RESERVE_GATEWAY_ADDRESS = 1;
    }
}

document! {
    /// A network.
    pub struct Network {
        /// Identifier.
        "ID"? id: Id,
        /// Name.
        "Name"? name: String,
        /// Type. HNS omits [`NetworkType::Nat`].
        "Type"? network_type: Option<NetworkType>,
        /// Policies.
        "Policies"? policies: Vec<Policy<NetworkPolicy>>,
        /// MAC addresses for endpoints.
        "MacPool"? mac_pool: MacPool,
        /// DNS settings of endpoints.
        "Dns"? dns: Dns,
        /// Address spaces.
        "Ipams"? ipams: Vec<Ipam>,
        /// Flags.
        "Flags"? flags: NetworkFlags,
        /// Version of the schema.
        "SchemaVersion"? schema_version: Version,
    }
}

impl Network {
    /// Creates a network.
    pub fn new(name: &str, network_type: NetworkType) -> Self {
        Self {
            name: name.into(),
            network_type: Some(network_type),
            schema_version: Version::SCHEMA,
            ..Self::default()
        }
    }

    /// Adds an address space of type `Static` with one subnet and its default gateway.
    #[must_use]
    pub fn with_subnet(mut self, prefix: &str, gateway: &str) -> Self {
        let default = if prefix.contains(':') {
            "::/0"
        } else {
            "0.0.0.0/0"
        };
        self.ipams.push(Ipam {
            ipam_type: "Static".into(),
            subnets: vec![Subnet {
                prefix: prefix.into(),
                routes: vec![Route {
                    next_hop: gateway.into(),
                    destination: default.into(),
                    ..Route::default()
                }],
                ..Subnet::default()
            }],
            ..Ipam::default()
        });
        self
    }

    /// Adds a policy.
    #[must_use]
    pub fn with_policy(mut self, policy: impl Into<NetworkPolicy>) -> Self {
        self.policies.push(Policy::new(policy));
        self
    }

    /// Returns the type; an absent type is [`NetworkType::Nat`].
    pub fn network_type(&self) -> &NetworkType {
        self.network_type.as_ref().unwrap_or(&NetworkType::Nat)
    }

    /// Returns the subnets of all address spaces.
    pub fn subnets(&self) -> impl Iterator<Item = &Subnet> {
        self.ipams.iter().flat_map(|ipam| &ipam.subnets)
    }
}

document! {
    /// An address space of a network (IP address management).
    pub struct Ipam {
        /// Type: `Static` or `DHCP`.
        "Type"? ipam_type: String,
        /// Subnets.
        "Subnets"? subnets: Vec<Subnet>,
    }
}

document! {
    /// A subnet of an address space.
    pub struct Subnet {
        /// Addresses in CIDR notation.
        "IpAddressPrefix"? prefix: String,
        /// Policies.
        "Policies"? policies: Vec<Policy<SubnetPolicy>>,
        /// Routes. HNS requires a default route.
        "Routes"? routes: Vec<Route>,
        /// Flags.
        "Flags"? flags: SubnetFlags,
    }
}

document! {
    /// A route of a subnet or endpoint.
    pub struct Route {
        /// Address of the gateway.
        "NextHop"? next_hop: String,
        /// Destination in CIDR notation.
        "DestinationPrefix"? destination: String,
        /// Metric.
        "Metric"? metric: u16,
    }
}

document! {
    /// MAC addresses of a network.
    pub struct MacPool {
        /// Ranges.
        "Ranges"? ranges: Vec<MacRange>,
    }
}

document! {
    /// A range of MAC addresses, such as `00-15-5D-52-C0-00`.
    pub struct MacRange {
        /// First address.
        "StartMacAddress"? start: String,
        /// Last address.
        "EndMacAddress"? end: String,
    }
}

document! {
    /// DNS settings of a network or endpoint.
    pub struct Dns {
        /// Domain.
        "Domain"? domain: String,
        /// Domains to search.
        "Search"? search: Vec<String>,
        /// Addresses of servers.
        "ServerList"? servers: Vec<String>,
        /// Options.
        "Options"? options: Vec<String>,
    }
}
