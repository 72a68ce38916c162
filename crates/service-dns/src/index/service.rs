//! A parsed Service.

use std::net::IpAddr;

use vipline_service_model::{
    Field, Kind, ObjectName, Problem, Warning, Warnings, api, parse_address,
};

use super::Ports;
use super::label::is_label;
use crate::Name;

/// A Service with records.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Service {
    /// Kind.
    pub(crate) kind: ServiceKind,
    /// Whether endpoints that are not ready are published.
    pub(crate) publishes_unready: bool,
}

/// Kind of a Service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ServiceKind {
    /// A Service with cluster IPs.
    Cluster {
        /// Invariant: not empty.
        cluster_ips: Box<[IpAddr]>,
        /// Ports.
        ports: Ports,
    },
    /// A Service without cluster IP.
    Headless,
    /// An alias.
    External(Name),
}

impl Service {
    /// Parses a Service. Returns `None` if it has no records, and warnings.
    pub(crate) fn read(object: &api::Service, name: &ObjectName) -> (Option<Self>, Vec<Warning>) {
        let mut warnings = Warnings::about(Kind::Service, name);
        let has_name = check_name(name, &mut warnings);
        let spec = &object.spec;
        let kind = match spec.kind {
            _ if !has_name => None,
            api::ServiceType::ExternalName => external(&spec.external_name, &mut warnings),
            _ if is_headless(spec) => Some(ServiceKind::Headless),
            _ => cluster(spec, &mut warnings),
        };
        let service = kind.map(|kind| Self {
            kind,
            publishes_unready: spec.publish_not_ready_addresses,
        });
        (service, warnings.into_found())
    }

    /// Returns the cluster IPs.
    pub(crate) fn cluster_ips(&self) -> &[IpAddr] {
        match &self.kind {
            ServiceKind::Cluster { cluster_ips, .. } => cluster_ips,
            ServiceKind::Headless | ServiceKind::External(_) => &[],
        }
    }
}

/// Checks that namespace and name are labels.
pub(super) fn check_name(name: &ObjectName, warnings: &mut Warnings<'_>) -> bool {
    let parts = [
        ("metadata.namespace", &name.namespace),
        ("metadata.name", &name.name),
    ];
    let bad = parts.into_iter().find(|(_, text)| !is_label(text));
    if let Some((path, text)) = bad {
        warnings.push(Field::plain(path), Problem::BadName((&**text).into()));
    }
    bad.is_none()
}

fn is_headless(spec: &api::ServiceSpec) -> bool {
    let first = spec.cluster_ips.first().unwrap_or(&spec.cluster_ip);
    first == "None"
}

fn cluster(spec: &api::ServiceSpec, warnings: &mut Warnings<'_>) -> Option<ServiceKind> {
    let only = std::slice::from_ref(&spec.cluster_ip);
    let (path, texts) = match spec.cluster_ips.is_empty() {
        // The API server has not allocated an address yet.
        true if spec.cluster_ip.is_empty() => return None,
        true => ("spec.clusterIP", only),
        false => ("spec.clusterIPs[]", &*spec.cluster_ips),
    };
    let mut cluster_ips = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        match parse_address(text) {
            Some(addr) => cluster_ips.push(addr),
            None => {
                let problem = Problem::BadAddress(text.as_str().into());
                warnings.push(Field::member(path, index), problem);
            }
        }
    }
    cluster_ips.sort_unstable();
    cluster_ips.dedup();
    let ports = Ports::of_service(&spec.ports, warnings);
    (!cluster_ips.is_empty()).then(|| ServiceKind::Cluster {
        cluster_ips: cluster_ips.into(),
        ports,
    })
}

/// Returns an alias. An address is not a name.
fn external(text: &str, warnings: &mut Warnings<'_>) -> Option<ServiceKind> {
    let field = Field::plain("spec.externalName");
    if text.is_empty() {
        warnings.push(field, Problem::Missing);
        return None;
    }
    let name = text.parse::<Name>().ok();
    let name = name.filter(|_| parse_address(text).is_none());
    if name.is_none() {
        warnings.push(field, Problem::BadName(text.into()));
    }
    name.map(ServiceKind::External)
}
