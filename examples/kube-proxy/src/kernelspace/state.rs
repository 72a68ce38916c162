//! The state of HNS in a file.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};
use vipline_hcn::{Endpoint, Error, LoadBalancer, Network, Query, Service, Version};

/// The state of HNS, as the functions `HcnEnumerate…` return its documents.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct State {
    /// Version of HNS.
    pub(super) version: Version,
    /// MAC address of the interface of the node. Overlay networks require it.
    #[serde(default)]
    pub(super) host_mac: String,
    pub(super) networks: Vec<Network>,
    #[serde(flatten)]
    pub(super) objects: Objects,
}

/// Endpoints and load balancers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Objects {
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub(super) endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub(super) load_balancers: Vec<LoadBalancer>,
}

impl Objects {
    pub(super) fn is_empty(&self) -> bool {
        self.endpoints.is_empty() && self.load_balancers.is_empty()
    }
}

impl State {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read(path).map_err(|error| error.to_string())?;
        // PowerShell writes a byte order mark.
        let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&text);
        let state: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if let Some(kind) = state.object_without_id() {
            return Err(format!("{kind} without ID"));
        }
        state.check_unique()?;
        Ok(state)
    }

    /// Checks that identifiers, and names of networks, are unique.
    fn check_unique(&self) -> Result<(), String> {
        let Objects {
            endpoints,
            load_balancers,
        } = &self.objects;
        unique(
            "Networks",
            "ID",
            self.networks.iter().map(|it| it.id.as_str()),
        )?;
        unique("Networks", "Name", self.networks.iter().map(|it| &*it.name))?;
        unique("Endpoints", "ID", endpoints.iter().map(|it| it.id.as_str()))?;
        let load_balancers = load_balancers.iter().map(|it| it.id.as_str());
        unique("LoadBalancers", "ID", load_balancers)
    }

    /// Reads the objects of a service. The other networks of the node are left out, but not
    /// their endpoints.
    pub(super) fn of(
        service: &mut impl Service,
        network: Network,
        host_mac: String,
    ) -> Result<Self, Error> {
        Ok(Self {
            version: service.version()?,
            host_mac,
            objects: Objects {
                endpoints: service.endpoints(&Query::all())?,
                load_balancers: service.load_balancers(&Query::all())?,
            },
            networks: vec![network],
        })
    }

    /// Returns the kind of an object without an identifier.
    fn object_without_id(&self) -> Option<&'static str> {
        let Objects {
            endpoints,
            load_balancers,
        } = &self.objects;
        let has_all = [
            ("network", self.networks.iter().all(|it| !it.id.is_empty())),
            ("endpoint", endpoints.iter().all(|it| !it.id.is_empty())),
            (
                "load balancer",
                load_balancers.iter().all(|it| !it.id.is_empty()),
            ),
        ];
        let mut missing = has_all.into_iter().filter(|(_, has_all)| !has_all);
        missing.next().map(|(kind, _)| kind)
    }
}

/// Checks that a member of the objects of a list is unique or empty. As in HNS, case does
/// not count.
fn unique<'a>(
    list: &str,
    member: &str,
    values: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    let mut seen = HashMap::new();
    for (place, value) in values.enumerate() {
        if value.is_empty() {
            continue;
        }
        if let Some(first) = seen.insert(value.to_ascii_lowercase(), place) {
            return Err(format!(
                "{list}[{place}]: {member} {value:?} is also that of {list}[{first}]"
            ));
        }
    }
    Ok(())
}

/// Reads a list. PowerShell writes `null` for an empty one.
fn or_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
