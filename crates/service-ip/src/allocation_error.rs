//! Why an item is not allocated.

use std::fmt;

use thiserror::Error;

use crate::ServiceRef;

/// Why an item is not allocated or released; nothing has changed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum AllocationError {
    /// Every item is taken.
    #[error("{range}: range is full")]
    Full {
        /// The range, or ranges.
        range: Box<str>,
    },
    /// The item asked for is taken.
    #[error("{item} is already allocated")]
    Allocated {
        /// The item.
        item: Box<str>,
    },
    /// The item asked for is not among those that can be allocated.
    #[error("{item} is not in the valid range {range}")]
    NotInRange {
        /// The item.
        item: Box<str>,
        /// The range, or ranges.
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
    /// The range does not give addresses now.
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
        /// Whose it is.
        owner: ServiceRef,
    },
    /// A Service uses a port twice where the port cannot be shared.
    #[error("{owner} asks for {item} twice")]
    Duplicate {
        /// The port, with its protocol if that is the reason.
        item: Box<str>,
        /// The Service.
        owner: ServiceRef,
    },
    /// An update changes a field that cannot change.
    #[error("{owner}: {field} may not change once set")]
    Immutable {
        /// The field of the Service.
        field: &'static str,
        /// The Service.
        owner: ServiceRef,
    },
    /// The type of the Service, or its traffic policy, does not have the field.
    #[error("{owner}: {field} {item} requires {requires}")]
    NotUsed {
        /// The field of the Service.
        field: &'static str,
        /// The value.
        item: Box<str>,
        /// The type and policy that have the field.
        requires: &'static str,
        /// The Service.
        owner: ServiceRef,
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

    /// Tells whether every item is taken.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// Tells whether the item asked for is taken.
    #[must_use]
    pub const fn is_allocated(&self) -> bool {
        matches!(self, Self::Allocated { .. })
    }
}
