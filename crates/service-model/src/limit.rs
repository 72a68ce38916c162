//! How much of one Service is served.
//!
//! A Service asks for every port at every address that it lists, so a small object asks for
//! a large product: 87 kB of JSON with 1,000 external IPs and 1,000 ports are a million
//! pairs, and each pair is at least one object in the kernel. Without a limit such a
//! Service takes gigabytes of memory on every node, and minutes in which no other Service
//! is programmed. So the product is cut here, before any list of pairs exists.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use crate::{Family, Transport, UnservedAddress, UnservedReason};

/// Maximum number of pairs of an address and a port that one Service gets in each IP
/// family.
///
/// Every port has a pair with the cluster IP, and one with the node port if it has one.
/// They come first, in the order of the object. The rest goes to load balancer IPs and then
/// to external IPs, in the order of the object. Such an address is served at all ports of
/// the Service, or at none.
pub const MAX_ADDRESS_PORT_PAIRS: usize = 16_384;

/// Maximum number of combinations of a load balancer IP, a port and a source range that one
/// Service gets in each IP family.
///
/// A load balancer IP beyond it is not served at all: without its source ranges it would be
/// open to everybody.
pub const MAX_SOURCE_CHECKS: usize = 65_536;

/// Ports or addresses of a Service that are not served, because the Service reached a limit
/// with those before them.
///
/// Displays as a sentence for the author of the Service.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct OverLimit {
    /// Family in which they are not served.
    pub family: Family,
    /// Field of the Service: `spec.ports`, `status.loadBalancer.ingress` or
    /// `spec.externalIPs`.
    pub field: &'static str,
    /// Number of ports or addresses.
    pub count: usize,
    /// The first of them, such as `203.0.113.15` or `8080/TCP`.
    pub first: Box<str>,
    /// The limit.
    pub limit: Limit,
}

/// A port of a Service that is not served in any IP family, because the Service reached
/// [`MAX_ADDRESS_PORT_PAIRS`] with the ports before it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PortOverLimit {
    /// Protocol.
    pub protocol: Transport,
    /// Port.
    pub port: u16,
    /// Node port, if it has one.
    pub node_port: Option<u16>,
}

/// A limit of one Service in one IP family.
///
/// Displays as a sentence for the author of the Service. Exhaustive: these are the products that one Service can ask for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limit {
    /// [`MAX_ADDRESS_PORT_PAIRS`].
    AddressPortPairs,
    /// [`MAX_SOURCE_CHECKS`].
    SourceChecks,
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            family,
            count,
            first,
            limit,
            field,
        } = self;
        let is_port = *field == PORTS;
        match (count, is_port) {
            (1, true) => write!(f, "port {first} is not served in {family}"),
            (1, false) => write!(f, "address {first} is not served"),
            (_, true) => write!(
                f,
                "{count} ports from {first} on are not served in {family}"
            ),
            (_, false) => write!(
                f,
                "{count} {family} addresses from {first} on are not served"
            ),
        }?;
        write!(f, ": {limit}")
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressPortPairs => write!(
                f,
                "a Service gets at most {MAX_ADDRESS_PORT_PAIRS} pairs of an address and a port in each IP family; use several Services"
            ),
            Self::SourceChecks => write!(
                f,
                "addresses x ports x source ranges of a Service are at most {MAX_SOURCE_CHECKS} in each IP family; merge source ranges, or use several Services"
            ),
        }
    }
}

/// [`OverLimit::field`] of ports.
const PORTS: &str = "spec.ports";

/// Returns how many of the ports, which are in the order of the object, are served, and the
/// number of their pairs.
///
/// `has_node_port` has an item for each port.
pub(crate) fn served_ports(has_node_port: impl Iterator<Item = bool>) -> (usize, usize) {
    let (mut served, mut pairs) = (0, 0);
    for has_node_port in has_node_port {
        let more = 1 + usize::from(has_node_port);
        if pairs + more > MAX_ADDRESS_PORT_PAIRS {
            break;
        }
        pairs += more;
        served += 1;
    }
    (served, pairs)
}

