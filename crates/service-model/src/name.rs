//! Names of objects and service ports.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::{Timestamp, Transport};

/// The namespace and name of an object. Cheap to clone.
///
/// Exhaustive: namespace and name identify an object.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectName {
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Name within the namespace.
    pub name: Arc<str>,
}

impl ObjectName {
    /// Returns the name of an object.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// Displays as `namespace/name`, or `name` without a namespace.
impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// The name of a service port, shared by both families.
///
/// Names are ordered by precedence for Services that claim the same address and
/// port: older Services first, Services of unknown age last, then by text.
/// The creation time is part of the name: a Service that is deleted and created
/// again is a different Service.
///
/// Exhaustive: the fields identify a service port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PortName {
    /// Namespace of the Service.
    pub namespace: Arc<str>,
    /// Name of the Service.
    pub service: Arc<str>,
    /// Name of the port within the Service, empty for a single unnamed port.
    pub port: Arc<str>,
    /// Protocol. Ports with the same name may differ in protocol only.
    pub protocol: Transport,
    /// Creation time of the Service, if known.
    pub created: Option<Timestamp>,
}

impl PortName {
    /// Returns the name of the Service.
    pub fn service_name(&self) -> ObjectName {
        ObjectName {
            namespace: Arc::clone(&self.namespace),
            name: Arc::clone(&self.service),
        }
    }

    /// Returns whether both ports belong to a Service of the same name.
    pub fn is_same_service(&self, other: &Self) -> bool {
        self.service == other.service && self.namespace == other.namespace
    }

    fn age_key(&self) -> (bool, Option<Timestamp>) {
        (self.created.is_none(), self.created)
    }
}

impl Hash for PortName {
    /// Leaves out the creation time: few Services with one name exist at a time.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.service.hash(state);
        self.namespace.hash(state);
        self.port.hash(state);
        state.write_u8(self.protocol.number());
    }
}

impl Ord for PortName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.age_key()
            .cmp(&other.age_key())
            .then_with(|| self.namespace.cmp(&other.namespace))
            .then_with(|| self.service.cmp(&other.service))
            .then_with(|| self.port.cmp(&other.port))
            .then_with(|| self.protocol.cmp(&other.protocol))
    }
}

impl PartialOrd for PortName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Displays as `namespace/service`, followed by `:port` if the port has a name.
/// The protocol is not displayed.
impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.service)?;
        if self.port.is_empty() {
            Ok(())
        } else {
            write!(f, ":{}", self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(service: &str, port: &str, protocol: Transport, created: Option<i64>) -> PortName {
        PortName {
            namespace: "default".into(),
            service: service.into(),
            port: port.into(),
            protocol,
            created: created.map(|seconds| Timestamp { seconds, nanos: 0 }),
        }
    }

    #[test]
    fn names_display_as_namespace_service_and_port() {
        assert_eq!(
            port("web", "", Transport::Tcp, None).to_string(),
            "default/web"
        );
        assert_eq!(
            port("web", "http", Transport::Udp, None).to_string(),
            "default/web:http"
        );
        assert_eq!(ObjectName::new("default", "web").to_string(), "default/web");
        assert_eq!(ObjectName::new("", "node-1").to_string(), "node-1");
    }

    #[test]
    fn older_services_sort_first_and_services_of_unknown_age_last() {
        let mut names = [
            port("a", "", Transport::Tcp, None),
            port("b", "", Transport::Tcp, Some(2)),
            port("c", "y", Transport::Tcp, Some(1)),
            port("c", "x", Transport::Udp, Some(1)),
            port("c", "x", Transport::Tcp, Some(1)),
        ];
        names.sort();
        let order: Vec<_> = names
            .iter()
            .map(|name| format!("{name} {}", name.protocol))
            .collect();
        let expected = [
            "default/c:x TCP",
            "default/c:x UDP",
            "default/c:y TCP",
            "default/b TCP",
            "default/a TCP",
        ];
        assert_eq!(order, expected);
    }
}
