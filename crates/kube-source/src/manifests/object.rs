//! Objects in manifests.

use vipline_service_model::{Event, Kind, ObjectName, api};

use super::fault::Key;

/// An object of a kind that this crate reads.
///
/// Exhaustive: there is one variant for each kind.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "Services and slices are almost all there is"
)]
pub enum Object {
    /// A Service.
    Service(api::Service),
    /// An EndpointSlice.
    Slice(api::EndpointSlice),
    /// A Node.
    Node(api::Node),
    /// A Namespace.
    Namespace(api::Namespace),
    /// A ServiceCIDR.
    ServiceCidr(api::ServiceCidr),
}

impl Object {
    /// Converts the object into the event that stores it.
    pub fn applied(self) -> Event {
        match self {
            Self::Service(service) => service.into(),
            Self::Slice(slice) => slice.into(),
            Self::Node(node) => node.into(),
            Self::Namespace(namespace) => namespace.into(),
            Self::ServiceCidr(cidr) => cidr.into(),
        }
    }

    /// Returns the metadata.
    pub fn metadata(&self) -> &api::ObjectMeta {
        match self {
            Self::Service(service) => &service.metadata,
            Self::Slice(slice) => &slice.metadata,
            Self::Node(node) => &node.metadata,
            Self::Namespace(namespace) => &namespace.metadata,
            Self::ServiceCidr(cidr) => &cidr.metadata,
        }
    }

    /// Frees the spare capacity of lists, which decoding grows in powers of two.
    ///
    /// All objects of a file are in memory at once, and short lists take most of it.
    pub(crate) fn shrink(&mut self) {
        match self {
            Self::Service(service) => {
                let spec = &mut service.spec;
                spec.cluster_ips.shrink_to_fit();
                spec.ip_families.shrink_to_fit();
                spec.ports.shrink_to_fit();
            }
            Self::Slice(slice) => {
                for endpoint in &mut slice.endpoints {
                    endpoint.addresses.shrink_to_fit();
                }
                slice.endpoints.shrink_to_fit();
                slice.ports.shrink_to_fit();
            }
            Self::Namespace(_) | Self::Node(_) | Self::ServiceCidr(_) => {}
        }
    }

    /// Returns the metadata.
    pub fn metadata_mut(&mut self) -> &mut api::ObjectMeta {
        match self {
            Self::Service(service) => &mut service.metadata,
            Self::Slice(slice) => &mut slice.metadata,
            Self::Node(node) => &mut node.metadata,
            Self::Namespace(namespace) => &mut namespace.metadata,
            Self::ServiceCidr(cidr) => &mut cidr.metadata,
        }
    }
}

impl Key {
    /// Creates the key of an object. An empty namespace is `default`.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        let namespace = match kind {
            Kind::Namespace | Kind::Node | Kind::ServiceCidr => "",
            Kind::Service | Kind::EndpointSlice if namespace.is_empty() => "default",
            Kind::Service | Kind::EndpointSlice => namespace,
        };
        Self {
            kind,
            name: ObjectName::new(namespace, name),
        }
    }

    /// Converts the key into the event that removes the object.
    pub fn deleted(self) -> Event {
        match self.kind {
            Kind::Service => Event::ServiceDeleted(self.name),
            Kind::EndpointSlice => Event::SliceDeleted(self.name),
            Kind::Node => Event::NodeDeleted(self.name.name),
            Kind::Namespace => Event::NamespaceDeleted(self.name.name),
            Kind::ServiceCidr => Event::ServiceCidrDeleted(self.name.name),
        }
    }
}
