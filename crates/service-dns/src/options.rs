//! Options of a zone.

use std::net::IpAddr;

use crate::Name;

/// Options of a [`Zone`](crate::Zone).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// Name of the zone, such as `cluster.local`. Names of addresses lead to it.
    pub zone: Name,
    /// Further names of the same zone, such as a former domain of the cluster. Each has all
    /// records of Services and pods. The longest one that contains a name applies.
    /// Default: none.
    pub other_zones: Vec<Name>,
    /// Time to live of records and of negative answers in seconds. Default: 5.
    ///
    /// The record of the schema version has 28,800 seconds.
    pub ttl: u32,
    /// Records of pods. Default: disabled.
    pub pods: PodRecords,
    /// Addresses of this DNS server. Default: none.
    ///
    /// A Service with one of the addresses as cluster IP or endpoint is a name server of
    /// the zone. Without such a Service, the name server is `ns.dns.ZONE`.
    pub local_addresses: Vec<IpAddr>,
    /// First serial number of the zone. Default: 0.
    pub first_serial: u32,
}

impl Options {
    /// Returns the default options of a zone.
    pub fn new(zone: Name) -> Self {
        Self {
            zone,
            other_zones: Vec::new(),
            ttl: 5,
            pods: PodRecords::Disabled,
            local_addresses: Vec::new(),
            first_serial: 0,
        }
    }
}

/// Records of pods, `ADDRESS.NAMESPACE.pod.ZONE` with dashes in the address.
///
/// Exhaustive: pods are not watched, so their addresses cannot be verified.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PodRecords {
    /// No pod has a record.
    #[default]
    Disabled,
    /// Every address has a record in every namespace that exists, whether a pod has the
    /// address or not.
    Insecure,
}
