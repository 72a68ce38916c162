//! Desired objects of a service port, and its claims to addresses.
//!
//! Nothing stops two Services from naming one address: an external IP is a field that anybody
//! may fill in, and a node port may be the port of a load balancer IP on the same node. Packets
//! to the address must follow the rules of exactly one of them, in every mode and on every node
//! the same one. So a planner does not return a flat list of objects. It returns those of each
//! address as a [`Claim`], and the driver installs the claim with the highest precedence.
//!
//! For example: `default/web` has cluster IP 10.96.0.10, and `evil/mail` has it as external IP.
//!
//! ```text
//!                    own                  claims
//! default/web        chain of the port    10.96.0.10:80  ClusterIp   { elements }   installed
//! evil/mail          chain of the port    10.96.0.10:80  ExternalIp  { elements }   waits
//! ```
//!
//! If `default/web` is deleted, the claim of `evil/mail` moves up, without a new plan.
//!
//! What must stay true: the key of an object of a claim belongs to that address alone. An object
//! that two addresses share, such as the chain of the port, is the port's own: with a claim it
//! would vanish when that address is lost, while the other one still jumps to it.

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
#[derive(Debug)]
pub struct Fragment<T> {
    /// Objects that do not depend on a claim.
    pub own: Vec<T>,
    claims: Vec<Claim<T>>,
    /// Position of each address in `claims`, if there are more than [`MAX_CLAIMS_WITHOUT_MAP`].
    places: HashMap<Address, usize>,
}

/// Maximum number of claims that are searched in order. Nearly all service ports have fewer, and
/// need no map. Beyond it a search of all would make a Service with a thousand addresses cost a
/// million comparisons.
const MAX_CLAIMS_WITHOUT_MAP: usize = 8;

impl<T> Default for Fragment<T> {
    fn default() -> Self {
        Self {
            own: Vec::new(),
            claims: Vec::new(),
            places: HashMap::new(),
        }
    }
}

impl<T> Fragment<T> {
    /// Returns the objects that the service port gets if its claim to an address wins.
    ///
    /// An address may be of several kinds. Its claim has the first of them.
    pub fn at(&mut self, kind: AddressKind, address: Address) -> &mut Vec<T> {
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
        // The first kind has the highest precedence: a load balancer IP that is also an external
        // IP of the same Service must not lose to the load balancer IP of another one.
        claim.kind = claim.kind.min(kind);
        &mut claim.objects
    }

    /// Returns the position of the claim to an address.
    fn find(&self, address: Address) -> Option<usize> {
        match self.claims.len() {
            0..=MAX_CLAIMS_WITHOUT_MAP => {
                let mut claims = self.claims.iter();
                claims.position(|claim| claim.address == address)
            }
            _ => self.places.get(&address).copied(),
        }
    }

    /// Adds the position of the last claim to `places`.
    fn note_last_place(&mut self) {
        let first = match self.claims.len() {
            0..=MAX_CLAIMS_WITHOUT_MAP => return,
            // From now on `find` looks only at the map, so the former claims enter it, too.
            len if len == MAX_CLAIMS_WITHOUT_MAP + 1 => 0,
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
            for number in 0..3 * MAX_CLAIMS_WITHOUT_MAP as u16 {
                let address = Address::NodePort(Transport::Tcp, number);
                fragment.at(AddressKind::NodePort, address).push(round);
            }
        }
        let claims = PortObjects::from(fragment).claims;
        assert_eq!(claims.len(), 3 * MAX_CLAIMS_WITHOUT_MAP);
        assert!(claims.iter().all(|claim| claim.objects == [0, 1]));
    }
}
