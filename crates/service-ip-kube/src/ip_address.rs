//! IPAddress objects: who has which address.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::SystemTime;

use k8s_openapi::api::networking::v1::{IPAddress, IPAddressSpec, ParentReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use vipline_service_ip::ServiceRef;

use crate::metadata::{Missing, required, time};
use vipline_service_ip::Family;

/// The label that says which family an address is of.
pub const FAMILY_LABEL: &str = "ipaddress.kubernetes.io/ip-family";

/// The label that says who manages an address.
pub const MANAGER_LABEL: &str = "ipaddress.kubernetes.io/managed-by";

/// What that label says of the addresses of Services.
pub const MANAGER: &str = "ipallocator.k8s.io";

/// An IPAddress.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IpAddress {
    /// The address, which is its name.
    pub ip: IpAddr,
    /// Which of all IPAddresses it is that ever had this name.
    pub uid: Box<str>,
    /// The version of it.
    pub version: Box<str>,
    /// What the label of the family says.
    pub family: Option<Box<str>>,
    /// Who manages it.
    pub manager: Option<Box<str>>,
    /// What it is attached to.
    pub parent: ParentRef,
    /// Since when it is there.
    pub created: SystemTime,
}

/// What an IPAddress is attached to.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct ParentRef {
    /// The API group, empty for the core.
    pub group: Box<str>,
    /// The resource, plural: `services`.
    pub resource: Box<str>,
    /// The namespace, empty for what has none.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
}

impl IpAddress {
    /// Tells whether it is one that allocators of Services manage.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        self.manager.as_deref() == Some(MANAGER)
    }

    /// Tells whether it has the labels that allocators of Services give.
    #[must_use]
    pub fn is_labelled(&self) -> bool {
        self.is_managed() && self.family.as_deref() == Some(Family::of(self.ip).label())
    }

    pub(crate) fn read(object: IPAddress) -> Result<Self, Missing> {
        let metadata = object.metadata;
        let name = required(metadata.name, "name")?;
        let mut labels = metadata.labels.unwrap_or_default();
        let mut label = |key| labels.remove(key).map(Into::into);
        Ok(Self {
            ip: name.parse().map_err(|_| Missing("an address for a name"))?,
            uid: required(metadata.uid, "uid")?.into(),
            version: required(metadata.resource_version, "resourceVersion")?.into(),
            family: label(FAMILY_LABEL),
            manager: label(MANAGER_LABEL),
            parent: ParentRef::read(object.spec.parent_ref),
            created: time(metadata.creation_timestamp.as_ref())?,
        })
    }
}

impl ParentRef {
    /// Returns the reference to a Service.
    #[must_use]
    pub fn service(owner: &ServiceRef) -> Self {
        Self {
            group: "".into(),
            resource: "services".into(),
            namespace: owner.namespace.clone(),
            name: owner.name.clone(),
        }
    }

    /// Returns the Service, if it is one.
    #[must_use]
    pub fn owner(&self) -> Option<ServiceRef> {
        let is_service = self.group.is_empty() && *self.resource == *"services";
        is_service.then(|| ServiceRef {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        })
    }

    fn read(reference: ParentReference) -> Self {
        Self {
            group: reference.group.unwrap_or_default().into(),
            resource: reference.resource.into(),
            namespace: reference.namespace.unwrap_or_default().into(),
            name: reference.name.into(),
        }
    }
}

/// As `services default/web`.
impl fmt::Display for ParentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{} ", self.resource, self.group)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// Returns the labels of an address of a Service.
fn labels(ip: IpAddr) -> BTreeMap<String, String> {
    BTreeMap::from([
        (FAMILY_LABEL.to_owned(), Family::of(ip).label().to_owned()),
        (MANAGER_LABEL.to_owned(), MANAGER.to_owned()),
    ])
}

/// Returns the patch that gives a version of an IPAddress its labels.
pub(crate) fn label_patch(ip: IpAddr, version: &str) -> Value {
    json!({ "metadata": { "resourceVersion": version, "labels": labels(ip) } })
}

/// Returns the IPAddress that gives an address to a Service.
pub(crate) fn object(ip: IpAddr, owner: &ServiceRef) -> IPAddress {
    IPAddress {
        metadata: ObjectMeta {
            name: Some(ip.to_string()),
            labels: Some(labels(ip)),
            ..ObjectMeta::default()
        },
        spec: IPAddressSpec {
            parent_ref: ParentReference {
                group: Some(String::new()),
                resource: "services".to_owned(),
                namespace: Some(owner.namespace.to_string()),
                name: owner.name.to_string(),
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_made_has_upstreams_form() {
        for (ip, family) in [("10.0.0.1", "IPv4"), ("fd00::1", "IPv6")] {
            let object = object(ip.parse().unwrap(), &ServiceRef::new("default", "web"));
            assert_eq!(
                serde_json::to_value(object).unwrap(),
                json!({
                    "apiVersion": "networking.k8s.io/v1",
                    "kind": "IPAddress",
                    "metadata": {
                        "name": ip,
                        "labels": {
                            "ipaddress.kubernetes.io/ip-family": family,
                            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                        },
                    },
                    "spec": {
                        "parentRef": {
                            "group": "",
                            "resource": "services",
                            "namespace": "default",
                            "name": "web",
                        },
                    },
                })
            );
        }
    }

    fn read(change: impl FnOnce(&mut Value)) -> Result<IpAddress, Missing> {
        let mut value = json!({
            "metadata": {
                "name": "10.0.0.1",
                "uid": "u",
                "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "parentRef": { "resource": "gateways", "group": "x.io", "name": "g" } },
        });
        change(&mut value);
        IpAddress::read(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn one_of_others_is_read() {
        let address = read(|_| ()).unwrap();
        assert!(!address.is_managed());
        assert_eq!(address.parent.owner(), None);
        assert_eq!(address.parent.to_string(), "gateways.x.io g");
        let labelled = read(|value| {
            value["metadata"]["labels"] = json!({ FAMILY_LABEL: "IPv6", MANAGER_LABEL: MANAGER });
        });
        let labelled = labelled.unwrap();
        assert!(labelled.is_managed() && !labelled.is_labelled());
    }

    #[test]
    fn one_that_cannot_be_read_says_what_it_lacks() {
        for (field, lacks) in [
            ("name", "name"),
            ("uid", "uid"),
            ("resourceVersion", "resourceVersion"),
            ("creationTimestamp", "creationTimestamp"),
        ] {
            let error = read(|value| value["metadata"][field] = Value::Null).unwrap_err();
            assert_eq!(error.to_string(), format!("it has not {lacks}"));
        }
        let error = read(|value| value["metadata"]["name"] = "web".into()).unwrap_err();
        assert_eq!(error.to_string(), "it has not an address for a name");
    }
}
