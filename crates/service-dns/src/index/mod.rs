//! The objects of the cluster, indexed by name and by address.
//!
//! Every index is a tree or a hash table. The cost of a change is that of its object times
//! the logarithm of the number of objects.

mod hosts;

mod ports;

mod service;

mod slice;

mod networks;

mod label;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use slab::Slab;
use vipline_service_model::{ObjectName, Transport, Warning, api};

pub(crate) use hosts::Hosts;
pub(crate) use networks::Networks;
pub(crate) use ports::{Port, Ports};
pub(crate) use service::{Service, ServiceKind};
pub(crate) use slice::{Endpoint, Slice};

/// Position of an entry.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct EntryId(u32);

/// Position of a slice.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct SliceId(u32);

impl EntryId {
    fn new(key: usize) -> Self {
        Self(u32::try_from(key).expect("fewer than 2^32 Services"))
    }
}

impl SliceId {
    const MIN: Self = Self(0);
    const MAX: Self = Self(u32::MAX);

    fn new(key: usize) -> Self {
        Self(u32::try_from(key).expect("fewer than 2^32 slices"))
    }
}

/// The objects of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Index {
    namespaces: HashMap<Arc<str>, Namespace>,
    /// Names of the Namespaces in the API. Namespaces of Services exist, too, so that a zone
    /// without this list answers for them.
    listed_namespaces: HashSet<Arc<str>>,
    entries: Slab<Entry>,
    slices: Slab<Slice>,
    slice_ids: HashMap<ObjectName, SliceId>,
    /// Cluster IPs of all Services.
    cluster_ips: BTreeSet<(IpAddr, EntryId)>,
    /// Addresses of all endpoints, ready or not.
    endpoints: BTreeSet<(IpAddr, EntryId, SliceId)>,
}

/// The Services of a namespace.
#[derive(Debug, Default)]
struct Namespace {
    /// Invariant: not empty.
    entries: HashMap<Arc<str>, EntryId>,
    /// Number of entries with a Service.
    services: usize,
}

/// A Service and its slices.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Namespace.
    pub(crate) namespace: Arc<str>,
    /// Name.
    pub(crate) name: Arc<str>,
    /// The Service. `None` if only slices are known.
    pub(crate) service: Option<Service>,
    slices: BTreeSet<SliceId>,
    /// Slices with endpoints of a host name.
    hostnames: BTreeMap<Arc<str>, BTreeSet<SliceId>>,
    /// Number of ready endpoints of all slices.
    ready: usize,
    /// Number of endpoints of all slices.
    total: usize,
}

impl Entry {
    /// Returns the Service if one of its names exists: a headless Service needs an endpoint.
    pub(crate) fn existing(&self) -> Option<&Service> {
        let service = self.service.as_ref()?;
        let exists = match (&service.kind, service.publishes_unready) {
            (ServiceKind::Headless, true) => self.total > 0,
            (ServiceKind::Headless, false) => self.ready > 0,
            (ServiceKind::Cluster { .. } | ServiceKind::External(_), _) => true,
        };
        exists.then_some(service)
    }
}

impl Index {
    /// Stores a Service. Returns warnings about its fields.
    pub(crate) fn apply_service(&mut self, object: &api::Service) -> Vec<Warning> {
        let name = object.metadata.object_name();
        let (service, warnings) = Service::read(object, &name);
        self.put_service(&name, service);
        warnings
    }

    /// Removes a Service.
    pub(crate) fn delete_service(&mut self, name: &ObjectName) {
        self.put_service(name, None);
    }

    /// Stores the name of a Namespace.
    pub(crate) fn apply_namespace(&mut self, object: &api::Namespace) {
        let name = &*object.metadata.name;
        if !self.listed_namespaces.contains(name) {
            self.listed_namespaces.insert(name.into());
        }
    }

    /// Removes the name of a Namespace.
    pub(crate) fn delete_namespace(&mut self, name: &str) {
        self.listed_namespaces.remove(name);
    }

    /// Stores a slice. Returns warnings about its fields.
    pub(crate) fn apply_slice(&mut self, object: &api::EndpointSlice) -> Vec<Warning> {
        let name = object.metadata.object_name();
        let mut read = slice::Read::of(object, &name);
        let warnings = std::mem::take(&mut read.warnings);
        self.delete_slice(&name);
        if let Some(service) = read.service {
            self.insert_slice(name, &service, read.content);
        }
        warnings
    }

    /// Removes a slice.
    pub(crate) fn delete_slice(&mut self, name: &ObjectName) {
        let Some(id) = self.slice_ids.remove(name) else {
            return;
        };
        let slice = self.slices.remove(id.0 as usize);
        let entry = &mut self.entries[slice.owner.0 as usize];
        entry.slices.remove(&id);
        entry.ready -= slice.ready;
        entry.total -= slice.endpoints.len();
        for endpoint in &slice.endpoints {
            self.endpoints.remove(&(endpoint.addr, slice.owner, id));
        }
        for hostname in slice.hostnames() {
            if let Some(slices) = entry.hostnames.get_mut(hostname) {
                slices.remove(&id);
                if slices.is_empty() {
                    entry.hostnames.remove(hostname);
                }
            }
        }
        self.close(slice.owner);
    }

