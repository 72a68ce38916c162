//! The two families of addresses.

use std::net::IpAddr;

use vipline_service_ip::Cidrs;

/// A family of addresses.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns what the label of an IPAddress says.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Returns its pool without a ServiceCIDR.
    pub(crate) fn pool(self) -> Cidrs {
        match self {
            Self::V4 => Cidrs::ipv4(),
            Self::V6 => Cidrs::ipv6(),
        }
    }
}
