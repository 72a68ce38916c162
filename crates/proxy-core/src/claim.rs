//! Desired objects of a service port, and its claims to addresses.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vipline_service_model::{Counted, ObjectName, PortName, ServicePort, Transport};

/// Desired objects of one service port.
///
/// Exhaustive: a planner fills in every field.
#[derive(Clone, Debug)]
pub struct PortObjects<T> {
    /// Objects that do not depend on a claim.
    pub own: Vec<T>,
    /// Objects per address. The service port gets them if its claim to the address
    /// has the highest [precedence](AddressKind).
    pub claims: Vec<Claim<T>>,
}

/// Objects of one service port for one of its addresses.
///
/// Exhaustive: a planner fills in every field.
#[derive(Clone, Debug)]
pub struct Claim<T> {
    /// The address.
    pub address: Address,
    /// Kind of the address. If several kinds apply, the first.
    pub kind: AddressKind,
    /// The objects. Their keys occur neither for another address nor without an address.
    pub objects: Vec<T>,
}

impl<T> Default for PortObjects<T> {
    /// Returns no objects.
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T> From<Vec<T>> for PortObjects<T> {
    /// Returns objects that belong to no address.
    fn from(own: Vec<T>) -> Self {
        let claims = Vec::new();
        Self { own, claims }
    }
}

impl<T> PortObjects<T> {
    /// Returns all objects, as if no address were contested.
    pub fn into_objects(self) -> impl Iterator<Item = T> {
        let claimed = self.claims.into_iter().flat_map(|claim| claim.objects);
        self.own.into_iter().chain(claimed)
    }
}

/// Collects the objects of one service port during planning, and groups them by claimed
/// address.
#[cfg_attr(
    not(any(feature = "iptables", feature = "kernelspace", feature = "nftables")),
    allow(dead_code, reason = "no mode is built in")
)]
#[derive(Debug)]
pub(crate) struct Fragment<T> {
    /// Objects that do not depend on a claim.
    pub(crate) own: Vec<T>,
    claims: Vec<Claim<T>>,
    /// Position of each address in `claims`, if there are more than [`FEW`].
    places: HashMap<Address, usize>,
}

/// Number of claims up to which a search is faster than a lookup in a map.
const FEW: usize = 8;

impl<T> Default for Fragment<T> {
    fn default() -> Self {
        Self {
            own: Vec::new(),
            claims: Vec::new(),
            places: HashMap::new(),
        }
    }
}

#[cfg_attr(
    not(any(feature = "iptables", feature = "kernelspace", feature = "nftables")),
    allow(dead_code, reason = "no mode is built in")
)]
impl<T> Fragment<T> {
    /// Returns the objects that the service port gets if its claim to an address wins.
    ///
    /// An address may be of several kinds. Its claim has the first of them.
    pub(crate) fn at(&mut self, kind: AddressKind, address: Address) -> &mut Vec<T> {
        let next = self.claims.len();
        let place = self.find(address).unwrap_or(next);
        if place == next {
            let objects = Vec::new();
            self.claims.push(Claim {
                address,
                kind,
                objects,
            });
            self.note_last_place();
        }
        let claim = &mut self.claims[place];
        claim.kind = claim.kind.min(kind);
        &mut claim.objects
    }

    /// Returns the position of the claim to an address.
    fn find(&self, address: Address) -> Option<usize> {
        match self.claims.len() {
            0..=FEW => self.claims.iter().position(|it| it.address == address),
            _ => self.places.get(&address).copied(),
        }
    }

    /// Adds the position of the last claim to `places`.
    fn note_last_place(&mut self) {
        let first = match self.claims.len() {
            0..=FEW => return,
            len if len == FEW + 1 => 0,
            len => len - 1,
        };
        let places = (first..).zip(&self.claims[first..]);
        self.places
            .extend(places.map(|(place, claim)| (claim.address, place)));
    }
}

impl<T> From<Fragment<T>> for PortObjects<T> {
    /// Returns the claims in the order in which their addresses were first used.
    fn from(fragment: Fragment<T>) -> Self {
        let Fragment { own, claims, .. } = fragment;
        Self { own, claims }
    }
}

/// Returns the external IPs and load balancer IPs of a service port, in the order of the
/// Service.
///
/// An external address that equals the cluster IP counts as cluster IP and is left out.
pub(crate) fn external_ips(port: &ServicePort) -> impl Iterator<Item = (IpAddr, AddressKind)> {
    let of_kind = |ips, kind| <[IpAddr]>::iter(ips).map(move |&addr| (addr, kind));
    of_kind(&port.external_ips, AddressKind::ExternalIp)
        .chain(of_kind(
            &port.load_balancer_ips,
            AddressKind::LoadBalancerIp,
        ))
        .filter(|(addr, _)| *addr != port.cluster_ip)
}

