//! Addresses of a service port that clients connect to, and their precedence.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::{fmt, iter};

use crate::{ServicePort, Transport};

/// An address that clients connect to.
///
/// Exhaustive: Services claim these two kinds of addresses.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Address {
    /// A cluster IP, external IP or load balancer IP, with a port.
    Ip(IpAddr, Transport, u16),
    /// A node port.
    NodePort(Transport, u16),
}

impl Address {
    /// Returns the port of a service port at one of its IP addresses.
    pub fn ip(port: &ServicePort, addr: IpAddr) -> Self {
        Self::Ip(addr, port.protocol, port.port)
    }
}

/// Hashes the address as one integer, because lookups are frequent.
impl Hash for Address {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (addr, protocol, port) = match *self {
            Self::Ip(IpAddr::V4(addr), protocol, port) => (addr.to_bits().into(), protocol, port),
            Self::Ip(IpAddr::V6(addr), protocol, port) => (addr.to_bits(), protocol, port),
            Self::NodePort(protocol, port) => (u128::MAX, protocol, port),
        };
        state.write_u128(addr.rotate_left(64) ^ u128::from(port) << 8 ^ protocol as u128);
    }
}

/// Displays as `203.0.113.9:80/TCP` or `node port 30080/TCP`.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ip(addr, protocol, port) => {
                write!(f, "{}/{protocol}", SocketAddr::new(addr, port))
            }
            Self::NodePort(protocol, port) => write!(f, "node port {port}/{protocol}"),
        }
    }
}

/// Kind of an address of a service port, in order of precedence.
///
/// If several service ports claim one address and port, the claim with the first kind
/// wins. Among claims of one kind the oldest Service wins. So a user-set field never
/// takes over a cluster IP, which the control plane assigns.
///
/// Exhaustive: the precedence of addresses covers these kinds.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum AddressKind {
    /// An address of `spec.clusterIPs`.
    ClusterIp,
    /// An address of `status.loadBalancer.ingress`.
    LoadBalancerIp,
    /// An address of `spec.externalIPs`.
    ExternalIp,
    /// A node port, in mode ipvs at one address of the node.
    NodePort,
}

impl AddressKind {
    /// Every kind, in order of precedence.
    pub const ALL: [Self; 4] = [
        Self::ClusterIp,
        Self::LoadBalancerIp,
        Self::ExternalIp,
        Self::NodePort,
    ];
}

/// Displays as in `its cluster IP`.
impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusterIp => "cluster IP",
            Self::LoadBalancerIp => "load balancer IP",
            Self::ExternalIp => "external IP",
            Self::NodePort => "node port",
        })
    }
}

impl ServicePort {
    /// Returns the addresses and their kinds. An external address may be of both external
    /// kinds.
    pub fn addresses(&self) -> impl Iterator<Item = (Address, AddressKind)> {
        let cluster_ip = iter::once((self.cluster_ip, AddressKind::ClusterIp));
        let ips = cluster_ip.chain(self.external_addresses());
        let ips = ips.map(|(addr, kind)| (Address::ip(self, addr), kind));
        let node_port = self.node_port.map(|number| {
            let address = Address::NodePort(self.protocol, number);
            (address, AddressKind::NodePort)
        });
        ips.chain(node_port)
    }

    /// Returns the external IPs and load balancer IPs, in the order of the Service.
    ///
    /// An external address that equals the cluster IP counts as cluster IP and is left out.
    pub fn external_addresses(&self) -> impl Iterator<Item = (IpAddr, AddressKind)> {
        let of_kind = |ips, kind| <[IpAddr]>::iter(ips).map(move |&addr| (addr, kind));
        of_kind(&self.external_ips, AddressKind::ExternalIp)
            .chain(of_kind(
                &self.load_balancer_ips,
                AddressKind::LoadBalancerIp,
            ))
            .filter(|(addr, _)| *addr != self.cluster_ip)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::service_port::tests::web;

    const CLUSTER_IP: [u8; 4] = [10, 96, 0, 10];
    const VIP: [u8; 4] = [203, 0, 113, 9];

    #[test]
    fn an_external_address_that_equals_the_cluster_ip_counts_as_cluster_ip() {
        let port = ServicePort {
            node_port: Some(30_080),
            external_ips: Arc::new([VIP.into(), CLUSTER_IP.into()]),
            load_balancer_ips: Arc::new([VIP.into()]),
            ..web()
        };
        let text = |(address, kind): (Address, AddressKind)| format!("{kind} {address}");
        let addresses: Vec<_> = port.addresses().map(text).collect();
        assert_eq!(
            addresses,
            [
                "cluster IP 10.96.0.10:80/TCP",
                "external IP 203.0.113.9:80/TCP",
                "load balancer IP 203.0.113.9:80/TCP",
                "node port node port 30080/TCP",
            ]
        );
    }
}
