//! Findings about Services and IPAddresses.

use std::borrow::Cow;
use std::fmt;

use vipline_service_ip::OwnerRef;

use crate::Error;

/// A problem of a Service or an IPAddress.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub struct Finding {
    /// Reason.
    pub reason: Reason,
    /// Service, if the finding is about one.
    pub service: Option<OwnerRef>,
    /// Address in the form of the Service or IPAddress. For an object that cannot be
    /// parsed, its kind and name.
    pub address: Box<str>,
    /// Problem and action.
    pub message: Cow<'static, str>,
}

/// Reason of a finding, as in Events of Kubernetes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Reason {
    /// The address of the Service belongs to another owner.
    ClusterIpAlreadyAllocated,
    /// The address of the Service is not allocated to it.
    ClusterIpNotAllocated,
    /// The text in the Service is not an address.
    ClusterIpNotValid,
    /// The address of the Service is in no ServiceCIDR.
    ClusterIpOutOfRange,
    /// The address is allocated, but not to an existing Service.
    IpAddressNotAllocated,
    /// The address is allocated to a Service that does not have it.
    IpAddressWrongReference,
    /// The IPAddress or ServiceCIDR cannot be parsed, and is ignored.
    Unreadable,
}

impl Finding {
    /// Returns the finding for an object that cannot be parsed.
    pub(crate) fn unreadable(error: &Error) -> Self {
        let (address, why) = match error {
            Error::Failed { object, cause, .. } => (object.clone(), cause.to_string()),
            Error::Field { .. } | Error::MissingField { .. } => ("".into(), error.to_string()),
        };
        Self {
            reason: Reason::Unreadable,
            service: None,
            address,
            message: format!("cannot be read: {why}; ignored").into(),
        }
    }
}

impl Reason {
    /// Returns the reason of an Event, such as `ClusterIPNotValid`.
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

/// Displays as `ClusterIPOutOfRange: Service default/web: 10.9.0.1 is in no ServiceCIDR`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.reason.as_str())?;
        if let Some(service) = &self.service {
            write!(f, "Service {service}: ")?;
        }
        write!(f, "{} {}", self.address, self.message)
    }
}