/// Returns the addresses of a service port and their kinds. An external address may be of
/// both external kinds.
pub(crate) fn addresses(port: &ServicePort) -> impl Iterator<Item = (Address, AddressKind)> {
    let ips = iter::once((port.cluster_ip, AddressKind::ClusterIp)).chain(external_ips(port));
    let ips = ips.map(|(addr, kind)| (Address::ip(port, addr), kind));
    let node_port = port.node_port.map(|number| {
        let address = Address::NodePort(port.protocol, number);
        (address, AddressKind::NodePort)
    });
    ips.chain(node_port)
}

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
    pub(crate) fn ip(port: &ServicePort, addr: IpAddr) -> Self {
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

/// An address that several service ports claim.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ContestedAddress {
    /// The address.
    pub address: Address,
    /// The service port that gets the address.
    pub owner: Arc<PortName>,
    /// The kind of the owner's claim.
    pub kind: AddressKind,
    /// Number of service ports that claim the address, including the owner.
    pub claim_count: usize,
}

/// Displays as a warning for the cluster's operator.
impl fmt::Display for ContestedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            owner,
            kind,
            claim_count,
        } = self;
        let words = "service ports claim this address";
        write!(
            f,
            "{address}: {claim_count} {words}; {owner} gets it as its {kind}"
        )
    }
}

/// Addresses that a Service claims and other Services get.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LostAddresses {
    /// The Service that does not get the addresses.
    pub service: ObjectName,
    /// The first of the addresses.
    pub first: Address,
    /// The service port that gets the first address.
    pub owner: Arc<PortName>,
    /// The kind of the owner's claim.
    pub kind: AddressKind,
    /// Number of addresses besides the first.
    pub others: usize,
}

/// Displays as a warning for the owner of the Service.
impl fmt::Display for LostAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            service,
            first,
            owner,
            kind,
            others,
        } = self;
        write!(
            f,
            "{service} does not get {first}: {owner} has it as its {kind}"
        )?;
        match others {
            0 => Ok(()),
            _ => write!(f, "; nor does it get {}", Counted(*others, "other address")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER_IP: [u8; 4] = [10, 96, 0, 10];
    const VIP: [u8; 4] = [203, 0, 113, 9];

    fn web() -> ServicePort {
        let name = PortName {
            namespace: "default".into(),
            service: "web".into(),
            port: "".into(),
            protocol: Transport::Tcp,
            created: None,
        };
        ServicePort {
            node_port: Some(30_080),
            external_ips: Arc::new([VIP.into(), CLUSTER_IP.into()]),
            load_balancer_ips: Arc::new([VIP.into()]),
            ..ServicePort::new(Arc::new(name), CLUSTER_IP.into(), 80)
        }
    }

    #[test]
    fn an_external_address_that_equals_the_cluster_ip_counts_as_cluster_ip() {
        let text = |(address, kind): (Address, AddressKind)| format!("{kind} {address}");
        let addresses: Vec<_> = addresses(&web()).map(text).collect();
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

    #[test]
    fn an_address_of_several_kinds_is_one_claim_of_the_first_kind() {
        let port = web();
        let mut fragment = Fragment::default();
        for (number, (address, kind)) in addresses(&port).enumerate() {
            fragment.at(kind, address).push(number);
        }
        let claims = PortObjects::from(fragment).claims.into_iter();
        let claims: Vec<_> = claims.map(|claim| (claim.kind, claim.objects)).collect();
        assert_eq!(
            claims,
            [
                (AddressKind::ClusterIp, vec![0]),
                (AddressKind::LoadBalancerIp, vec![1, 2]),
                (AddressKind::NodePort, vec![3]),
            ]
        );
    }

    #[test]
    fn many_addresses_have_one_claim_each() {
        let mut fragment = Fragment::default();
        for round in 0..2 {
            for number in 0..3 * FEW as u16 {
                let address = Address::NodePort(Transport::Tcp, number);
                fragment.at(AddressKind::NodePort, address).push(round);
            }
        }
        let claims = PortObjects::from(fragment).claims;
        assert_eq!(claims.len(), 3 * FEW);
        assert!(claims.iter().all(|claim| claim.objects == [0, 1]));
    }
}
