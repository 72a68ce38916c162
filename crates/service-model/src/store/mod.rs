//! State of all objects, and resolving of changed Services.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;

use ipnet::IpNet;

use crate::api::MetadataKey;
use crate::changes::{BothFamilies, Changes, Counts, HealthCheck, NoLocalEndpoints};
use crate::entries::{Entries, Entry, Place, Put};
use crate::frontend::{ExternalIps, Frontend};
use crate::location::SharedLocations;
use crate::shared_names::SharedNames;
use crate::slices::{self, Slice};
use crate::warning::{Field, Kind, Problem, Warnings};
use crate::{
    Event, Family, NodeView, ObjectName, OverLimit, PortChange, PortOverLimit, ServicePort,
    SkippedService, Timestamp, UnservedAddress, Warning, api, parse_network, policy,
};

/// Maximum number of trigger times of one Service between two resolves.
const MAX_TRIGGERS: usize = 64;

/// Configuration of a [`Store`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Name of this node.
    pub node_name: Arc<str>,
    /// Whether external IPs are served.
    pub external_ips: ExternalIps,
    /// Start time of this process. Earlier trigger times are ignored.
    pub start_time: Option<Timestamp>,
}

impl Config {
    /// Returns the default configuration for a node.
    pub fn new(node_name: impl Into<Arc<str>>) -> Self {
        Self {
            node_name: node_name.into(),
            ..Self::default()
        }
    }
}

/// State of all objects, and the service ports resolved from them.
///
/// The cost of an event depends on its object only. The cost of resolving depends
/// on the changed Services only.
/// The store keeps only the fields of an object that the result depends on.
/// EndpointSlices may arrive before their Service.
#[derive(Debug, Default)]
pub struct Store {
    config: Config,
    synced: bool,
    entries: Entries,
    /// Entry of the owning Service, by name of the slice.
    ///
    /// Invariant: holds exactly the slices in the entries.
    owners: HashMap<ObjectName, Place>,
    /// Names of namespaces.
    names: SharedNames,
    /// Nodes and zones of endpoints.
    locations: SharedLocations,
    /// Services that are not served. Empty if the source leaves them out.
    skipped: BTreeMap<ObjectName, SkippedService>,
    /// Services of which a part is not served, because it is beyond a limit.
    over_limit: BTreeMap<ObjectName, Box<[OverLimit]>>,
    node: Arc<NodeView>,
    /// Node of the last resolve.
    resolved_for: Option<NodeView>,
    service_cidrs: BTreeMap<Arc<str>, Vec<IpNet>>,
    health_checks: BTreeMap<ObjectName, HealthCheck>,
    ports_without_local_endpoints: BothFamilies<NoLocalEndpoints>,
    services_without_local_endpoints: BothFamilies<NoLocalEndpoints>,
    endpoints: BothFamilies<usize>,
    counts: Counts,
    pending_udp: BothFamilies<bool>,
    changes: Changes,
}

impl Store {
    /// Returns an empty store.
    pub fn new(config: Config) -> Self {
        let node = Arc::new(NodeView::new(Arc::clone(&config.node_name)));
        Self {
            config,
            node,
            ..Self::default()
        }
    }

    /// Applies an event and returns warnings about its object.
    pub fn apply(&mut self, event: Event) -> Vec<Warning> {
        match event {
            Event::ServiceApplied(service) => return self.apply_service(&service),
            Event::ServiceDeleted(name) => {
                self.skipped.remove(&name);
                self.set_frontend(name, None);
            }
            Event::SliceApplied(slice) => return self.apply_slice(slice),
            Event::SliceDeleted(name) => {
                self.counts.slice_changes += 1;
                self.remove_slice(&name);
            }
            Event::NodeApplied(node) => return self.apply_node(&node),
            // The labels of a deleted node stay valid until it is created again.
            Event::NodeDeleted(_) => {}
            Event::ServiceCidrApplied(cidr) => return self.apply_service_cidr(&cidr),
            Event::ServiceCidrDeleted(name) => drop(self.service_cidrs.remove(&name)),
            Event::NamespaceApplied(_) | Event::NamespaceDeleted(_) => {}
            Event::Synced => self.synced = true,
        }
        Vec::new()
    }

