//! What can happen to the objects that are watched.

use std::sync::Arc;

use crate::{ObjectName, api};

/// A change of one object, or the end of the first listing of all.
///
/// The order of events about different objects does not matter, and an event
/// may be repeated: a store ends up with the last word about each object.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "an event is handed on, never kept"
)]
pub enum Event {
    /// A Service was created or changed.
    ServiceApplied(api::Service),
    /// A Service is gone.
    ServiceDeleted(ObjectName),
    /// An EndpointSlice was created or changed.
    SliceApplied(api::EndpointSlice),
    /// An EndpointSlice is gone.
    SliceDeleted(ObjectName),
    /// A Node was created or changed; only this node's matters.
    NodeApplied(api::Node),
    /// A Node is gone; what was known of it stays known.
    NodeDeleted(Arc<str>),
    /// A ServiceCIDR was created or changed.
    ServiceCidrApplied(api::ServiceCidr),
    /// A ServiceCIDR is gone.
    ServiceCidrDeleted(Arc<str>),
    /// Every Service and EndpointSlice that exists has been seen once.
    Synced,
}

impl From<api::Service> for Event {
    fn from(service: api::Service) -> Self {
        Self::ServiceApplied(service)
    }
}

impl From<api::EndpointSlice> for Event {
    fn from(slice: api::EndpointSlice) -> Self {
        Self::SliceApplied(slice)
    }
}

impl From<api::Node> for Event {
    fn from(node: api::Node) -> Self {
        Self::NodeApplied(node)
    }
}

impl From<api::ServiceCidr> for Event {
    fn from(cidr: api::ServiceCidr) -> Self {
        Self::ServiceCidrApplied(cidr)
    }
}
