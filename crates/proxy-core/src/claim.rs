//! What a service port wants, and which addresses it claims.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vipline_service_model::{PortName, Protocol};

/// What one service port wants.
#[derive(Clone, Debug)]
pub struct Wants<T> {
    /// What it gets in any case.
    pub own: Vec<T>,
    /// What it gets for each address that it is not contested for by an older
    /// Service.
    pub claims: Vec<Claim<T>>,
}

/// What one service port wants for one of its addresses.
#[derive(Clone, Debug)]
pub struct Claim<T> {
    /// The address.
    pub address: Address,
    /// The objects: nobody else wants one of their keys for another address, or
    /// for none.
    pub objects: Vec<T>,
}

impl<T> From<Vec<T>> for Wants<T> {
    /// Wants objects that are of no address.
    fn from(own: Vec<T>) -> Self {
        let claims = Vec::new();
        Self { own, claims }
    }
}

impl<T> Wants<T> {
    /// Returns all objects, as if no address were contested.
    pub fn into_objects(self) -> impl Iterator<Item = T> {
        let claimed = self.claims.into_iter().flat_map(|claim| claim.objects);
        self.own.into_iter().chain(claimed)
    }
}

/// Where clients connect to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Address {
    /// A cluster IP, an external IP or that of a load balancer, with a port.
    Ip(IpAddr, Protocol, u16),
    /// A port of the node.
    NodePort(Protocol, u16),
}

/// In one piece: an address is asked for often.
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

/// An address that several Services claim.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Contested {
    /// The address.
    pub address: Address,
    /// Who has it: the port of the older Service.
    pub winner: Arc<PortName>,
    /// Who has to do without it until the winner lets go.
    pub loser: Arc<PortName>,
}

/// Displays as a warning to the owner of the loser.
impl fmt::Display for Contested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            winner,
            loser,
        } = self;
        write!(
            f,
            "{loser} does not get {address}: the older {winner} has it"
        )
    }
}
