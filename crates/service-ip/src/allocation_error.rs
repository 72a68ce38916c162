//! Errors of allocations and releases.

use std::fmt;

use thiserror::Error;

use crate::OwnerRef;

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