    /// Returns the service ports that changed since the last call.
    ///
    /// Services are in the order of their first change, and IPv4 comes first within a
    /// Service.
    /// A port that appeared and disappeared since the last call is not reported.
    /// The result is empty before [`Event::Synced`].
    /// All Services are resolved again if name or zone of `node` changed.
    pub fn resolve(&mut self, node: &NodeView) -> Vec<PortChange> {
        if !self.synced {
            return Vec::new();
        }
        if !self
            .resolved_for
            .as_ref()
            .is_some_and(|former| former.selects_like(node))
        {
            self.resolved_for = Some(node.clone());
            self.entries.mark_all();
        }
        self.changes = Changes {
            udp: mem::take(&mut self.pending_udp),
            trigger_times: Vec::new(),
        };
        self.counts.service_changes_pending = 0;
        self.counts.slice_changes_pending = 0;
        let dirty = self.entries.take_dirty();
        let mut resolved = Vec::with_capacity(dirty.len());
        for place in dirty {
            self.resolve_service(place, node, &mut resolved);
        }
        resolved
    }

    /// Returns whether the initial list of objects is complete.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Returns whether a Service is due to be resolved.
    ///
    /// A changed node is not considered: [`Self::resolve`] compares the node.
    pub fn is_dirty(&self) -> bool {
        self.entries.is_dirty()
    }

    /// Returns this node as described by its Node object, for [`Self::resolve`].
    pub fn node(&self) -> Arc<NodeView> {
        Arc::clone(&self.node)
    }

    /// Returns all service ports as of the last resolve, in no particular order.
    pub fn ports(&self) -> impl Iterator<Item = &Arc<ServicePort>> {
        self.entries.iter().flat_map(|entry| &entry.ports)
    }

    /// Returns the service ports of one Service as of the last resolve.
    pub fn ports_of(&self, service: &ObjectName) -> &[Arc<ServicePort>] {
        let place = self.entries.find(service);
        place
            .map(|place| &*self.entries.at(place).ports)
            .unwrap_or_default()
    }

    /// Returns the Services that are not served, with the reason.
    pub fn skipped(&self) -> impl Iterator<Item = (&ObjectName, &SkippedService)> {
        self.skipped.iter()
    }

    /// Returns the external addresses that are not served, with their Services.
    pub fn unserved(&self) -> impl Iterator<Item = (&ObjectName, UnservedAddress)> {
        self.entries.iter().flat_map(|entry| {
            let unserved = entry.frontend.iter().flat_map(|it| it.unserved.iter());
            unserved.map(|&address| (entry.name(), address))
        })
    }

    /// Returns what is not served because a Service reached a
    /// [limit](crate::MAX_ADDRESS_PORT_PAIRS), by Service.
    pub fn over_limit(&self) -> impl Iterator<Item = (&ObjectName, &OverLimit)> {
        let services = self.over_limit.iter();
        services.flat_map(|(name, beyond)| beyond.iter().map(move |it| (name, it)))
    }

    /// Returns the ports beyond the [limit](crate::MAX_ADDRESS_PORT_PAIRS) of their Service, in
    /// the order of the object, by Service.
    pub fn ports_over_limit(&self) -> impl Iterator<Item = (&ObjectName, &[PortOverLimit])> {
        self.over_limit.keys().filter_map(|name| {
            let entry = self.entries.at(self.entries.find(name)?);
            let frontend = entry.frontend.as_ref()?;
            Some((name, &*frontend.ports_over_limit))
        })
    }

    /// Returns the slices of a Service.
    pub(crate) fn slices_of(&self, service: &ObjectName) -> &[Slice] {
        let place = self.entries.find(service);
        place
            .map(|place| &*self.entries.at(place).slices)
            .unwrap_or_default()
    }

    /// Returns the Services with a health check node port, as of the last resolve.
    pub fn health_checks(&self) -> impl Iterator<Item = (&ObjectName, &HealthCheck)> {
        self.health_checks.iter()
    }

    /// Returns the networks of all ServiceCIDRs, sorted and without duplicates.
    pub fn service_cidrs(&self, family: Family) -> Vec<IpNet> {
        let all = self.service_cidrs.values().flatten().copied();
        let mut cidrs: Vec<_> = all
            .filter(|&cidr| Family::of_network(cidr) == family)
            .collect();
        cidrs.sort_unstable();
        cidrs.dedup();
        cidrs
    }

