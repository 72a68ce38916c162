//! Lenient decoding: unreadable parts of an object are left out.

use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};
use vipline_service_model::ObjectName;

use super::objects::Object;

/// Maximum number of parts that a message names.
const MAX_PATHS: usize = 8;

/// An API object without its unreadable parts.
#[derive(Debug)]
#[non_exhaustive]
pub struct Parsed<O> {
    /// The object.
    pub object: O,
    /// The parts that were left out, if any.
    pub dropped: Option<Dropped>,
    /// Length of the JSON in bytes.
    pub size: usize,
}

/// The parts of an object that were left out.
///
/// Displays as one line with the paths and the first error.
#[derive(Debug)]
pub struct Dropped {
    paths: Vec<String>,
    /// Number of parts, including those not in `paths`.
    count: usize,
    reason: String,
}

/// An object that cannot be decoded at all.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unreadable {
    /// Name and version, empty if unreadable.
    pub identity: Identity,
    /// The reason.
    pub reason: String,
}

/// Name and resource version of an object.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
}

impl Identity {
    /// Parses the metadata of an object and nothing else.
    ///
    /// # Errors
    ///
    /// The text is not a JSON object with readable metadata.
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Named {
            #[serde(default)]
            metadata: Identity,
        }
        serde_json::from_str(text).map(|named: Named| named.metadata)
    }

    /// Returns the name. Empty if unreadable.
    pub fn name(&self) -> ObjectName {
        let text = |part: &Option<String>| part.as_deref().unwrap_or_default().to_owned();
        ObjectName::new(text(&self.namespace), text(&self.name))
    }

    /// Returns the resource version. Empty if unreadable.
    pub fn version(&self) -> &str {
        self.resource_version.as_deref().unwrap_or_default()
    }
}

impl<O: Object> Parsed<O> {
    /// Parses an object from JSON.
    ///
    /// # Errors
    ///
    /// The text is not a JSON object, or the object has no name.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        let parsed = Self::decode(text).or_else(|error| Self::salvage(text, &error));
        let reason = match parsed {
            Ok(parsed) if parsed.has_name() => return Ok(parsed),
            Ok(_) => "it has no name".to_owned(),
            Err(error) => error.to_string(),
        };
        let identity = Identity::parse(text).unwrap_or_default();
        Err(Unreadable { identity, reason })
    }

    /// Parses an object from JSON. Returns `None` if a part is unreadable, or if the object
    /// has no name.
    pub(crate) fn parse_whole(text: &str) -> Option<Self> {
        let parsed = Self::decode(text).ok()?;
        parsed.has_name().then_some(parsed)
    }

    fn decode(text: &str) -> serde_json::Result<Self> {
        Ok(Self {
            object: serde_json::from_str(text)?,
            dropped: None,
            size: text.len(),
        })
    }

    fn has_name(&self) -> bool {
        !self.object.metadata().name().is_empty()
    }

    /// Parses an object without its unreadable parts.
    fn salvage(text: &str, error: &serde_json::Error) -> serde_json::Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let mut pruner = Pruner {
            path: Vec::new(),
            dropped: Dropped {
                paths: Vec::new(),
                count: 0,
                reason: error.to_string(),
            },
        };
        let value = pruner.prune::<O>(value).unwrap_or_default();
        Ok(Self {
            object: O::deserialize(value)?,
            dropped: Some(pruner.dropped),
            size: text.len(),
        })
    }
}

/// A step of a path within an object.
enum Step {
    Field(String),
    Item(usize),
}

/// Removes unreadable parts of an object.
struct Pruner {
    /// Path of the current value.
    path: Vec<Step>,
    dropped: Dropped,
}

impl Pruner {
    /// Returns the readable part of a value.
    ///
    /// Takes time in proportion to the size of the value times its depth.
    fn prune<O: Object>(&mut self, value: Value) -> Option<Value> {
        if self.is_readable::<O>(value.clone()) {
            return Some(value);
        }
        let rest = match value {
            Value::Object(fields) => {
                let fields = fields.into_iter().filter_map(|(name, value)| {
                    let value = self.within::<O>(Step::Field(name.clone()), value)?;
                    Some((name, value))
                });
                Some(Value::Object(fields.collect()))
            }
            Value::Array(items) => {
                let items = items.into_iter().enumerate();
                let items =
                    items.filter_map(|(index, value)| self.within::<O>(Step::Item(index), value));
                Some(Value::Array(items.collect()))
            }
            _ => None,
        };
        let rest = rest.filter(|rest| self.is_readable::<O>(rest.clone()));
        if rest.is_none() {
            self.dropped.add(&self.path);
        }
        rest
    }

