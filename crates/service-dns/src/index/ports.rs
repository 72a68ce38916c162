//! Ports of a Service or a slice.

use vipline_service_model::{Field, Problem, Transport, Warnings, api};

/// A port.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Port {
    /// Name in lower case. Empty for an unnamed port.
    name: Box<str>,
    protocol: Transport,
    number: u16,
}

/// Ports of a Service or a slice.
///
/// Invariant: sorted by name, protocol and number, each port once.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Ports(Box<[Port]>);

impl Ports {
    /// Parses the ports of a Service.
    pub(crate) fn of_service(ports: &[api::ServicePortSpec], warnings: &mut Warnings<'_>) -> Self {
        let ports = ports.iter().enumerate().filter_map(|(index, port)| {
            let field = Field::member("spec.ports[].protocol", index);
            let protocol = protocol(&port.protocol, field, warnings)?;
            if port.port == 0 {
                warnings.push(Field::member("spec.ports[].port", index), Problem::Zero);
                return None;
            }
            Some(Port::new(&port.name, protocol, port.port))
        });
        Self::sorted(ports.collect())
    }

    /// Parses the ports of a slice. A port without a number has no record.
    pub(crate) fn of_slice(ports: &[api::EndpointPort], warnings: &mut Warnings<'_>) -> Self {
        let ports = ports.iter().enumerate().filter_map(|(index, port)| {
            let field = Field::member("ports[].protocol", index);
            let protocol = protocol(&port.protocol, field, warnings)?;
            let number = port.port?;
            match u16::try_from(number).ok().filter(|&number| number != 0) {
                Some(number) => {
                    let name = port.name.as_deref().unwrap_or_default();
                    Some(Port::new(name, protocol, number))
                }
                None => {
                    let field = Field::member("ports[].port", index);
                    warnings.push(field, Problem::BadPort(number));
                    None
                }
            }
        });
        Self::sorted(ports.collect())
    }

    fn sorted(mut ports: Vec<Port>) -> Self {
        ports.sort_unstable();
        ports.dedup();
        Self(ports.into())
    }

    /// Returns all ports.
    pub(crate) fn all(&self) -> &[Port] {
        &self.0
    }

    /// Returns the ports with a name and a protocol.
    pub(crate) fn named(&self, name: &str, protocol: Transport) -> &[Port] {
        let order = |port: &Port| (&*port.name, port.protocol).cmp(&(name, protocol));
        let start = self.0.partition_point(|port| order(port).is_lt());
        let rest = self.0.get(start..).unwrap_or_default();
        let length = rest.partition_point(|port| order(port).is_eq());
        rest.get(..length).unwrap_or_default()
    }

    /// Returns whether a named port has this protocol.
    pub(crate) fn has_protocol(&self, protocol: Transport) -> bool {
        let mut ports = self.0.iter();
        ports.any(|port| port.protocol == protocol && !port.name.is_empty())
    }
}

impl Port {
    /// Returns the number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    fn new(name: &str, protocol: Transport, number: u16) -> Self {
        Self {
            name: name.to_ascii_lowercase().into(),
            protocol,
            number,
        }
    }
}

/// Returns the protocol, or adds a warning if it is unknown.
fn protocol(
    protocol: &api::TransportProtocol,
    field: Field,
    warnings: &mut Warnings<'_>,
) -> Option<Transport> {
    let known = protocol.transport();
    if known.is_none() {
        warnings.push(field, Problem::Unknown(protocol.as_str().into()));
    }
    known
}
