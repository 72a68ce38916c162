//! Errors of allocations and releases.

use std::fmt;
use std::net::IpAddr;

use thiserror::Error;
use vipline_inet::Family;

use crate::{OwnerRef, ServiceType};

/// Errors of an allocation or release. Nothing has changed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum AllocationError {
    /// All items are allocated.
    #[error("{range}: range is full")]
    Full {
        /// The range or ranges.
        range: Box<str>,
    },
    /// The requested item is already allocated.
    #[error("{item} is already allocated")]
    Allocated {
        /// The item.
        item: Box<str>,
    },
    /// The requested item is outside of the range.
    #[error("{item} is not in the valid range {range}")]
    NotInRange {
        /// The item.
        item: Box<str>,
        /// The range or ranges.
        range: Box<str>,
    },
    /// The address is of the other family.
    #[error("{item} is not of the family of {range}")]
    MismatchedFamily {
        /// The address.
        item: Box<str>,
        /// The range.
        range: Box<str>,
    },
    /// The range is not ready for allocation.
    #[error("{range}: allocator not ready")]
    NotReady {
        /// The range.
        range: Box<str>,
    },
    /// The item belongs to another Service.
    #[error("{item} belongs to {owner}")]
    OtherOwner {
        /// The item.
        item: Box<str>,
        /// The owner.
        owner: Box<OwnerRef>,
    },
    /// The item is reserved for another owner, see [`Reservations`](crate::Reservations).
    #[error("{item} is reserved for {owner}")]
    Reserved {
        /// The item.
        item: Box<str>,
        /// The owner of the reservation.
        owner: Box<OwnerRef>,
    },
    /// The item is excluded from allocation, see [`Reservations`](crate::Reservations).
    #[error("{item} is excluded from allocation")]
    Excluded {
        /// The item.
        item: Box<str>,
    },
    /// A Service requests a port twice that it cannot share.
    #[error("{owner} requests {item} twice")]
    Duplicate {
        /// The port, with its protocol if the protocol is the reason.
        item: Box<str>,
        /// The Service.
        owner: Box<OwnerRef>,
    },
    /// An update changes an immutable field.
    #[error("{owner}: {field} may not change once set")]
    Immutable {
        /// The field of the Service.
        field: &'static str,
        /// The Service.
        owner: Box<OwnerRef>,
    },
    /// The field requires another type or traffic policy of the Service.
    #[error("{owner}: {field} {item} requires {requires}")]
    NotUsed {
        /// The field of the Service.
        field: &'static str,
        /// The value.
        item: Box<str>,
        /// The required type and policy.
        requires: &'static str,
        /// The Service.
        owner: Box<OwnerRef>,
    },
    /// The field has more than two entries, or two entries of one family.
    #[error("{field} may have one entry for each family")]
    TooManyEntries {
        /// The field of the Service.
        field: &'static str,
    },
    /// An address is not of the family at the same index.
    #[error("spec.clusterIPs: {address} is not of the family {family}")]
    MismatchedEntry {
        /// The address.
        address: IpAddr,
        /// The family at the same index.
        family: Family,
    },
    /// The field has two entries, but the policy is `SingleStack`.
    #[error(
        "spec.ipFamilyPolicy must be RequireDualStack or PreferDualStack \
         when {field} has two entries"
    )]
    SingleStack {
        /// The field of the Service.
        field: &'static str,
    },
    /// The second entry was removed, but the policy is not `SingleStack`.
    #[error("spec.ipFamilyPolicy must be SingleStack to release the second entry of {field}")]
    Reduced {
        /// The field of the Service.
        field: &'static str,
    },
    /// The policy is `RequireDualStack`, but the cluster has one family.
    #[error("this cluster is not configured for dual-stack services")]
    NotDualStack,
    /// The cluster does not have the family.
    #[error("{family} is not configured on this cluster")]
    NotConfigured {
        /// The family.
        family: Family,
    },
    /// An entry differs from the stored one.
    #[error("{field}[{index}] may not change once set")]
    ImmutableEntry {
        /// The field of the Service.
        field: &'static str,
        /// The index of the entry.
        index: usize,
    },
    /// `clusterIP` is `None`, but the type requires an address.
    #[error("spec.clusterIPs[0] may not be None for a Service of type {service_type}")]
    Headless {
        /// The type.
        service_type: ServiceType,
    },
    /// The field must not be set for an `ExternalName`.
    #[error("{field} may not be set for a Service of type ExternalName")]
    ExternalName {
        /// The field of the Service.
        field: &'static str,
    },
}

impl AllocationError {
    #[cold]
    pub(crate) fn full(range: &impl fmt::Display) -> Self {
        Self::Full {
            range: range.to_string().into(),
        }
    }

    pub(crate) fn allocated(item: &impl fmt::Display) -> Self {
        Self::Allocated {
            item: item.to_string().into(),
        }
    }

    pub(crate) fn not_in_range(item: &impl fmt::Display, range: &impl fmt::Display) -> Self {
        Self::NotInRange {
            item: item.to_string().into(),
            range: range.to_string().into(),
        }
    }

    pub(crate) fn mismatched_family(item: &impl fmt::Display, range: &impl fmt::Display) -> Self {
        Self::MismatchedFamily {
            item: item.to_string().into(),
            range: range.to_string().into(),
        }
    }

    pub(crate) fn not_ready(range: &impl fmt::Display) -> Self {
        Self::NotReady {
            range: range.to_string().into(),
        }
    }

    /// Returns whether the error is [`Self::Full`].
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// Returns whether the error is [`Self::Allocated`].
    #[must_use]
    pub const fn is_allocated(&self) -> bool {
        matches!(self, Self::Allocated { .. })
    }
}
