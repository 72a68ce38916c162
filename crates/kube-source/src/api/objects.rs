//! API objects, decoded directly into the types of the model.
//!
//! Metadata that the model does not use is never kept: annotations and managed
//! fields are often larger than the rest of an object.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use vipline_service_model::{Event, Kind, ObjectName, api};

/// A kind of objects that is listed and watched.
pub trait Object: Clone + for<'de> Deserialize<'de> + Send + 'static {
    /// The kind.
    const KIND: Kind;
    /// API path of the list of all namespaces.
    const PATH: &'static str;
    /// Label selector of the objects that a service proxy uses, if any.
    const LABELS: Option<&'static str> = None;
    /// Field selector of the objects that a service proxy uses, if any. A server may ignore
    /// the selector: the model filters the objects, too.
    const FIELDS: Option<&'static str> = None;

    /// Returns the metadata.
    fn metadata(&self) -> &Metadata;

    /// Converts the object into the event that stores it.
    fn applied(self) -> Event;

    /// Returns the event that removes the object `name`.
    fn deleted(name: ObjectName) -> Event;

    /// Returns namespace and name.
    fn name(&self) -> ObjectName {
        let metadata = self.metadata();
        ObjectName::new(&*metadata.namespace, &*metadata.name)
    }

    /// Returns the resource version. Empty if the server omits it.
    fn version(&self) -> &str {
        &self.metadata().resource_version
    }
}

/// The metadata that the model uses.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    name: String,
    #[serde(deserialize_with = "nullable")]
    namespace: String,
    #[serde(deserialize_with = "nullable")]
    resource_version: String,
    #[serde(deserialize_with = "nullable")]
    labels: UsedMetadata,
    #[serde(deserialize_with = "nullable")]
    annotations: UsedMetadata,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
}

impl Metadata {
    /// Returns the name. Empty if the object has none.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl From<Metadata> for api::ObjectMeta {
    fn from(metadata: Metadata) -> Self {
        Self {
            name: metadata.name,
            namespace: metadata.namespace,
            labels: metadata.labels.0,
            annotations: metadata.annotations.0,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
        }
    }
}

/// The labels or annotations that the model [uses](api::MetadataKey).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct UsedMetadata(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for UsedMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringMapVisitor;

        impl<'de> Visitor<'de> for StringMapVisitor {
            type Value = UsedMetadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UsedMetadata, A::Error> {
                let mut kept = UsedMetadata::default();
                while let Some(UsedKey(key)) = map.next_key()? {
                    if let Some(key) = key {
                        kept.0.insert(key.as_str().to_owned(), map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(kept)
            }
        }

        deserializer.deserialize_map(StringMapVisitor)
    }
}

/// A key of labels or annotations, if the model uses the key.
struct UsedKey(Option<api::MetadataKey>);

impl<'de> Deserialize<'de> for UsedKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl Visitor<'_> for KeyVisitor {
            type Value = UsedKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, name: &str) -> Result<UsedKey, E> {
                Ok(UsedKey(api::MetadataKey::from_name(name)))
            }
        }

        deserializer.deserialize_str(KeyVisitor)
    }
}

/// Deserializes a value. `null` is the default value.
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Service {
    metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    spec: api::ServiceSpec,
    #[serde(deserialize_with = "nullable")]
    status: api::ServiceStatus,
}

impl Object for Service {
    const KIND: Kind = Kind::Service;
    const PATH: &'static str = "/api/v1/services";
    const LABELS: Option<&'static str> = Some("!service.kubernetes.io/service-proxy-name");
    const FIELDS: Option<&'static str> = Some("spec.clusterIP!=None");

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn applied(self) -> Event {
        Event::ServiceApplied(api::Service {
            metadata: self.metadata.into(),
            spec: self.spec,
            status: self.status,
        })
    }

    fn deleted(name: ObjectName) -> Event {
        Event::ServiceDeleted(name)
    }
}

/// An EndpointSlice.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Slice {
    metadata: Metadata,
    address_type: api::AddressType,
    #[serde(deserialize_with = "nullable")]
    ports: Vec<api::EndpointPort>,
    #[serde(deserialize_with = "nullable")]
    endpoints: Vec<api::SliceEndpoint>,
}

impl Object for Slice {
    const KIND: Kind = Kind::EndpointSlice;
    const PATH: &'static str = "/apis/discovery.k8s.io/v1/endpointslices";
    const LABELS: Option<&'static str> = Some("!service.kubernetes.io/headless");

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn applied(self) -> Event {
        Event::SliceApplied(api::EndpointSlice {
            metadata: self.metadata.into(),
            address_type: self.address_type,
            ports: self.ports,
            endpoints: self.endpoints,
        })
    }

    fn deleted(name: ObjectName) -> Event {
        Event::SliceDeleted(name)
    }
}

/// A Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    spec: api::NodeSpec,
    #[serde(deserialize_with = "nullable")]
    status: api::NodeStatus,
}

impl Object for Node {
    const KIND: Kind = Kind::Node;
    const PATH: &'static str = "/api/v1/nodes";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn applied(self) -> Event {
        Event::NodeApplied(api::Node {
            metadata: self.metadata.into(),
            spec: self.spec,
            status: self.status,
        })
    }

    fn deleted(name: ObjectName) -> Event {
        Event::NodeDeleted(name.name)
    }
}

/// A Namespace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Namespace {
    metadata: Metadata,
}

impl Object for Namespace {
    const KIND: Kind = Kind::Namespace;
    const PATH: &'static str = "/api/v1/namespaces";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn applied(self) -> Event {
        Event::NamespaceApplied(api::Namespace {
            metadata: self.metadata.into(),
        })
    }

    fn deleted(name: ObjectName) -> Event {
        Event::NamespaceDeleted(name.name)
    }
}

/// A ServiceCIDR.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServiceCidr {
    metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    spec: api::ServiceCidrSpec,
}

impl Object for ServiceCidr {
    const KIND: Kind = Kind::ServiceCidr;
    const PATH: &'static str = "/apis/networking.k8s.io/v1/servicecidrs";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn applied(self) -> Event {
        Event::ServiceCidrApplied(api::ServiceCidr {
            metadata: self.metadata.into(),
            spec: self.spec,
        })
    }

    fn deleted(name: ObjectName) -> Event {
        Event::ServiceCidrDeleted(name.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_keeps_only_used_metadata() {
        let slice: Slice = serde_json::from_value(json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "web-1", "namespace": "shop", "resourceVersion": "17", "uid": "u",
                "labels": {"kubernetes.io/service-name": "web", "app": "x"},
                "annotations": {
                    "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z",
                    "kubectl.kubernetes.io/last-applied-configuration": "{}",
                },
                "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:metadata": {}}}],
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
            "ports": null,
        }))
        .unwrap();
        assert_eq!(slice.version(), "17");
        assert_eq!(slice.name(), ObjectName::new("shop", "web-1"));
        let Event::SliceApplied(slice) = slice.applied() else {
            panic!("an EndpointSlice is one");
        };
        let labels: Vec<_> = slice.metadata.labels.into_iter().collect();
        assert_eq!(
            labels,
            [("kubernetes.io/service-name".into(), "web".into())]
        );
        assert_eq!(slice.metadata.annotations.len(), 1);
        assert_eq!(slice.endpoints[0].addresses, ["10.0.0.1"]);
        assert!(slice.ports.is_empty());
    }
}