    fn within<O: Object>(&mut self, step: Step, value: Value) -> Option<Value> {
        self.path.push(step);
        let value = self.prune::<O>(value);
        self.path.pop();
        value
    }

    /// Returns whether an object with only this value can be decoded.
    fn is_readable<O: Object>(&self, mut value: Value) -> bool {
        for step in self.path.iter().rev() {
            value = match step {
                Step::Field(name) => Value::Object(Map::from_iter([(name.clone(), value)])),
                Step::Item(_) => Value::Array(vec![value]),
            };
        }
        O::deserialize(value).is_ok()
    }
}

impl Dropped {
    fn add(&mut self, path: &[Step]) {
        self.count += 1;
        if self.paths.len() == MAX_PATHS {
            return;
        }
        let mut text = String::new();
        for step in path {
            match step {
                Step::Field(name) if text.is_empty() => text.push_str(name),
                Step::Field(name) => text.extend([".", name]),
                Step::Item(index) => text.push_str(&format!("[{index}]")),
            }
        }
        self.paths.push(text);
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (paths, more) = (self.paths.join(", "), self.count - self.paths.len());
        match more {
            0 => write!(f, "{paths}: cannot be read: {}", self.reason),
            more => write!(
                f,
                "{paths} and {more} more: cannot be read: {}",
                self.reason
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vipline_service_model::Event;

    use super::*;
    use crate::api::objects::{Service, Slice};

    fn parse<O: Object>(value: &Value) -> Parsed<O> {
        Parsed::parse(&value.to_string()).unwrap()
    }

    #[test]
    fn an_object_is_read_without_the_parts_that_cannot_be() {
        let parsed = parse::<Service>(&json!({
            "metadata": {"name": "web", "namespace": "shop", "labels": {"app": 7}},
            "spec": {
                "clusterIP": "10.96.0.10",
                "healthCheckNodePort": 70_000,
                "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 70_000}],
                "externalIPs": "none",
            },
        }));
        let dropped = parsed.dropped.unwrap().to_string();
        for path in [
            "spec.healthCheckNodePort",
            "spec.ports[1]",
            "spec.externalIPs",
        ] {
            assert!(dropped.contains(path), "{dropped}");
        }
        assert!(dropped.contains("expected"), "{dropped}");
        let Event::ServiceApplied(service) = parsed.object.applied() else {
            panic!("a Service is one");
        };
        assert_eq!(service.spec.cluster_ip, "10.96.0.10");
        let ports: Vec<_> = service.spec.ports.iter().map(|port| &*port.name).collect();
        assert_eq!(ports, ["a"]);
    }

    #[test]
    fn many_unreadable_parts_take_linear_time_and_a_few_are_named() {
        let endpoints: Vec<_> = (0..1000)
            .map(|host| match host {
                0 => json!({"addresses": ["10.0.0.1"]}),
                _ => json!({"addresses": ["10.0.0.1"], "conditions": {"ready": "yes"}}),
            })
            .collect();
        let parsed = parse::<Slice>(&json!({
            "metadata": {"name": "web-1"}, "addressType": "IPv4", "endpoints": endpoints,
        }));
        let dropped = parsed.dropped.unwrap().to_string();
        assert!(
            dropped.contains("endpoints[1].conditions.ready"),
            "{dropped}"
        );
        assert!(dropped.contains(" and 991 more: "), "{dropped}");
        let Event::SliceApplied(slice) = parsed.object.applied() else {
            panic!("a slice is one");
        };
        assert_eq!(slice.endpoints.len(), 1000);
    }

    #[test]
    fn an_object_without_a_name_is_unreadable() {
        for text in ["7", "{}", "[", r#"{"metadata": {"name": 7}}"#] {
            let unreadable = Parsed::<Service>::parse(text).unwrap_err();
            assert_eq!(
                unreadable.identity.name(),
                ObjectName::new("", ""),
                "{text}"
            );
        }
        let broken = r#"{"metadata": {"name": "web", "namespace": "shop"}"#;
        assert!(Parsed::<Service>::parse(broken).is_err());
    }
}
