//! API validation of kube-apiserver 1.36.
//!
//! Each function returns a list of violations, each as `path: reason`. An object
//! is valid if the list is empty. Members must have the types of the API.

mod cidr;

mod metadata;

mod node;

mod service;

mod slice;

mod status;

pub mod text;

mod update;

use serde_json::Value;
use vipline_service_model::Kind;

pub(crate) use update::drop_fields_of_former_type;

/// Strictness of validation of addresses and networks in fields older than 1.36.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Strictness {
    /// As in 1.36: no leading zeros, no IPv4-mapped IPv6 addresses, no host bits.
    #[default]
    Strict,
    /// As in older servers, whose objects remain stored after an upgrade.
    Legacy,
}

/// Violations found so far.
#[derive(Debug, Default)]
struct Violations(Vec<String>);

impl Violations {
    /// Records a violation unless the condition holds.
    fn require(&mut self, holds: bool, path: &str, reason: &str) {
        if !holds {
            self.0.push(format!("{path}: {reason}"));
        }
    }
}

/// Validates a new object.
pub fn create(kind: Kind, object: &Value, strictness: Strictness) -> Vec<String> {
    let mut found = Violations::default();
    metadata::check(kind, object, &mut found);
    match kind {
        Kind::Service => service::check(object, None, strictness, &mut found),
        Kind::EndpointSlice => slice::check(object, None, strictness, &mut found),
        Kind::Node => node::create(object, strictness, &mut found),
        Kind::Namespace => {}
        Kind::ServiceCidr => cidr::create(object, &mut found),
    }
    found.0
}

/// Validates an update of an object.
pub fn update(kind: Kind, old: &Value, new: &Value, strictness: Strictness) -> Vec<String> {
    let mut found = Violations::default();
    metadata::check_update(new, &mut found);
    match kind {
        Kind::Service => {
            update::check(old, new, &mut found);
            service::check(new, Some(old), strictness, &mut found);
        }
        Kind::EndpointSlice => slice::check(new, Some(old), strictness, &mut found),
        Kind::Node => node::update(old, new, strictness, &mut found),
        Kind::Namespace => {}
        Kind::ServiceCidr => cidr::update(old, new, &mut found),
    }
    found.0
}

/// Validates an update of an object's status.
pub fn update_status(kind: Kind, old: &Value, new: &Value, strictness: Strictness) -> Vec<String> {
    let mut found = Violations::default();
    metadata::check_update(new, &mut found);
    match kind {
        Kind::Service => status::check(old, new, strictness, &mut found),
        Kind::Node => node::update_status(old, new, &mut found),
        Kind::EndpointSlice | Kind::Namespace | Kind::ServiceCidr => {}
    }
    found.0
}
