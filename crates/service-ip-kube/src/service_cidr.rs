//! ServiceCIDR objects.

use std::time::SystemTime;

use k8s_openapi::api::networking::v1::{ServiceCIDR, ServiceCIDRSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use vipline_service_ip::{AddressRange, InvalidValue};

use crate::Error;
use crate::metadata::required;

/// Finalizer of ServiceCIDRs.
pub const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

/// Type of the condition of ServiceCIDRs.
pub const READY: &str = "Ready";

/// A ServiceCIDR.
///
/// Exhaustive: the plans take objects that callers build as literals.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceCidr {
    /// Name.
    pub name: Box<str>,
    /// Resource version.
    pub version: Box<str>,
    /// Ranges: one, or one of each family.
    pub ranges: Vec<AddressRange>,
    /// Errors of invalid ranges, which are not used for allocation.
    pub unreadable: Vec<InvalidValue>,
    /// Finalizers.
    pub finalizers: Vec<Box<str>>,
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// Deletion timestamp, if the object is in deletion.
    pub deleted: Option<SystemTime>,
}

/// A condition of an object.
///
/// Exhaustive: these are the fields of the API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Condition {
    /// Type, such as [`READY`].
    pub kind: Box<str>,
    /// Status: `True`, `False` or `Unknown`.
    pub status: Box<str>,
    /// Reason, possibly empty.
    pub reason: Box<str>,
    /// Message.
    pub message: Box<str>,
    /// Time of the last transition of the status.
    pub since: SystemTime,
    /// Observed generation of the object.
    pub generation: Option<i64>,
}

/// A change of a ServiceCIDR.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Edit {
    /// Name.
    pub name: Box<str>,
    /// Resource version, as precondition.
    pub version: Box<str>,
    /// New ranges, if changed.
    pub ranges: Option<Vec<AddressRange>>,
    /// New finalizers, if changed.
    pub finalizers: Option<Vec<Box<str>>>,
    /// New conditions, if changed.
    pub conditions: Option<Vec<Condition>>,
}

impl ServiceCidr {
    /// Returns the condition `Ready`.
    #[must_use]
    pub fn ready(&self) -> Option<&Condition> {
        let mut conditions = self.conditions.iter();
        conditions.find(|condition| *condition.kind == *READY)
    }

    /// Returns whether addresses may be allocated: the condition `Ready` is True or
    /// missing, and the object is not in deletion.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let is_true = |condition: &Condition| *condition.status == *"True";
        self.deleted.is_none() && self.ready().is_none_or(is_true)
    }

    /// Returns the conditions with an updated condition `Ready`, or `None` if it is
    /// already up to date.
    pub(crate) fn with_ready(
        &self,
        status: &str,
        reason: &str,
        message: &str,
        now: SystemTime,
    ) -> Option<Vec<Condition>> {
        let former = self.ready();
        let is_so = |former: &Condition| *former.status == *status && *former.reason == *reason;
        if former.is_some_and(|former| is_so(former) && *former.message == *message) {
            return None;
        }
        let same = former.filter(|former| *former.status == *status);
        let others = self
            .conditions
            .iter()
            .filter(|condition| *condition.kind != *READY);
        let mut conditions: Vec<Condition> = others.cloned().collect();
        conditions.push(Condition {
            kind: READY.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            since: same.map_or(now, |former| former.since),
            generation: None,
        });
        Some(conditions)
    }
}

impl TryFrom<ServiceCIDR> for ServiceCidr {
    type Error = Error;

    fn try_from(object: ServiceCIDR) -> Result<Self, Error> {
        let metadata = object.metadata;
        let networks = object.spec.and_then(|spec| spec.cidrs).unwrap_or_default();
        let status = object.status.and_then(|status| status.conditions);
        let finalizers = metadata.finalizers.unwrap_or_default();
        let deleted = metadata.deletion_timestamp;
        let mut ranges = Vec::new();
        let mut unreadable = Vec::new();
        for text in &networks {
            match AddressRange::parse_stored(text) {
                Ok(range) => ranges.push(range),
                Err(error) => unreadable.push(error),
            }
        }
        Ok(Self {
            name: required(metadata.name, "name")?.into(),
            version: required(metadata.resource_version, "resourceVersion")?.into(),
            ranges,
            unreadable,
            finalizers: finalizers.into_iter().map(Into::into).collect(),
            conditions: status.into_iter().flatten().map(Condition::read).collect(),
            deleted: deleted.map(|time| time.0.into()),
        })
    }
}

impl Condition {
    fn read(condition: meta::Condition) -> Self {
        Self {
            kind: condition.type_.into(),
            status: condition.status.into(),
            reason: condition.reason.into(),
            message: condition.message.into(),
            since: condition.last_transition_time.0.into(),
            generation: condition.observed_generation,
        }
    }

    fn object(&self) -> meta::Condition {
        meta::Condition {
            type_: self.kind.to_string(),
            status: self.status.to_string(),
            reason: self.reason.to_string(),
            message: self.message.to_string(),
            // A time out of range becomes the default.
            last_transition_time: meta::Time(Timestamp::try_from(self.since).unwrap_or_default()),
            observed_generation: self.generation,
        }
    }
}

impl Edit {
    pub(crate) fn of(cidr: &ServiceCidr) -> Self {
        Self {
            name: cidr.name.clone(),
            version: cidr.version.clone(),
            ..Self::default()
        }
    }

    /// Returns whether the change is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_none() && self.finalizers.is_none() && self.conditions.is_none()
    }

    /// Returns the patch of all fields except the status, if any changes.
    pub(crate) fn patch(&self) -> Option<Value> {
        if self.ranges.is_none() && self.finalizers.is_none() {
            return None;
        }
        let mut patch = json!({ "metadata": { "resourceVersion": self.version } });
        if let Some(ranges) = &self.ranges {
            patch["spec"]["cidrs"] = texts(ranges).into();
        }
        if let Some(finalizers) = &self.finalizers {
            patch["metadata"]["finalizers"] = json!(finalizers);
        }
        Some(patch)
    }

    /// Returns the patch of the status, if it changes.
    pub(crate) fn status(&self, version: &str) -> Option<Value> {
        let conditions = self.conditions.as_ref()?;
        let conditions: Vec<_> = conditions.iter().map(Condition::object).collect();
        Some(json!({
            "metadata": { "resourceVersion": version },
            "status": { "conditions": conditions },
        }))
    }
}

/// Returns a new ServiceCIDR object.
pub(crate) fn object(name: &str, ranges: &[AddressRange]) -> ServiceCIDR {
    ServiceCIDR {
        metadata: meta::ObjectMeta {
            name: Some(name.to_owned()),
            ..meta::ObjectMeta::default()
        },
        spec: Some(ServiceCIDRSpec {
            cidrs: Some(texts(ranges)),
        }),
        status: None,
    }
}

fn texts(ranges: &[AddressRange]) -> Vec<String> {
    ranges.iter().map(ToString::to_string).collect()
}
