//! References to the owners of items.

use std::fmt;

/// Reference to the object that owns an item, as in `spec.parentRef` of an IPAddress.
///
/// Exhaustive: these are the fields of the API.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct OwnerRef {
    /// API group, empty for the core group.
    pub group: Box<str>,
    /// Resource, such as `services`.
    pub resource: Box<str>,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// Name.
    pub name: Box<str>,
}

impl OwnerRef {
    /// Returns a reference to a Service.
    #[must_use]
    pub fn service(namespace: &str, name: &str) -> Self {
        Self::new("", "services", namespace, name)
    }

    /// Returns a reference to an object of any resource.
    ///
    /// ```
    /// use vipline_service_ip::OwnerRef;
    ///
    /// let gateway = OwnerRef::new("gateway.networking.k8s.io", "gateways", "default", "web");
    /// assert_eq!(gateway.to_string(), "gateways.gateway.networking.k8s.io default/web");
    /// ```
    #[must_use]
    pub fn new(group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group.into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Returns whether the owner is a Service.
    #[must_use]
    pub fn is_service(&self) -> bool {
        self.group.is_empty() && *self.resource == *"services"
    }
}

/// Displays a Service as `default/web`, and other objects with their resource.
impl fmt::Display for OwnerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_service() {
            let dot = if self.group.is_empty() { "" } else { "." };
            write!(f, "{}{dot}{} ", self.resource, self.group)?;
        }
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}