/// Describes ports that are not served, in the order of the object.
pub(crate) fn describe_ports(family: Family, beyond: &[PortOverLimit]) -> Option<OverLimit> {
    let PortOverLimit { protocol, port, .. } = beyond.first()?;
    Some(OverLimit {
        family,
        field: PORTS,
        count: beyond.len(),
        first: format!("{port}/{protocol}").into(),
        limit: Limit::AddressPortPairs,
    })
}

/// The external addresses of a Service in one family, without duplicates within each list.
#[derive(Debug)]
pub(crate) struct ExternalAddresses {
    pub(crate) family: Family,
    pub(crate) load_balancer_ips: Vec<IpAddr>,
    pub(crate) external_ips: Vec<IpAddr>,
}

/// External addresses beyond a limit, and the descriptions of both lists.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    pub(crate) addresses: Vec<UnservedAddress>,
    pub(crate) descriptions: Vec<OverLimit>,
}

impl ExternalAddresses {
    /// Removes the addresses beyond the limits, for `ports` served ports with `pairs` pairs
    /// of their own.
    pub(crate) fn cut(
        &mut self,
        cluster_ip: IpAddr,
        ports: usize,
        pairs: usize,
        source_ranges: usize,
    ) -> Cut {
        let mut cut = Cut::default();
        if ports == 0 {
            return cut;
        }
        // Each further address has a pair with each port.
        let mut left = (MAX_ADDRESS_PORT_PAIRS - pairs) / ports;
        let checked = match ports.saturating_mul(source_ranges) {
            0 => usize::MAX,
            of_address => MAX_SOURCE_CHECKS / of_address,
        };
        let (limit, load_balancer_ips) = match left <= checked {
            true => (Limit::AddressPortPairs, left),
            false => (Limit::SourceChecks, checked),
        };
        let at = load_balancer_ips.min(self.load_balancer_ips.len());
        let lost: HashSet<IpAddr> = self.load_balancer_ips[at..].iter().copied().collect();
        let field = "status.loadBalancer.ingress";
        cut.note(self.family, field, limit, &self.load_balancer_ips[at..]);
        self.load_balancer_ips.truncate(at);
        left -= at;
        // An external IP that is a load balancer IP as well has no pairs of its own. Where
        // the load balancer IP is not served, the external IP must not be served either,
        // because source ranges restrict load balancer IPs only.
        let shared: HashSet<IpAddr> = self.load_balancer_ips.iter().copied().collect();
        let is_served = |addr: &IpAddr| {
            let has_pairs = *addr != cluster_ip && !shared.contains(addr);
            let is_served = !has_pairs || left > 0 && !lost.contains(addr);
            left -= usize::from(has_pairs && is_served);
            is_served
        };
        let external_ips = std::mem::take(&mut self.external_ips).into_iter();
        let (served, beyond) = external_ips.partition::<Vec<_>, _>(is_served);
        self.external_ips = served;
        let beyond: Vec<_> = beyond.into_iter().filter(|it| !lost.contains(it)).collect();
        cut.note(
            self.family,
            "spec.externalIPs",
            Limit::AddressPortPairs,
            &beyond,
        );
        cut
    }
}

impl Cut {
    /// Adds the addresses of one list.
    fn note(&mut self, family: Family, field: &'static str, limit: Limit, lost: &[IpAddr]) {
        let Some(first) = lost.first() else { return };
        self.descriptions.push(OverLimit {
            family,
            field,
            count: lost.len(),
            first: first.to_string().into(),
            limit,
        });
        let reason = UnservedReason::OverLimit { field, limit };
        let lost = lost.iter();
        self.addresses
            .extend(lost.map(|&addr| UnservedAddress { addr, reason }));
    }
}
