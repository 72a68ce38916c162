//! Objects that manifests hold.

use vipline_service_model::{Event, Kind, ObjectName, api};

use super::fault::Key;

/// An object that somebody here reads.
#[derive(Clone, Debug, PartialEq)]
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
    /// A ServiceCIDR.
    ServiceCidr(api::ServiceCidr),
}

impl Object {
    /// Returns the event that makes the object known.
    pub fn applied(self) -> Event {
        match self {
            Self::Service(service) => service.into(),
            Self::Slice(slice) => slice.into(),
            Self::Node(node) => node.into(),
            Self::ServiceCidr(cidr) => cidr.into(),
        }
    }

    /// Returns what the object is called; the namespace is that of its text.
    pub fn metadata_mut(&mut self) -> &mut api::ObjectMeta {
        match self {
            Self::Service(service) => &mut service.metadata,
            Self::Slice(slice) => &mut slice.metadata,
            Self::Node(node) => &mut node.metadata,
            Self::ServiceCidr(cidr) => &mut cidr.metadata,
        }
    }
}

impl Key {
    /// Returns the key of an object; where no namespace is given it is `default`.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        let namespace = match kind {
            Kind::Node | Kind::ServiceCidr => "",
            Kind::Service | Kind::EndpointSlice if namespace.is_empty() => "default",
            Kind::Service | Kind::EndpointSlice => namespace,
        };
        Self {
            kind,
            name: ObjectName::new(namespace, name),
        }
    }

    /// Returns the event that makes the object forgotten.
    pub fn deleted(self) -> Event {
        match self.kind {
            Kind::Service => Event::ServiceDeleted(self.name),
            Kind::EndpointSlice => Event::SliceDeleted(self.name),
            Kind::Node => Event::NodeDeleted(self.name.name),
            Kind::ServiceCidr => Event::ServiceCidrDeleted(self.name.name),
        }
    }
}