    /// Returns details of the last resolve.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Returns the numbers of changes.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of service ports that drop traffic without a local endpoint,
    /// as of the last resolve.
    pub fn ports_without_local_endpoints(&self, family: Family) -> NoLocalEndpoints {
        *self.ports_without_local_endpoints.of(family)
    }

    /// Returns the number of Services with a port that drops traffic without a local
    /// endpoint, as of the last resolve.
    pub fn services_without_local_endpoints(&self, family: Family) -> NoLocalEndpoints {
        *self.services_without_local_endpoints.of(family)
    }

    /// Returns the number of endpoints of all service ports, ready or not, as of the
    /// last resolve. An endpoint counts once per service port.
    pub fn endpoints(&self, family: Family) -> usize {
        *self.endpoints.of(family)
    }

    fn apply_service(&mut self, service: &api::Service) -> Vec<Warning> {
        let name = self.shared_name(&service.metadata);
        let mut warnings = Warnings::about(Kind::Service, &name);
        let frontend =
            Frontend::read(service, &name, self.config.external_ips, &mut warnings).map(Arc::new);
        let warnings = warnings.into_found();
        match frontend {
            Some(_) => drop(self.skipped.remove(&name)),
            None => drop(
                self.skipped
                    .insert(name.clone(), SkippedService::new(service)),
            ),
        }
        self.set_frontend(name, frontend);
        warnings
    }

    /// Returns the name of a Service, and shares the memory of its parts.
    fn shared_name(&mut self, metadata: &api::ObjectMeta) -> ObjectName {
        let namespace = self.names.share(&metadata.namespace);
        let name = ObjectName::new(namespace, &*metadata.name);
        match self.entries.find(&name) {
            Some(place) => self.entries.at(place).name().clone(),
            None => name,
        }
    }

    fn set_frontend(&mut self, name: ObjectName, frontend: Option<Arc<Frontend>>) {
        self.counts.service_changes += 1;
        match frontend.as_ref().filter(|it| !it.over_limit.is_empty()) {
            Some(frontend) => {
                let beyond = frontend.over_limit.clone();
                self.over_limit.insert(name.clone(), beyond);
            }
            None => drop(self.over_limit.remove(&name)),
        }
        let held = self
            .entries
            .find(&name)
            .and_then(|at| self.entries.at(at).frontend.as_ref());
        if held == frontend.as_ref() {
            return;
        }
        let place = self.entries.open(name);
        let entry = self.entries.at_mut(place);
        let held = mem::replace(&mut entry.frontend, frontend);
        match &entry.former {
            None => {
                entry.former = Some(held);
                self.counts.service_changes_pending += 1;
            }
            Some(former) if *former == entry.frontend => {
                entry.former = None;
                self.counts.service_changes_pending -= 1;
            }
            Some(_) => {}
        }
        self.entries.mark(place);
    }

    fn apply_slice(&mut self, slice: api::EndpointSlice) -> Vec<Warning> {
        let namespace = self.names.share(&slice.metadata.namespace);
        let name = ObjectName::new(namespace, &*slice.metadata.name);
        let trigger = slice
            .metadata
            .annotation(MetadataKey::LastChangeTriggerTime);
        let trigger = trigger.and_then(Timestamp::parse);
        let trigger = trigger.filter(|&at| self.config.start_time.is_none_or(|start| at > start));
        let mut warnings = Warnings::about(Kind::EndpointSlice, &name);
        let read = Slice::read(slice, &name, &mut self.locations, &mut warnings);
        let warnings = warnings.into_found();
        let Some((service, slice)) = read else {
            self.remove_slice(&name);
            return warnings;
        };
        self.counts.slice_changes += 1;
        let place = self.entries.open(service);
        if self.owners.get(&name).is_some_and(|&held| held != place) {
            self.remove_slice(&name);
        }
        self.owners.insert(name, place);
        self.put_slice(place, slice, trigger);
        warnings
    }