    fn insert_slice(&mut self, name: ObjectName, service: &str, content: slice::Content) {
        let owner = self.open(&name.namespace, service);
        let slice = content.owned_by(owner);
        let id = SliceId::new(self.slices.vacant_key());
        let entry = &mut self.entries[owner.0 as usize];
        entry.slices.insert(id);
        entry.ready += slice.ready;
        entry.total += slice.endpoints.len();
        for endpoint in &slice.endpoints {
            self.endpoints.insert((endpoint.addr, owner, id));
        }
        for hostname in slice.hostnames() {
            let slices = entry.hostnames.entry(Arc::clone(hostname)).or_default();
            slices.insert(id);
        }
        self.slices.insert(slice);
        self.slice_ids.insert(name, id);
    }

    fn put_service(&mut self, name: &ObjectName, service: Option<Service>) {
        let id = match (&service, self.find(&name.namespace, &name.name)) {
            (None, None) => return,
            (_, Some(id)) => id,
            (Some(_), None) => self.open(&name.namespace, &name.name),
        };
        let is_some = service.is_some();
        let entry = &mut self.entries[id.0 as usize];
        let former = std::mem::replace(&mut entry.service, service);
        for &addr in former.iter().flat_map(Service::cluster_ips) {
            self.cluster_ips.remove(&(addr, id));
        }
        for &addr in entry.service.iter().flat_map(Service::cluster_ips) {
            self.cluster_ips.insert((addr, id));
        }
        let namespace = self.namespaces.get_mut(&name.namespace);
        let namespace = namespace.expect("every entry is in its namespace");
        namespace.services += usize::from(is_some);
        namespace.services -= usize::from(former.is_some());
        self.close(id);
    }

    fn find(&self, namespace: &str, name: &str) -> Option<EntryId> {
        self.namespaces.get(namespace)?.entries.get(name).copied()
    }

    /// Returns the entry of a Service. Creates the entry if it does not exist.
    fn open(&mut self, namespace: &str, name: &str) -> EntryId {
        if let Some(id) = self.find(namespace, name) {
            return id;
        }
        let shared = self.namespaces.get_key_value(namespace);
        let shared = shared.map_or_else(|| Arc::from(namespace), |(name, _)| Arc::clone(name));
        let name: Arc<str> = name.into();
        let id = EntryId::new(self.entries.insert(Entry {
            namespace: Arc::clone(&shared),
            name: Arc::clone(&name),
            service: None,
            slices: BTreeSet::new(),
            hostnames: BTreeMap::new(),
            ready: 0,
            total: 0,
        }));
        let namespace = self.namespaces.entry(shared).or_default();
        namespace.entries.insert(name, id);
        id
    }

    /// Removes an entry without a Service and slices.
    fn close(&mut self, id: EntryId) {
        let entry = &self.entries[id.0 as usize];
        if entry.service.is_some() || !entry.slices.is_empty() {
            return;
        }
        let entry = self.entries.remove(id.0 as usize);
        if let Some(namespace) = self.namespaces.get_mut(&entry.namespace) {
            namespace.entries.remove(&entry.name);
            if namespace.entries.is_empty() {
                self.namespaces.remove(&entry.namespace);
            }
        }
    }
}

/// Look-ups of questions.
impl Index {
    /// Returns whether a namespace exists: in the API, or as that of a Service.
    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        let namespace = self.namespaces.get(name);
        namespace.is_some_and(|namespace| namespace.services > 0)
            || self.listed_namespaces.contains(name)
    }

    /// Returns a Service with names that exist.
    pub(crate) fn service(&self, namespace: &str, name: &str) -> Option<Found<'_>> {
        self.found(self.find(namespace, name)?)
    }

    /// Returns the Services with a cluster IP.
    pub(crate) fn services_at(&self, addr: IpAddr) -> impl Iterator<Item = Found<'_>> {
        let range = (addr, EntryId(0))..=(addr, EntryId(u32::MAX));
        let range = self.cluster_ips.range(range);
        range.filter_map(|&(_, id)| self.found(id))
    }

    /// Returns the published endpoints with an address, of all Services.
    pub(crate) fn endpoints_at(
        &self,
        addr: IpAddr,
    ) -> impl Iterator<Item = (Found<'_>, &Slice, &Endpoint)> {
        let range = (addr, EntryId(0), SliceId::MIN)..=(addr, EntryId(u32::MAX), SliceId::MAX);
        let range = self.endpoints.range(range);
        range.flat_map(move |&(_, entry, slice)| {
            let found = self.found(entry);
            let slice = &self.slices[slice.0 as usize];
            let endpoints = slice.at(addr).iter();
            endpoints.filter_map(move |endpoint| {
                let found = found.filter(|found| found.publishes(endpoint))?;
                Some((found, slice, endpoint))
            })
        })
    }

    /// Returns whether an address between two addresses, both included, has a record.
    pub(crate) fn has_between(&self, first: IpAddr, last: IpAddr) -> bool {
        let cluster_ips = (first, EntryId(0))..=(last, EntryId(u32::MAX));
        let endpoints = (first, EntryId(0), SliceId::MIN)..=(last, EntryId(u32::MAX), SliceId::MAX);
        self.cluster_ips.range(cluster_ips).next().is_some()
            || self
                .endpoints
                .range(endpoints)
                .any(|&(addr, ..)| self.endpoints_at(addr).next().is_some())
    }

    fn found(&self, id: EntryId) -> Option<Found<'_>> {
        let entry = &self.entries[id.0 as usize];
        Some(Found {
            index: self,
            id,
            entry,
            service: entry.existing()?,
        })
    }
}

