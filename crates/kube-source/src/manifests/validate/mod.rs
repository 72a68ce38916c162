//! Validation as in an API server, limited to the fields that the model uses.
//!
//! Unknown values and unusable addresses are errors here. The model would leave
//! them out with a warning, but the author of a file can correct the file.

mod service;

mod endpoint_slice;

mod node;

use std::fmt;
use std::net::IpAddr;

use vipline_service_model::{SpecialAddress, parse_address, parse_network};

use super::fault::{Fault, Position};
use super::object::Object;
use super::tree::{Node, Value};

/// Returns whether an object has no faults.
pub(crate) fn is_valid(object: &Object) -> bool {
    let unplaced = Node {
        at: Position::default(),
        value: Value::Null,
    };
    faults(object, &unplaced).is_empty()
}

/// Returns the faults of an object that was read from `node`.
pub(crate) fn faults(object: &Object, node: &Node<'_>) -> Vec<Fault> {
    let mut checks = Checks {
        node,
        faults: Vec::new(),
    };
    match object {
        Object::Service(service) => service::check(service, &mut checks),
        Object::Slice(slice) => endpoint_slice::check(slice, &mut checks),
        Object::Node(object) => node::check_node(object, &mut checks),
        // The name is checked below.
        Object::Namespace(_) => {}
        Object::ServiceCidr(cidr) => node::check_service_cidr(cidr, &mut checks),
    }
    if object.metadata().name.is_empty() {
        checks.fault("metadata.name", "missing");
    }
    checks.faults
}

/// The faults of an object, collected during the validation.
struct Checks<'a> {
    node: &'a Node<'a>,
    faults: Vec<Fault>,
}

impl Checks<'_> {
    /// Adds a fault of a field such as `spec.ports[0].port`.
    fn fault(&mut self, path: impl fmt::Display, reason: impl fmt::Display) {
        let path = path.to_string();
        let at = self.node.position(&path);
        self.faults.push(Fault::new(at, path, reason.to_string()));
    }

    /// Checks that a value is one of `known`.
    fn one_of(&mut self, path: impl fmt::Display, value: &str, known: &[&str]) {
        if !known.contains(&value) {
            self.fault(
                path,
                format_args!("{value:?} is not one of {}", known.join(", ")),
            );
        }
    }

    /// Parses an IP address.
    fn address(&mut self, path: impl fmt::Display, text: &str) -> Option<IpAddr> {
        let address = parse_address(text);
        if address.is_none() {
            self.fault(path, format_args!("not an IP address: {text:?}"));
        }
        address
    }

    /// Parses the address of an endpoint or a load balancer, which must not be
    /// special.
    fn target_address(&mut self, path: impl fmt::Display, text: &str) -> Option<IpAddr> {
        let address = self.address(&path, text)?;
        if let Some(hazard) = SpecialAddress::of(address) {
            self.fault(path, format_args!("{text} is a {hazard} address"));
            return None;
        }
        Some(address)
    }

    /// Checks that a text is a CIDR.
    fn network(&mut self, path: impl fmt::Display, text: &str) {
        if parse_network(text.trim()).is_none() {
            self.fault(path, format_args!("not a CIDR: {text:?}"));
        }
    }

    /// Checks that a text is a DNS label (RFC 1123).
    fn label(&mut self, path: impl fmt::Display, text: &str) {
        if text.len() > 63 || !is_label(text) {
            self.fault(path, format_args!("not a DNS label: {text:?}"));
        }
    }

    /// Checks that a text is a DNS subdomain (RFC 1123).
    fn subdomain(&mut self, path: impl fmt::Display, text: &str) {
        if text.len() > 253 || !text.split('.').all(is_label) {
            self.fault(path, format_args!("not a DNS subdomain: {text:?}"));
        }
    }

    /// Checks a port number.
    fn port(&mut self, path: impl fmt::Display, port: impl Into<i32>) {
        let port = port.into();
        if !(1..=65_535).contains(&port) {
            self.fault(path, format_args!("not a port number: {port}"));
        }
    }
}

/// Returns whether a text has lower-case letters, digits, and dashes between them.
fn is_label(text: &str) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
        && bytes
            .iter()
            .all(|byte| is_alphanumeric(byte) || *byte == b'-')
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::parse::parse;

    /// Returns the faults of one object as `FIELD: REASON`.
    pub(in super::super) fn faults_of(text: &str) -> Vec<String> {
        let manifest = parse(text).unwrap();
        assert_eq!(
            manifest.objects.len() + manifest.invalid.len(),
            1,
            "{manifest:?}"
        );
        let faults = manifest
            .invalid
            .into_iter()
            .flat_map(|broken| broken.faults);
        faults
            .map(|fault| format!("{}: {}", fault.path, fault.reason))
            .collect()
    }
}
