//! Events about watched objects.

use std::sync::Arc;

use crate::{ObjectName, api};

/// A change of one object, or the end of the initial list.
///
/// Events about different objects may arrive in any order, and an event may be
/// repeated. A store keeps the last state of each object.
///
/// Exhaustive: a consumer that skips a kind of object computes wrong results.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "events are passed on, never stored"
)]
pub enum Event {
    /// A Service was created or changed.
    ServiceApplied(api::Service),
    /// A Service was deleted.
    ServiceDeleted(ObjectName),
    /// An EndpointSlice was created or changed.
    SliceApplied(api::EndpointSlice),
    /// An EndpointSlice was deleted.
    SliceDeleted(ObjectName),
    /// A Node was created or changed. Nodes other than this one are ignored.
    NodeApplied(api::Node),
    /// A Node was deleted. The store keeps its last state.
    NodeDeleted(Arc<str>),
    /// A ServiceCIDR was created or changed.
    ServiceCidrApplied(api::ServiceCidr),
    /// A ServiceCIDR was deleted.
    ServiceCidrDeleted(Arc<str>),
    /// A Namespace was created or changed. The store ignores it: only names in DNS depend on
    /// Namespaces.
    NamespaceApplied(api::Namespace),
    /// A Namespace was deleted.
    NamespaceDeleted(Arc<str>),
    /// The initial list of Services and EndpointSlices is complete.
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

impl From<api::Namespace> for Event {
    fn from(namespace: api::Namespace) -> Self {
        Self::NamespaceApplied(namespace)
    }
}

impl From<api::ServiceCidr> for Event {
    fn from(cidr: api::ServiceCidr) -> Self {
        Self::ServiceCidrApplied(cidr)
    }
}
