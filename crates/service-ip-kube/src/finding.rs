//! What is wrong with a Service or an address, in words for its people.

use std::borrow::Cow;
use std::fmt;

use vipline_service_ip::ServiceRef;

use crate::Error;

/// Something that is wrong with a Service or an IPAddress.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Finding {
    /// What is wrong.
    pub reason: Reason,
    /// The Service, if it is about one.
    pub service: Option<ServiceRef>,
    /// The address, as the Service or the IPAddress has it; of an object that
    /// cannot be read, its kind and name.
    pub address: Box<str>,
    /// What is wrong with it, and what becomes of it.
    pub message: Cow<'static, str>,
}

/// What is wrong, in the words of Kubernetes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Reason {
    /// A Service has the address of another one.
    ClusterIpAlreadyAllocated,
    /// The address of a Service is not allocated to it.
    ClusterIpNotAllocated,
    /// What a Service has for an address is none.
    ClusterIpNotValid,
    /// The address of a Service is in no ServiceCIDR.
    ClusterIpOutOfRange,
    /// An address is allocated to no Service.
    IpAddressNotAllocated,
    /// An address is allocated to a Service that does not have it.
    IpAddressWrongReference,
    /// An IPAddress or ServiceCIDR cannot be read, and is left out.
    Unreadable,
}

impl Finding {
    /// Returns the finding of an object that cannot be read.
    pub(crate) fn unreadable(error: &Error) -> Self {
        Self {
            reason: Reason::Unreadable,
            service: None,
            address: error.object.clone(),
            message: format!("cannot be read: {}; it is left out", error.cause).into(),
        }
    }
}

impl Reason {
    /// Returns the reason as Events have it: `ClusterIPNotValid`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIpAlreadyAllocated => "ClusterIPAlreadyAllocated",
            Self::ClusterIpNotAllocated => "ClusterIPNotAllocated",
            Self::ClusterIpNotValid => "ClusterIPNotValid",
            Self::ClusterIpOutOfRange => "ClusterIPOutOfRange",
            Self::IpAddressNotAllocated => "IPAddressNotAllocated",
            Self::IpAddressWrongReference => "IPAddressWrongReference",
            Self::Unreadable => "Unreadable",
        }
    }
}

/// As `ClusterIPOutOfRange: Service default/web: 10.9.0.1 is in no ServiceCIDR`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.reason.as_str())?;
        if let Some(service) = &self.service {
            write!(f, "Service {service}: ")?;
        }
        write!(f, "{} {}", self.address, self.message)
    }
}