    fn put_slice(&mut self, place: Place, slice: Slice, trigger: Option<Timestamp>) {
        let family = slice.family;
        let entry = self.entries.at_mut(place);
        let udp_before = entry.udp();
        let former = match entry.put_slice(slice) {
            Put::New => None,
            Put::Replaced(former) => Some(former.family),
            Put::Same => return,
        };
        if let Some(trigger) = trigger.filter(|_| entry.trigger_times.len() < MAX_TRIGGERS) {
            entry.trigger_times.push((family, trigger));
        }
        let udp_after = entry.udp();
        for family in [Some(family), former].into_iter().flatten() {
            *self.pending_udp.of_mut(family) |= *udp_before.of(family) || *udp_after.of(family);
        }
        self.counts.slice_changes_pending += 1;
        self.entries.mark(place);
    }

    fn remove_slice(&mut self, name: &ObjectName) {
        let Some(place) = self.owners.remove(name) else {
            return;
        };
        let entry = self.entries.at_mut(place);
        let udp = entry.udp();
        let slice = entry
            .take_slice(&name.name)
            .expect("every slice in `owners` is in its entry");
        entry.trigger_times = Vec::new();
        *self.pending_udp.of_mut(slice.family) |= *udp.of(slice.family);
        self.counts.slice_changes_pending += 1;
        self.entries.mark(place);
    }

    fn apply_node(&mut self, node: &api::Node) -> Vec<Warning> {
        if *node.metadata.name != *self.config.node_name {
            return Vec::new();
        }
        let (node, warnings) = NodeView::read(node);
        self.node = Arc::new(node);
        warnings
    }

    fn apply_service_cidr(&mut self, cidr: &api::ServiceCidr) -> Vec<Warning> {
        let name = cidr.metadata.object_name();
        let mut warnings = Warnings::about(Kind::ServiceCidr, &name);
        let mut networks = Vec::new();
        for (index, text) in cidr.spec.cidrs.iter().enumerate() {
            match parse_network(text) {
                Some(network) => networks.push(network),
                None => warnings.push(
                    Field::member("spec.cidrs[]", index),
                    Problem::BadNetwork(text.as_str().into()),
                ),
            }
        }
        let warnings = warnings.into_found();
        self.service_cidrs.insert(name.name, networks);
        warnings
    }

    fn resolve_service(&mut self, place: Place, node: &NodeView, out: &mut Vec<PortChange>) {
        let entry = self.entries.at_mut(place);
        entry.former = None;
        let wanted = match &entry.frontend {
            Some(frontend) => policy::ports(frontend, &entry.slices, node),
            None => Vec::new(),
        };
        let before = NoLocalEndpoints::of_service(&entry.ports);
        entry.replace_ports(wanted, |old, new| {
            let Some(port) = new.or(old) else { return };
            let count = self.ports_without_local_endpoints.of_mut(port.family);
            count.replace(old.map(AsRef::as_ref), new.map(AsRef::as_ref));
            let count_of =
                |port: Option<&Arc<ServicePort>>| port.map_or(0, |it| it.endpoint_count as usize);
            let endpoints = self.endpoints.of_mut(port.family);
            *endpoints += count_of(new);
            *endpoints -= count_of(old);
            out.extend(PortChange::between(old, new));
        });
        let now = NoLocalEndpoints::of_service(&entry.ports);
        for family in Family::ALL {
            let count = self.services_without_local_endpoints.of_mut(family);
            count.exchange(*before.of(family), *now.of(family));
        }
        let trigger_times = mem::take(&mut entry.trigger_times);
        if !trigger_times.is_empty() {
            self.changes
                .trigger_times
                .push((entry.name().clone(), trigger_times));
        }
        match health_check(entry, node) {
            Some(check) => drop(self.health_checks.insert(entry.name().clone(), check)),
            None => drop(self.health_checks.remove(entry.name())),
        }
        self.entries.close_if_idle(place);
    }
}

fn health_check(entry: &Entry, node: &NodeView) -> Option<HealthCheck> {
    let node_port = entry.frontend.as_ref()?.health_check_node_port?;
    let local_ready = BothFamilies {
        v4: slices::local_ready(&entry.slices, Family::V4, node),
        v6: slices::local_ready(&entry.slices, Family::V6, node),
    };
    Some(HealthCheck {
        node_port,
        local_ready,
    })
}

#[cfg(test)]
mod tests;
