//! Values that cannot be used.

use ipnet::IpNet;
use thiserror::Error;

use crate::AddressRange;

/// A value that cannot be used: a range, a reservation, a ServiceCIDR, a stored
/// `RangeAllocation`, or a setting of etcd. Nothing has changed.
///
/// Each operation fails with few of the variants, and its documentation lists them.
/// Change the value before you repeat the operation: it fails again otherwise.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum InvalidValue {
    /// The text is neither a network in CIDR notation nor a port range.
    #[error("{text:?} is not a {what}")]
    Syntax {
        /// The text.
        text: Box<str>,
        /// The expected form.
        what: &'static str,
    },
    /// The network has host bits set.
    #[error("{network} has host bits set; the network is {}", network.trunc())]
    HostBits {
        /// The network.
        network: IpNet,
    },
    /// The network is an IPv4-mapped IPv6 network.
    #[error("{network} is IPv4-mapped; write it as IPv4")]
    Mapped {
        /// The network.
        network: IpNet,
    },
    /// The network has more addresses than a bitmap of Kubernetes can hold.
    #[error("{network} is too large for a bitmap: the prefix must be /{longest} or longer")]
    TooLarge {
        /// The network.
        network: IpNet,
        /// The minimum prefix length.
        longest: u8,
    },
    /// The first port is 0, or the last port is below the first.
    #[error(
        "ports {first}-{last}: a range has ports from 1 to 65535, the first not above the last"
    )]
    Ports {
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
    /// The last item of a reservation is below the first.
    #[error("{first} to {last} is not a range: the last item is below the first")]
    EmptyReservation {
        /// First item.
        first: Box<str>,
        /// Last item.
        last: Box<str>,
    },
    /// An item of a reservation is in another one already.
    #[error("{first} to {last} overlaps the range from {other}")]
    OverlappingReservation {
        /// First item.
        first: Box<str>,
        /// Last item.
        last: Box<str>,
        /// First item of the other range.
        other: Box<str>,
    },
    /// Allocated addresses are in no other ServiceCIDR.
    #[error(
        "ServiceCIDR {name} ({range}): addresses in use that are in no other ServiceCIDR: {addresses}"
    )]
    CidrInUse {
        /// The ServiceCIDR.
        name: Box<str>,
        /// The range.
        range: AddressRange,
        /// Number of addresses.
        addresses: u128,
    },
    /// The range of an existing ServiceCIDR cannot change.
    #[error("ServiceCIDR {name}: the range {range} cannot change")]
    ImmutableCidr {
        /// The ServiceCIDR.
        name: Box<str>,
        /// The existing range.
        range: AddressRange,
    },
    /// The range of a ServiceCIDR is of the other family.
    #[error("ServiceCIDR {name}: {range} is of the other family")]
    MismatchedCidr {
        /// The ServiceCIDR.
        name: Box<str>,
        /// The range.
        range: AddressRange,
    },
    /// No ServiceCIDR has the name.
    #[error("there is no ServiceCIDR {name}")]
    UnknownCidr {
        /// The name.
        name: Box<str>,
    },
    /// A `RangeAllocation` has another range.
    #[error("the object has the range {found:?}, not {expected}")]
    OtherRange {
        /// The range of the object.
        found: Box<str>,
        /// The expected range.
        expected: Box<str>,
    },
    /// A `RangeAllocation` cannot be decoded.
    #[error("{what}, at byte {at}")]
    Corrupt {
        /// The problem.
        what: &'static str,
        /// Offset in bytes.
        at: usize,
    },
    /// An allocated item of a `RangeAllocation` is outside of the range.
    #[error("item {number} is allocated, but the range {range} has {len} items")]
    Outside {
        /// The number of the item.
        number: u128,
        /// The range.
        range: Box<str>,
        /// Number of items of the range.
        len: u128,
    },
    /// The range has more items than the bitmap of a `RangeAllocation` can hold.
    #[error("the range {range} has {len} items, too many for a bitmap")]
    TooManyItems {
        /// The range.
        range: Box<str>,
        /// Number of items of the range.
        len: u128,
    },
    /// The list of endpoints of etcd is empty.
    #[error("no endpoint")]
    NoEndpoint,
    /// The endpoint is not a URL of a member of etcd.
    #[error("{endpoint:?} is not an endpoint such as https://10.0.0.1:2379")]
    Endpoint {
        /// The endpoint.
        endpoint: Box<str>,
    },
    /// An `https` endpoint requires a CA certificate.
    #[error("{endpoint}: https requires a CA certificate")]
    NoAuthority {
        /// The endpoint.
        endpoint: Box<str>,
    },
    /// A certificate or key is invalid, or certificate and key do not match.
    #[error("{what}: {problem}")]
    Certificate {
        /// The invalid part.
        what: &'static str,
        /// The problem, in the words of the TLS library.
        problem: Box<str>,
    },
}
