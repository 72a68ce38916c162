//! What objects and service ports are called.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::Timestamp;

/// The name of an object that lives in a namespace; cheap to clone.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectName {
    /// The namespace, empty for objects of the cluster as a whole.
    pub namespace: Arc<str>,
    /// The name within it.
    pub name: Arc<str>,
}

impl ObjectName {
    /// Names an object.
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

/// A transport protocol that a Service may have.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];
}

/// Displays as in the API, in upper case.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// The name of a service port: one port of one Service, for both families.
///
/// Names are ordered by precedence, for when two Services claim the same
/// address and port: the older Service comes first, one of unknown age last,
/// and after that the text decides.
/// The age is part of the name: a Service deleted and created again under its
/// old name is another one.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PortName {
    /// The Service's namespace.
    pub namespace: Arc<str>,
    /// The Service's name.
    pub service: Arc<str>,
    /// The port's name within the Service, empty for an only port.
    pub port: Arc<str>,
    /// The port's protocol: ports may share a name but for the protocol.
    pub protocol: Protocol,
    /// When the Service was created, if the object says so.
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

    /// Returns whether another port is of the Service of that name.
    pub fn is_same_service(&self, other: &Self) -> bool {
        self.service == other.service && self.namespace == other.namespace
    }

    fn age_key(&self) -> (bool, Option<Timestamp>) {
        (self.created.is_none(), self.created)
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

/// Displays as `namespace/service`, with `:port` after it if the port has a
/// name; the protocol is not part of it.
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

    fn port(service: &str, port: &str, protocol: Protocol, created: Option<i64>) -> PortName {
        PortName {
            namespace: "default".into(),
            service: service.into(),
            port: port.into(),
            protocol,
            created: created.map(|seconds| Timestamp { seconds, nanos: 0 }),
        }
    }

    #[test]
    fn names_display_as_users_know_them() {
        assert_eq!(
            port("web", "", Protocol::Tcp, None).to_string(),
            "default/web"
        );
        assert_eq!(
            port("web", "http", Protocol::Udp, None).to_string(),
            "default/web:http"
        );
        assert_eq!(ObjectName::new("default", "web").to_string(), "default/web");
        assert_eq!(ObjectName::new("", "node-1").to_string(), "node-1");
    }

    #[test]
    fn older_services_come_first_and_those_of_unknown_age_last() {
        let mut names = [
            port("a", "", Protocol::Tcp, None),
            port("b", "", Protocol::Tcp, Some(2)),
            port("c", "y", Protocol::Tcp, Some(1)),
            port("c", "x", Protocol::Udp, Some(1)),
            port("c", "x", Protocol::Tcp, Some(1)),
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