/// A Service with names that exist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    index: &'a Index,
    id: EntryId,
    /// Names and slices.
    pub(crate) entry: &'a Entry,
    /// The Service.
    pub(crate) service: &'a Service,
}

impl<'a> Found<'a> {
    /// Returns the slices.
    pub(crate) fn slices(self) -> impl Iterator<Item = &'a Slice> {
        let ids = self.entry.slices.iter();
        ids.map(move |id| &self.index.slices[id.0 as usize])
    }

    /// Returns the published endpoints of all families for which `is_wanted` is true.
    pub(crate) fn addresses(self, is_wanted: impl Fn(IpAddr) -> bool) -> Hosts<'a> {
        Hosts::new(self, |slice| {
            // All endpoints of a slice have the same family.
            let first = slice.endpoints.first()?;
            is_wanted(first.addr).then_some(None)
        })
    }

    /// Returns the published endpoints with all ports.
    pub(crate) fn hosts(self) -> Hosts<'a> {
        Hosts::new(self, |slice| Some(Some(slice.ports.all())))
    }

    /// Returns the published endpoints with the ports of a name and a protocol.
    pub(crate) fn hosts_of(self, name: &str, protocol: Transport) -> Hosts<'a> {
        Hosts::new(self, |slice| Some(Some(slice.ports.named(name, protocol))))
    }

    /// Returns the published endpoints of a slice.
    fn endpoints_of(self, slice: &'a Slice) -> impl Iterator<Item = &'a Endpoint> {
        let endpoints = slice.endpoints.iter();
        endpoints.filter(move |endpoint| self.publishes(endpoint))
    }

    /// Returns the published endpoints with a host name: the name of the object, or the
    /// dashed address of an endpoint without one.
    pub(crate) fn endpoints_named(self, name: &str) -> Vec<(&'a Slice, &'a Endpoint)> {
        let mut named = Vec::new();
        for id in self.entry.hostnames.get(name).into_iter().flatten() {
            let slice = &self.index.slices[id.0 as usize];
            named.extend(slice.named(name).map(|endpoint| (slice, endpoint)));
        }
        if let Some(addr) = undash(name) {
            let range = (addr, self.id, SliceId::MIN)..=(addr, self.id, SliceId::MAX);
            for &(.., id) in self.index.endpoints.range(range) {
                let slice = &self.index.slices[id.0 as usize];
                let unnamed = slice.at(addr).iter();
                let unnamed = unnamed.filter(|endpoint| slice.hostname(endpoint).is_none());
                named.extend(unnamed.map(|endpoint| (slice, endpoint)));
            }
        }
        named.retain(|(_, endpoint)| self.publishes(endpoint));
        named
    }

    /// Returns whether a named port has this protocol.
    pub(crate) fn has_protocol(self, protocol: Transport) -> bool {
        match &self.service.kind {
            ServiceKind::Cluster { ports, .. } => ports.has_protocol(protocol),
            ServiceKind::Headless => self
                .slices()
                .filter(|slice| self.published(slice) > 0)
                .any(|slice| slice.ports.has_protocol(protocol)),
            ServiceKind::External(_) => false,
        }
    }

    /// Returns whether an endpoint has records. A Service that became an ExternalName may
    /// still have slices, and nobody removes those that a user made; an alias has no other
    /// records (RFC 1034, section 3.6.2).
    fn publishes(self, endpoint: &Endpoint) -> bool {
        let is_alias = matches!(self.service.kind, ServiceKind::External(_));
        !is_alias && (endpoint.is_ready || self.service.publishes_unready)
    }

    /// Returns the number of published endpoints of a slice.
    fn published(self, slice: &Slice) -> usize {
        match self.service.publishes_unready {
            true => slice.endpoints.len(),
            false => slice.ready,
        }
    }
}

/// Returns the host name of an endpoint in DNS.
pub(crate) fn hostname_of(slice: &Slice, endpoint: &Endpoint) -> Arc<str> {
    match slice.hostname(endpoint) {
        Some(hostname) => Arc::clone(hostname),
        None => label::dash(endpoint.addr).into(),
    }
}

pub(crate) use label::{pod_address, undash};
