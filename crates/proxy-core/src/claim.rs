//! Desired objects of a service port, and its claims to addresses.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use vipline_service_model::{Address, AddressKind, Counted, ObjectName, PortName};

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
    use vipline_service_model::{ServicePort, Transport};

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
    fn an_address_of_several_kinds_is_one_claim_of_the_first_kind() {
        let port = web();
        let mut fragment = Fragment::default();
        for (number, (address, kind)) in port.addresses().enumerate() {
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
