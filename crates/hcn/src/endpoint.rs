//! Endpoints.

use std::net::IpAddr;

use crate::document::{document, flags};
use crate::network::{Dns, Route};
use crate::policy::{EndpointPolicy, Policy};
use crate::{Id, Version};

flags! {
    /// Flags of an endpoint.
    pub struct EndpointFlags {
        /// The endpoint is on another host.
        const REMOTE = 1;
    }
}

document! {
    /// An endpoint: the interface of a container, or a container of another host.
    pub struct Endpoint {
        /// Identifier.
        "ID"? id: Id,
        /// Name.
        "Name"? name: String,
        /// Identifier of the network.
        "HostComputeNetwork"? network: Id,
        /// Identifier of the namespace. HNS sets it, and rejects it in a new endpoint.
        "HostComputeNamespace"? namespace: Id,
        /// Policies.
        "Policies"? policies: Vec<Policy<EndpointPolicy>>,
        /// Addresses.
        "IpConfigurations"? ip_configurations: Vec<IpConfig>,
        /// DNS settings.
        "Dns"? dns: Dns,
        /// Routes.
        "Routes"? routes: Vec<Route>,
        /// MAC address, such as `00-15-5D-52-C0-01`.
        "MacAddress"? mac_address: String,
        /// Flags.
        "Flags"? flags: EndpointFlags,
        /// Version of the schema.
        "SchemaVersion"? schema_version: Version,
    }
}

impl Endpoint {
    /// Creates an endpoint of this host with one address. HNS assigns the MAC address.
    pub fn local(address: IpAddr) -> Self {
        Self {
            ip_configurations: vec![IpConfig::new(address)],
            schema_version: Version::SCHEMA,
            ..Self::default()
        }
    }

    /// Creates an endpoint of another host with one address and a MAC address.
    pub fn remote(address: IpAddr, mac_address: &str) -> Self {
        Self {
            mac_address: mac_address.into(),
            flags: EndpointFlags::REMOTE,
            ..Self::local(address)
        }
    }

    /// Adds a policy.
    #[must_use]
    pub fn with_policy(mut self, policy: impl Into<EndpointPolicy>) -> Self {
        self.policies.push(Policy::new(policy));
        self
    }

    /// Returns the addresses. Text that is no address is skipped.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let configurations = self.ip_configurations.iter();
        configurations.filter_map(|each| each.address.parse().ok())
    }

    /// Returns whether the endpoint is on another host.
    pub fn is_remote(&self) -> bool {
        self.flags.contains(EndpointFlags::REMOTE)
    }
}

document! {
    /// An address of an endpoint.
    pub struct IpConfig {
        /// Address.
        "IpAddress"? address: String,
        /// Length of the prefix of the subnet. 0: HNS sets it.
        "PrefixLength"? prefix_length: u8,
    }
}

impl IpConfig {
    /// Creates an address; HNS sets the length of the prefix.
    pub fn new(address: IpAddr) -> Self {
        Self {
            address: address.to_string(),
            ..Self::default()
        }
    }
}
