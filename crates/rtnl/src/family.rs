//! Address families.

use std::fmt;
use std::net::IpAddr;

use crate::wire::{V4, V6};

/// An address family.
///
/// Exhaustive: addresses are of IPv4 or IPv6.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns the number: `AF_INET` or `AF_INET6`.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::V4 => V4,
            Self::V6 => V6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}
