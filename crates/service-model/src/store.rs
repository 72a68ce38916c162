//! What is known of the objects, and which service ports are due to be resolved.

use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;

use ipnet::IpNet;

use crate::changes::{BothFamilies, Changes, Counts, HealthCheck, WithoutLocal};
use crate::frontend::{ExternalIps, Frontend};
use crate::slices::{self, Slice};
use crate::warning::{Field, Kind, Problem, Warnings};
use crate::{
    Event, Family, NodeView, ObjectName, PortName, Resolved, ServicePort, Timestamp, Warning, api,
    parse_network, policy,
};

/// The annotation of slices that says when their cause happened.
const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// How many trigger times are kept for one Service between two resolves.
const MAX_TRIGGERS: usize = 64;

/// How a store reads objects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Config {
    /// The name of this node.
    pub node_name: Arc<str>,
    /// Whether external IPs are served.
    pub external_ips: ExternalIps,
    /// When this process started: older trigger times do not count.
    pub started: Option<Timestamp>,
}

impl Config {
    /// Returns the usual configuration for a node.
    pub fn new(node_name: impl Into<Arc<str>>) -> Self {
        Self {
            node_name: node_name.into(),
            ..Self::default()
        }
    }
}

/// The objects, and the service ports made of them.
///
/// An event costs what its object costs, and resolving costs what the Services
/// concerned cost, however many others there are.
/// Only what decides who gets traffic is kept of an object.
/// Slices may come before their Service: they wait for it.
#[derive(Debug, Default)]
pub struct Store {
    config: Config,
    synced: bool,
    /// Invariant: an idle entry is dirty, and has a health check to be taken back.
    entries: HashMap<ObjectName, Entry>,
    /// The Service of each slice, by the slice's name.
    ///
    /// Invariant: names exactly the slices in the entries.
    owners: HashMap<ObjectName, ObjectName>,
    /// Invariant: only names of entries.
    dirty: BTreeSet<ObjectName>,
    node: Arc<NodeView>,
    /// The node that the ports were resolved for.
    resolved_for: Option<NodeView>,
    service_cidrs: BTreeMap<Arc<str>, Vec<IpNet>>,
    health_checks: BTreeMap<ObjectName, HealthCheck>,
    without_local: BothFamilies<WithoutLocal>,
    counts: Counts,
    /// What each Service changed since the last resolve was at that time.
    former: HashMap<ObjectName, Option<Arc<Frontend>>>,
    pending_udp: BothFamilies<bool>,
    changes: Changes,
}

/// What is known about one Service.
#[derive(Debug, Default)]
struct Entry {
    frontend: Option<Arc<Frontend>>,
    /// Invariant: sorted by name.
    slices: Vec<Slice>,
    /// The ports last handed out, sorted by family and name.
    ports: Vec<Arc<ServicePort>>,
    triggers: Vec<Timestamp>,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.frontend.is_none() && self.slices.is_empty() && self.ports.is_empty()
    }

    /// Tells in which families UDP ports have endpoints.
    fn udp(&self) -> BothFamilies<bool> {
        let mut udp = BothFamilies::default();
        for slice in self.slices.iter().filter(|slice| slice.has_udp()) {
            *udp.of_mut(slice.family) = true;
        }
        udp
    }
}

impl Store {
    /// Returns a store that has seen nothing.
    pub fn new(config: Config) -> Self {
        let node = Arc::new(NodeView::new(Arc::clone(&config.node_name)));
        Self {
            config,
            node,
            ..Self::default()
        }
    }

    /// Takes in an event and returns what is odd about its object.
    pub fn apply(&mut self, event: Event) -> Vec<Warning> {
        match event {
            Event::ServiceApplied(service) => return self.apply_service(&service),
            Event::ServiceDeleted(name) => self.set_frontend(name, None),
            Event::SliceApplied(slice) => return self.apply_slice(slice),
            Event::SliceDeleted(name) => {
                self.counts.slice_changes += 1;
                self.remove_slice(&name);
            }
            Event::NodeApplied(node) => return self.apply_node(&node),
            // Labels of a deleted node hold until it comes back.
            Event::NodeDeleted(_) => {}
            Event::ServiceCidrApplied(cidr) => return self.apply_service_cidr(&cidr),
            Event::ServiceCidrDeleted(name) => drop(self.service_cidrs.remove(&name)),
            Event::Synced => self.synced = true,
        }
        Vec::new()
    }

