//! Layer-4 proxies.

use crate::Protocol;
use crate::document::document;

document! {
    /// A proxy of a network or endpoint: `L4Proxy`. Requires
    /// [`Features::L4_PROXY`](crate::Features::L4_PROXY).
    pub struct L4ProxyPolicy {
        /// Addresses whose traffic is redirected.
        "IP"? ip: String,
        /// Port whose traffic is redirected.
        "Port"? port: String,
        /// Protocol.
        "Protocol"? protocol: Protocol,
        /// Addresses whose traffic is not redirected.
        "Exceptions"? exceptions: Vec<String>,
        /// Address of the proxy.
        "Destination" destination: String,
        /// Whether source addresses are translated.
        "OutboundNAT"? outbound_nat: bool,
    }
}

document! {
    /// A proxy of an endpoint by the Windows Filtering Platform: `L4WFPPROXY`. Requires
    /// [`Features::L4_WFP_PROXY`](crate::Features::L4_WFP_PROXY).
    pub struct L4WfpProxyPolicy {
        /// Port of the proxy for packets to the endpoint.
        "InboundProxyPort"? inbound_proxy_port: String,
        /// Port of the proxy for packets from the endpoint.
        "OutboundProxyPort"? outbound_proxy_port: String,
        /// Packets that are redirected.
        "FilterTuple"? filter: FiveTuple,
        /// Security identifier of the user of the proxy.
        "UserSID"? user_sid: String,
        /// Exceptions for packets to the endpoint.
        "InboundExceptions"? inbound_exceptions: ProxyExceptions,
        /// Exceptions for packets from the endpoint.
        "OutboundExceptions"? outbound_exceptions: ProxyExceptions,
    }
}

document! {
    /// A filter for packets.
    pub struct FiveTuple {
        /// Numbers of protocols, such as `6,17`.
        "Protocols"? protocols: String,
        /// Addresses of the endpoint.
        "LocalAddresses"? local_addresses: String,
        /// Addresses of the peer.
        "RemoteAddresses"? remote_addresses: String,
        /// Ports of the endpoint.
        "LocalPorts"? local_ports: String,
        /// Ports of the peer.
        "RemotePorts"? remote_ports: String,
        /// Priority: smaller numbers apply first.
        "Priority"? priority: u16,
    }
}

document! {
    /// Addresses and ports that bypass a proxy.
    pub struct ProxyExceptions {
        /// Addresses.
        "IpAddressExceptions"? ip_addresses: Vec<String>,
        /// Ports.
        "PortExceptions"? ports: Vec<String>,
    }
}
