//! Warnings about invalid fields of objects.

use std::fmt;
use std::net::IpAddr;

use crate::{Counted, Family, ObjectName, OverLimit, SpecialAddress};

/// An invalid field of an object. The field is left out of the result.
///
/// Displays as one line: kind, name, field and problem.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Warning {
    /// The kind of the object.
    pub kind: Kind,
    /// The name of the object.
    pub name: ObjectName,
    /// The field with the problem.
    pub field: Field,
    /// Problem of the field.
    pub problem: Problem,
}

/// Kind of an API object.
///
/// Exhaustive: a source and a store support the same kinds.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// An EndpointSlice.
    EndpointSlice,
    /// A Namespace.
    Namespace,
    /// A Node.
    Node,
    /// A Service.
    Service,
    /// A ServiceCIDR.
    ServiceCidr,
}

/// A field of an object, such as `spec.externalIPs[2]`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Field {
    /// Path of the field, with `[]` in place of the index.
    pub path: &'static str,
    /// Index within the list, if the field is part of a list.
    pub index: Option<usize>,
}

/// Problem of a field.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// The number is not within 1-65535.
    BadPort(i32),
    /// The text is not an IP address.
    BadAddress(Box<str>),
    /// The text is not a network in CIDR notation.
    BadNetwork(Box<str>),
    /// The text is not a domain name, or not a label of a domain name.
    BadName(Box<str>),
    /// The text is not an RFC 3339 time.
    BadTime(Box<str>),
    /// Another port of the Service has the same name and protocol. The last one is used.
    Duplicate,
    /// The special-purpose address must not be an endpoint or external address.
    SpecialAddress(IpAddr, SpecialAddress),
    /// The object has source ranges, but none of the family of its load balancer IP. All
    /// clients reach the IP, as in upstream.
    NoSourceRange(IpAddr),
    /// A required field is missing.
    Missing,
    /// The value is not in the API's enumeration for the field.
    Unknown(Box<str>),
    /// The address is not of the required family, which is the second value.
    WrongFamily(IpAddr, Family),
    /// The number must not be zero.
    Zero,
    /// Ports or addresses beyond a limit of one Service, which are not served.
    OverLimit(OverLimit),
    /// Number of further problems of the object without a warning of their own.
    Omitted(usize),
}

impl Field {
    /// Returns a field outside of lists.
    pub const fn plain(path: &'static str) -> Self {
        Self { path, index: None }
    }

    /// Returns a field of a list element. The path has `[]` in place of the index.
    pub const fn member(path: &'static str, index: usize) -> Self {
        Self {
            path,
            index: Some(index),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {}: {}",
            self.kind, self.name, self.field, self.problem
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EndpointSlice => "EndpointSlice",
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Service => "Service",
            Self::ServiceCidr => "ServiceCIDR",
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.index, self.path.split_once("[]")) {
            (Some(index), Some((list, member))) => write!(f, "{list}[{index}]{member}"),
            _ => f.write_str(self.path),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadPort(number) => write!(f, "not a port number: {number}"),
            Self::BadAddress(text) => write!(f, "not an IP address: {text:?}"),
            Self::BadNetwork(text) => write!(f, "not a network: {text:?}"),
            Self::BadName(text) => write!(f, "not a DNS name: {text:?}"),
            Self::BadTime(text) => write!(f, "not a time: {text:?}"),
            Self::Duplicate => f.write_str("duplicate name and protocol, the last port is used"),
            Self::SpecialAddress(addr, special) => write!(f, "{special} address refused: {addr}"),
            Self::NoSourceRange(addr) => {
                let family = Family::of(*addr);
                write!(
                    f,
                    "no range is {family}, so all clients reach load balancer IP {addr}"
                )
            }
            Self::Missing => f.write_str("missing"),
            Self::Unknown(word) => write!(f, "unknown: {word:?}"),
            Self::WrongFamily(addr, family) => write!(f, "not an {family} address: {addr}"),
            Self::Zero => f.write_str("must not be zero"),
            Self::OverLimit(beyond) => beyond.fmt(f),
            Self::Omitted(count) => {
                write!(f, "{} of the object", Counted(*count, "further problem"))
            }
        }
    }
}

/// The maximum number of warnings about one object.
///
/// An EndpointSlice may have 20,000 ports, each with a problem.
const MAX_WARNINGS: usize = 16;

/// Collects the warnings about one object, at most 17. The last one counts those that were
/// left out. Warnings about the limits of one Service come in addition.
#[derive(Debug)]
pub struct Warnings<'a> {
    kind: Kind,
    name: &'a ObjectName,
    found: Vec<Warning>,
    /// Field of the first omitted problem, and number of omitted problems.
    omitted: Option<(&'static str, usize)>,
}

impl<'a> Warnings<'a> {
    /// Returns an empty collection for the object.
    pub fn about(kind: Kind, name: &'a ObjectName) -> Self {
        Self {
            kind,
            name,
            found: Vec::new(),
            omitted: None,
        }
    }

    /// Adds a problem of a field.
    pub fn push(&mut self, field: Field, problem: Problem) {
        if self.found.len() == MAX_WARNINGS {
            self.omitted.get_or_insert((field.path, 0)).1 += 1;
            return;
        }
        self.add(field, problem);
    }

    /// Adds a warning about what is beyond a limit. An object has at most six of them, and
    /// other problems must not hide them.
    pub(crate) fn push_over_limit(&mut self, beyond: &OverLimit) {
        self.add(
            Field::plain(beyond.field),
            Problem::OverLimit(beyond.clone()),
        );
    }

    /// Returns the warnings.
    pub fn into_found(mut self) -> Vec<Warning> {
        if let Some((path, count)) = self.omitted.take() {
            self.add(Field::plain(path), Problem::Omitted(count));
        }
        self.found
    }

    fn add(&mut self, field: Field, problem: Problem) {
        self.found.push(Warning {
            kind: self.kind,
            name: self.name.clone(),
            field,
            problem,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_one_line_that_names_object_field_and_problem() {
        let name = ObjectName::new("default", "web");
        let mut warnings = Warnings::about(Kind::Service, &name);
        warnings.push(
            Field::member("spec.externalIPs[]", 2),
            Problem::BadAddress("10.0.0\n".into()),
        );
        warnings.push(Field::member("spec.ports[].port", 0), Problem::Zero);
        warnings.push(Field::plain("spec.clusterIP"), Problem::Missing);
        let lines: Vec<_> = warnings
            .into_found()
            .iter()
            .map(Warning::to_string)
            .collect();
        let expected = [
            r#"Service default/web: spec.externalIPs[2]: not an IP address: "10.0.0\n""#,
            "Service default/web: spec.ports[0].port: must not be zero",
            "Service default/web: spec.clusterIP: missing",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn an_object_has_a_bounded_number_of_warnings() {
        let name = ObjectName::new("default", "web-1");
        let mut warnings = Warnings::about(Kind::EndpointSlice, &name);
        for index in 0..20_000 {
            warnings.push(Field::member("ports[].port", index), Problem::BadPort(-1));
        }
        let found = warnings.into_found();
        assert_eq!(found.len(), MAX_WARNINGS + 1);
        let last = found.last().unwrap().to_string();
        let expected = "EndpointSlice default/web-1: ports[].port: 19984 further problems";
        assert!(last.starts_with(expected), "{last}");
    }
}