    /// Returns the service ports that changed since the last call.
    ///
    /// They come in the order of their Services' names, per Service IPv4 first.
    /// What came and went in between is not mentioned.
    /// Before [`Event::Synced`] nothing has changed yet.
    /// When the node's name or zone is another one, all ports are looked at.
    pub fn resolve(&mut self, node: &NodeView) -> Vec<Resolved> {
        if !self.synced {
            return Vec::new();
        }
        if !self
            .resolved_for
            .as_ref()
            .is_some_and(|former| former.chooses_like(node))
        {
            self.resolved_for = Some(node.clone());
            self.dirty.extend(self.entries.keys().cloned());
        }
        self.changes = Changes {
            udp: mem::take(&mut self.pending_udp),
            triggers: Vec::new(),
        };
        self.former = HashMap::new();
        self.counts.slice_changes_pending = 0;
        let mut resolved = Vec::with_capacity(self.dirty.len());
        for name in mem::take(&mut self.dirty) {
            self.resolve_service(name, node, &mut resolved);
        }
        resolved
    }

    /// Tells whether all objects have been seen once.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Tells whether some Service waits to be resolved.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Returns this node as its object describes it, to be resolved for.
    pub fn node(&self) -> Arc<NodeView> {
        Arc::clone(&self.node)
    }

    /// Returns all service ports as last resolved, in no order.
    pub fn ports(&self) -> impl Iterator<Item = &Arc<ServicePort>> {
        self.entries.values().flat_map(|entry| &entry.ports)
    }

    /// Returns the service ports of one Service as last resolved.
    pub fn ports_of(&self, service: &ObjectName) -> &[Arc<ServicePort>] {
        self.entries
            .get(service)
            .map(|entry| &*entry.ports)
            .unwrap_or_default()
    }

    /// Returns the Services that load balancers ask about, as last resolved.
    pub fn health_checks(&self) -> impl Iterator<Item = (&ObjectName, &HealthCheck)> {
        self.health_checks.iter()
    }

    /// Returns the networks that cluster IPs come from, sorted, each once.
    pub fn service_cidrs(&self, family: Family) -> Vec<IpNet> {
        let all = self.service_cidrs.values().flatten().copied();
        let mut cidrs: Vec<_> = all
            .filter(|&cidr| Family::of_network(cidr) == family)
            .collect();
        cidrs.sort_unstable();
        cidrs.dedup();
        cidrs
    }

    /// Returns what the last resolve was about.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Returns how many changes there were.
    pub fn counts(&self) -> Counts {
        Counts {
            service_changes_pending: self.former.len(),
            ..self.counts
        }
    }

    /// Returns how many service ports lack a local endpoint, as last resolved.
    pub fn without_local(&self, family: Family) -> WithoutLocal {
        *self.without_local.of(family)
    }

    fn apply_service(&mut self, service: &api::Service) -> Vec<Warning> {
        let name = service.metadata.object_name();
        let mut warnings = Warnings::about(Kind::Service, &name);
        let frontend =
            Frontend::read(service, &name, self.config.external_ips, &mut warnings).map(Arc::new);
        let warnings = warnings.into_found();
        self.set_frontend(name, frontend);
        warnings
    }

    fn set_frontend(&mut self, name: ObjectName, frontend: Option<Arc<Frontend>>) {
        self.counts.service_changes += 1;
        let held = self
            .entries
            .get(&name)
            .and_then(|entry| entry.frontend.clone());
        if held == frontend {
            return;
        }
        match self.former.entry(name.clone()) {
            Slot::Occupied(former) if *former.get() == frontend => drop(former.remove()),
            Slot::Occupied(_) => {}
            Slot::Vacant(former) => drop(former.insert(held)),
        }
        self.entries.entry(name.clone()).or_default().frontend = frontend;
        self.mark(name);
    }

    fn apply_slice(&mut self, slice: api::EndpointSlice) -> Vec<Warning> {
        let name = slice.metadata.object_name();
        let trigger = slice.metadata.annotations.get(TRIGGER_ANNOTATION);
        let trigger = trigger.and_then(|text| Timestamp::parse(text));
        let trigger = trigger.filter(|&at| self.config.started.is_none_or(|start| at > start));
        let mut warnings = Warnings::about(Kind::EndpointSlice, &name);
        let read = Slice::read(slice, &name, &mut warnings);
        let warnings = warnings.into_found();
        if self
            .owners
            .get(&name)
            .is_some_and(|held| Some(held) != read.as_ref().map(|r| &r.0))
        {
            self.remove_slice(&name);
        }
        if let Some((owner, slice)) = read {
            self.counts.slice_changes += 1;
            self.owners.insert(name, owner.clone());
            self.put_slice(owner, slice, trigger);
        }
        warnings
    }

