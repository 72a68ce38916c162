//! IPAddress objects.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use k8s_openapi::api::networking::v1::{IPAddress, IPAddressSpec, ParentReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use vipline_service_ip::OwnerRef;

use crate::Error;
use crate::metadata::{required, time};
use vipline_service_ip::Family;

/// Label with the family of an address.
pub const FAMILY_LABEL: &str = "ipaddress.kubernetes.io/ip-family";

/// Label with the manager of an address.
pub const MANAGER_LABEL: &str = "ipaddress.kubernetes.io/managed-by";

/// Value of [`MANAGER_LABEL`] for cluster IPs of Services.
pub const MANAGER: &str = "ipallocator.k8s.io";

/// An IPAddress.
///
/// Exhaustive: the plans take objects that callers build as literals.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IpAddress {
    /// Address, which is the name of the object.
    pub ip: IpAddr,
    /// UID.
    pub uid: Box<str>,
    /// Resource version.
    pub version: Box<str>,
    /// Value of [`FAMILY_LABEL`].
    pub family: Option<Box<str>>,
    /// Value of [`MANAGER_LABEL`].
    pub manager: Option<Box<str>>,
    /// Object that owns the address (`spec.parentRef`).
    pub owner: OwnerRef,
    /// Creation time.
    pub created: SystemTime,
}

impl IpAddress {
    /// Returns whether the manager is `ipallocator.k8s.io`.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        self.manager.as_deref() == Some(MANAGER)
    }

    /// Returns whether the labels have the manager `ipallocator.k8s.io` and the family.
    #[must_use]
    pub fn is_labelled(&self) -> bool {
        self.is_managed() && self.family.as_deref() == Some(Family::of(self.ip).as_str())
    }
}

impl TryFrom<IPAddress> for IpAddress {
    type Error = Error;

    fn try_from(object: IPAddress) -> Result<Self, Error> {
        let metadata = object.metadata;
        let name = required(metadata.name, "name")?;
        let mut labels = metadata.labels.unwrap_or_default();
        let mut label = |key| labels.remove(key).map(Into::into);
        Ok(Self {
            ip: name.parse().map_err(|_| Error::MissingField {
                field: "an address as name",
            })?,
            uid: required(metadata.uid, "uid")?.into(),
            version: required(metadata.resource_version, "resourceVersion")?.into(),
            family: label(FAMILY_LABEL),
            manager: label(MANAGER_LABEL),
            owner: owner(object.spec.parent_ref),
            created: time(metadata.creation_timestamp.as_ref())?,
        })
    }
}

fn owner(reference: ParentReference) -> OwnerRef {
    OwnerRef {
        group: reference.group.unwrap_or_default().into(),
        resource: reference.resource.into(),
        namespace: reference.namespace.unwrap_or_default().into(),
        name: reference.name.into(),
    }
}

fn labels(ip: IpAddr, manager: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (FAMILY_LABEL.to_owned(), Family::of(ip).as_str().to_owned()),
        (MANAGER_LABEL.to_owned(), manager.to_owned()),
    ])
}

/// Returns the patch that sets the labels of a Service's IPAddress.
pub(crate) fn label_patch(ip: IpAddr, version: &str) -> Value {
    json!({ "metadata": { "resourceVersion": version, "labels": labels(ip, MANAGER) } })
}

/// Returns the IPAddress object of an owner.
pub(crate) fn object(ip: IpAddr, owner: &OwnerRef, manager: &str) -> IPAddress {
    IPAddress {
        metadata: ObjectMeta {
            name: Some(ip.to_string()),
            labels: Some(labels(ip, manager)),
            ..ObjectMeta::default()
        },
        spec: IPAddressSpec {
            parent_ref: ParentReference {
                group: Some(owner.group.to_string()),
                resource: owner.resource.to_string(),
                // A cluster-scoped object has none.
                namespace: (!owner.namespace.is_empty()).then(|| owner.namespace.to_string()),
                name: owner.name.to_string(),
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_object_has_the_form_of_upstream() {
        for (ip, family) in [("10.0.0.1", "IPv4"), ("fd00::1", "IPv6")] {
            let object = object(
                ip.parse().unwrap(),
                &OwnerRef::service("default", "web"),
                MANAGER,
            );
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

    fn read(change: impl FnOnce(&mut Value)) -> Result<IpAddress, Error> {
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
        let object: IPAddress = serde_json::from_value(value).unwrap();
        object.try_into()
    }

    #[test]
    fn an_object_of_another_manager_is_parsed() {
        let address = read(|_| ()).unwrap();
        assert!(!address.is_managed());
        assert_eq!(address.owner, OwnerRef::new("x.io", "gateways", "", "g"));
        let labelled = read(|value| {
            value["metadata"]["labels"] = json!({ FAMILY_LABEL: "IPv6", MANAGER_LABEL: MANAGER });
        });
        let labelled = labelled.unwrap();
        assert!(labelled.is_managed() && !labelled.is_labelled());
    }

    #[test]
    fn errors_name_the_missing_field() {
        for (field, lacks) in [
            ("name", "name"),
            ("uid", "uid"),
            ("resourceVersion", "resourceVersion"),
            ("creationTimestamp", "creationTimestamp"),
        ] {
            let error = read(|value| value["metadata"][field] = Value::Null).unwrap_err();
            assert_eq!(error.to_string(), format!("missing {lacks}"));
        }
        let error = read(|value| value["metadata"]["name"] = "web".into()).unwrap_err();
        assert_eq!(error.to_string(), "missing an address as name");
    }
}
