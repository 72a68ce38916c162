//! Services with their cluster IPs.

use std::time::SystemTime;

use k8s_openapi::api::core::v1::Service as Object;
use vipline_service_ip::OwnerRef;

use crate::Error;
use crate::metadata::{required, time};
use crate::spec::addresses;

/// The fields of a Service that repair uses.
///
/// Exhaustive: the plans take objects that callers build as literals.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Service {
    /// Namespace and name.
    pub owner: OwnerRef,
    /// Creation time.
    pub created: SystemTime,
    /// Whether the type is `ExternalName`, which has no address.
    pub is_external_name: bool,
    /// Cluster IPs as text, without `None`.
    pub cluster_ips: Vec<Box<str>>,
}

impl TryFrom<Object> for Service {
    type Error = Error;

    fn try_from(object: Object) -> Result<Self, Error> {
        let metadata = object.metadata;
        let spec = object.spec.unwrap_or_default();
        let cluster_ips = addresses(&spec).map(|(_, text)| text.into());
        Ok(Self {
            owner: OwnerRef::service(
                &required(metadata.namespace, "namespace")?,
                &required(metadata.name, "name")?,
            ),
            created: time(metadata.creation_timestamp.as_ref())?,
            is_external_name: spec.type_.as_deref() == Some("ExternalName"),
            cluster_ips: cluster_ips.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_external_name_is_recognized_by_its_type() {
        let value = json!({
            "metadata": {
                "name": "web",
                "namespace": "default",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "type": "ExternalName", "externalName": "example.com" },
        });
        let service = Service::try_from(serde_json::from_value::<Object>(value).unwrap()).unwrap();
        assert!(service.is_external_name);
        assert_eq!(service.owner, OwnerRef::service("default", "web"));
    }

    #[test]
    fn cluster_ips_are_parsed_from_both_fields() {
        for (spec, ips) in [
            (json!({ "clusterIP": "10.0.0.1" }), &["10.0.0.1"][..]),
            (
                json!({ "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"] }),
                &["10.0.0.1", "fd00::1"],
            ),
            (json!({ "clusterIP": "None", "clusterIPs": ["None"] }), &[]),
            (json!({ "clusterIP": "" }), &[]),
            (Value::Null, &[]),
        ] {
            let value = json!({
                "metadata": {
                    "name": "web",
                    "namespace": "default",
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                },
                "spec": spec,
            });
            let service =
                Service::try_from(serde_json::from_value::<Object>(value).unwrap()).unwrap();
            assert!(!service.is_external_name);
            let read: Vec<&str> = service.cluster_ips.iter().map(|ip| &**ip).collect();
            assert_eq!(read, ips);
        }
    }
}