    fn put_slice(&mut self, owner: ObjectName, slice: Slice, trigger: Option<Timestamp>) {
        let entry = self.entries.entry(owner.clone()).or_default();
        let udp_before = entry.udp();
        let family = slice.family;
        let place = entry
            .slices
            .binary_search_by(|held| held.name.cmp(&slice.name));
        let former = match place {
            Err(place) => {
                // Most Services have one slice for ever: no room for more.
                entry.slices.reserve_exact(1);
                entry.slices.insert(place, slice);
                None
            }
            Ok(place) => {
                let held = entry
                    .slices
                    .get_mut(place)
                    .expect("the search found it there");
                if *held == slice {
                    return;
                }
                Some(mem::replace(held, slice).family)
            }
        };
        if let Some(trigger) = trigger.filter(|_| entry.triggers.len() < MAX_TRIGGERS) {
            entry.triggers.push(trigger);
        }
        let udp_after = entry.udp();
        for family in [Some(family), former].into_iter().flatten() {
            *self.pending_udp.of_mut(family) |= *udp_before.of(family) || *udp_after.of(family);
        }
        self.counts.slice_changes_pending += 1;
        self.mark(owner);
    }

    fn remove_slice(&mut self, name: &ObjectName) {
        let Some(owner) = self.owners.remove(name) else {
            return;
        };
        let entry = self
            .entries
            .get_mut(&owner)
            .expect("an owner of slices has an entry");
        let udp_before = entry.udp();
        let place = entry
            .slices
            .binary_search_by(|held| held.name.cmp(&name.name));
        let slice = entry.slices.remove(place.expect("an owner has its slices"));
        entry.triggers = Vec::new();
        *self.pending_udp.of_mut(slice.family) |= *udp_before.of(slice.family);
        self.counts.slice_changes_pending += 1;
        self.mark(owner);
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

    /// Marks a Service to be resolved, or forgets it if nothing is left of it.
    fn mark(&mut self, name: ObjectName) {
        let is_idle = self.entries.get(&name).is_some_and(Entry::is_idle);
        if is_idle && !self.health_checks.contains_key(&name) {
            self.entries.remove(&name);
            self.dirty.remove(&name);
        } else {
            self.dirty.insert(name);
        }
    }

    fn resolve_service(&mut self, name: ObjectName, node: &NodeView, out: &mut Vec<Resolved>) {
        let Some(entry) = self.entries.get_mut(&name) else {
            return;
        };
        let wanted = match &entry.frontend {
            Some(frontend) => policy::ports(frontend, &entry.slices, node),
            None => Vec::new(),
        };
        let mut former = mem::take(&mut entry.ports).into_iter().peekable();
        entry.ports.reserve_exact(wanted.len());
        for port in wanted {
            while let Some(gone) = former.next_if(|held| place(held) < place(&port)) {
                self.without_local
                    .of_mut(gone.family)
                    .replace(Some(&gone), None);
                out.push(Resolved::gone(&gone));
            }
            match former.next_if(|held| place(held) == place(&port)) {
                Some(held) if *held == port => entry.ports.push(held),
                held => {
                    let port = Arc::new(port);
                    self.without_local
                        .of_mut(port.family)
                        .replace(held.as_deref(), Some(&port));
                    out.push(Resolved::now(&port));
                    entry.ports.push(port);
                }
            }
        }
        for gone in former {
            self.without_local
                .of_mut(gone.family)
                .replace(Some(&gone), None);
            out.push(Resolved::gone(&gone));
        }
        let triggers = mem::take(&mut entry.triggers);
        if !triggers.is_empty() {
            self.changes.triggers.push((name.clone(), triggers));
        }
        match health_check(entry, node) {
            Some(check) => drop(self.health_checks.insert(name.clone(), check)),
            None => drop(self.health_checks.remove(&name)),
        }
        if entry.is_idle() {
            self.entries.remove(&name);
        }
    }
}

/// Returns what the ports of a Service are sorted by.
fn place(port: &ServicePort) -> (Family, &PortName) {
    (port.family, &port.name)
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
