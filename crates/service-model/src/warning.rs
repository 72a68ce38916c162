//! What is odd about an object that is used all the same.

use std::fmt;
use std::net::IpAddr;

use crate::{Family, ObjectName, SpecialAddress};

/// Something odd in an object: what it is about was left out of the result.
///
/// Displays as one line that names object, field and problem.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Warning {
    /// The kind of the object.
    pub kind: Kind,
    /// The name of the object.
    pub name: ObjectName,
    /// The field with the problem.
    pub field: Field,
    /// What is wrong with it.
    pub problem: Problem,
}

/// A kind of object.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// An EndpointSlice.
    EndpointSlice,
    /// A Node.
    Node,
    /// A Service.
    Service,
    /// A ServiceCIDR.
    ServiceCidr,
}

/// A field of an object, such as `spec.externalIPs[2]`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Field {
    /// The path to the field, with `[]` where the index belongs.
    pub path: &'static str,
    /// The index within a list.
    pub index: Option<usize>,
}

/// What is wrong with a field.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// The number is not from 1 to 65535.
    BadPort(i32),
    /// The text is no IP address.
    BadAddress(Box<str>),
    /// The text is no network in CIDR notation.
    BadNetwork(Box<str>),
    /// The text is no point in time.
    BadTime(Box<str>),
    /// Another port of the Service has this name and protocol; the last counts.
    Duplicate,
    /// Traffic to this address would leave the bounds of a Service.
    SpecialAddress(IpAddr, SpecialAddress),
    /// What must be there is not.
    Missing,
    /// The word is none that the API has at this place.
    Unknown(Box<str>),
    /// The address is of the other family than the place is for.
    WrongFamily(IpAddr, Family),
    /// The number must not be zero.
    Zero,
    /// So many further problems of the object have no warning of their own.
    Omitted(usize),
}

impl Field {
    /// Names a field that is no member of a list.
    pub const fn plain(path: &'static str) -> Self {
        Self { path, index: None }
    }

    /// Names a field of a member of a list; the path has `[]` for the index.
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
            Self::BadTime(text) => write!(f, "not a time: {text:?}"),
            Self::Duplicate => f.write_str("name and protocol occur twice, the last counts"),
            Self::SpecialAddress(addr, hazard) => write!(f, "{hazard} address refused: {addr}"),
            Self::Missing => f.write_str("missing"),
            Self::Unknown(word) => write!(f, "unknown: {word:?}"),
            Self::WrongFamily(addr, family) => write!(f, "not an {family} address: {addr}"),
            Self::Zero => f.write_str("must not be zero"),
            Self::Omitted(count) => write!(f, "{count} further problems of the object"),
        }
    }
}

/// The maximum number of warnings about one object.
///
/// An EndpointSlice may have 20,000 ports, each with a problem.
const MAX_WARNINGS: usize = 16;

/// Collects the warnings about one object.
pub(crate) struct Warnings<'a> {
    kind: Kind,
    name: &'a ObjectName,
    found: Vec<Warning>,
    /// The field of the first problem without a warning of its own, and their number.
    omitted: Option<(&'static str, usize)>,
}

impl<'a> Warnings<'a> {
    pub(crate) fn about(kind: Kind, name: &'a ObjectName) -> Self {
        Self {
            kind,
            name,
            found: Vec::new(),
            omitted: None,
        }
    }

    pub(crate) fn push(&mut self, field: Field, problem: Problem) {
        if self.found.len() == MAX_WARNINGS {
            self.omitted.get_or_insert((field.path, 0)).1 += 1;
            return;
        }
        self.add(field, problem);
    }

    pub(crate) fn into_found(mut self) -> Vec<Warning> {
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
