//! The objects of HNS, by address.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use vipline_hcn::{self as hcn, Id, LoadBalancerFlags};
use vipline_reconcile::Keyed;
use vipline_service_model::{Family, Transport};

use crate::plan::names::is_own;
use crate::plan::object::{Endpoint, EndpointKind, Key, LoadBalancer, Object};
use crate::settings::Settings;

/// An endpoint of HNS.
#[derive(Clone, Debug)]
pub(super) struct InstalledEndpoint {
    pub(super) id: Id,
    /// Whether this mode made the endpoint.
    pub(super) is_own: bool,
    is_remote: bool,
}

/// The objects of HNS in one family.
#[derive(Debug, Default)]
pub(super) struct Installed {
    pub(super) endpoints: HashMap<IpAddr, InstalledEndpoint>,
    pub(super) load_balancers: HashMap<Key, (Id, LoadBalancer)>,
    /// Further load balancers under the keys of `load_balancers`.
    surplus: HashMap<Key, Vec<(Id, LoadBalancer)>>,
    /// Own remote endpoints with the address of a local endpoint, which Windows Server 2019
    /// and 2022 permit.
    pub(super) duplicates: Vec<Id>,
    /// Load balancers whose endpoints no longer exist in any network. They direct no packets,
    /// but may occupy a frontend.
    pub(super) orphans: HashMap<Key, Vec<Id>>,
}

impl Installed {
    /// Reads the objects. Returns the own ones. `others` are the endpoints of other networks.
    ///
    /// A load balancer whose key has surplus ones is returned without endpoints. It then
    /// differs from each planned one, so that an edit deletes the surplus ones.
    pub(super) fn read(
        family: Family,
        settings: &Settings,
        endpoints: &[hcn::Endpoint],
        others: &[hcn::Endpoint],
        load_balancers: &[hcn::LoadBalancer],
    ) -> (Self, Vec<Object>) {
        let mut installed = Self::default();
        for endpoint in endpoints {
            for address in endpoint.addresses().filter(|it| Family::of(*it) == family) {
                installed.add_endpoint(settings, endpoint, address);
            }
        }
        let mut objects = Vec::new();
        for (&address, endpoint) in &installed.endpoints {
            let is_source = settings.is_overlay && settings.source_vip == Some(address);
            let kind = match (is_source, endpoint.is_remote && endpoint.is_own) {
                (true, _) => EndpointKind::SourceVip,
                (false, true) => EndpointKind::Remote,
                (false, false) => continue,
            };
            let (mac, provider) = ("".into(), None);
            objects.push(
                Endpoint {
                    address,
                    kind,
                    mac,
                    provider,
                }
                .into(),
            );
        }
        let addresses: HashMap<Id, IpAddr> = installed
            .endpoints
            .iter()
            .map(|(address, endpoint)| (endpoint.id.clone(), *address))
            .collect();
        let ids = |of: &'_ [hcn::Endpoint]| of.iter().map(|it| it.id.clone()).collect();
        let (ids, others): (HashSet<Id>, HashSet<Id>) = (ids(endpoints), ids(others));
        let mut keys = Vec::new();
        for load_balancer in load_balancers {
            let Some(read) = read(family, &addresses, load_balancer) else {
                continue;
            };
            let (id, key) = (load_balancer.id.clone(), Object::from(read.clone()).key());
            let has_any =
                |of: &HashSet<Id>| load_balancer.endpoints.iter().any(|id| of.contains(id));
            // A load balancer may have duplicates only, which have no address here.
            if has_any(&ids) {
                if installed.add_load_balancer(key, id, read) {
                    keys.push(key);
                }
            } else if !has_any(&others) {
                installed.orphans.entry(key).or_default().push(id);
            }
        }
        objects.extend(keys.iter().filter_map(|key| installed.load_balancer(key)));
        (installed, objects)
    }

    /// Returns the load balancer under a key as an object of a dump.
    fn load_balancer(&self, key: &Key) -> Option<Object> {
        let (_, mut read) = self.load_balancers.get(key).cloned()?;
        if self.surplus.contains_key(key) {
            read.endpoints.clear();
        }
        Some(read.into())
    }

    /// Adds a load balancer. The first one under a key has precedence. Returns whether the
    /// key is new.
    fn add_load_balancer(&mut self, key: Key, id: Id, read: LoadBalancer) -> bool {
        match self.load_balancers.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert((id, read));
                true
            }
            Entry::Occupied(_) => {
                self.surplus.entry(key).or_default().push((id, read));
                false
            }
        }
    }

    /// Returns the identifiers of surplus load balancers. One that is equal to the `wanted`
    /// one first changes places with the first one under the key.
    pub(super) fn surplus(&mut self, key: Key, wanted: Option<&LoadBalancer>) -> Vec<Id> {
        let Some(surplus) = self.surplus.get_mut(&key) else {
            return Vec::new();
        };
        if let Some(first) = self.load_balancers.get_mut(&key)
            && Some(&first.1) != wanted
            && let Some(equal) = surplus.iter_mut().find(|it| Some(&it.1) == wanted)
        {
            std::mem::swap(first, equal);
        }
        surplus.iter().map(|(id, _)| id.clone()).collect()
    }

    /// Removes a surplus load balancer.
    pub(super) fn remove_surplus(&mut self, key: Key, id: &Id) {
        if let Entry::Occupied(mut surplus) = self.surplus.entry(key) {
            surplus.get_mut().retain(|(other, _)| other != id);
            if surplus.get().is_empty() {
                surplus.remove();
            }
        }
    }

    /// Adds an endpoint that this mode made.
    pub(super) fn insert_own(&mut self, address: IpAddr, id: Id, is_remote: bool) {
        let is_own = true;
        let endpoint = InstalledEndpoint {
            id,
            is_own,
            is_remote,
        };
        self.endpoints.insert(address, endpoint);
    }

    /// Adds endpoints whose addresses are unknown.
    pub(super) fn add_unknown(
        &mut self,
        family: Family,
        settings: &Settings,
        endpoints: &[hcn::Endpoint],
    ) {
        for endpoint in endpoints {
            let unknown: Vec<IpAddr> = endpoint
                .addresses()
                .filter(|it| Family::of(*it) == family && !self.endpoints.contains_key(it))
                .collect();
            for address in unknown {
                self.add_endpoint(settings, endpoint, address);
            }
        }
    }

    /// Adds an endpoint. A local endpoint has precedence over a remote one.
    fn add_endpoint(&mut self, settings: &Settings, endpoint: &hcn::Endpoint, address: IpAddr) {
        let is_remote = endpoint.is_remote();
        let new = InstalledEndpoint {
            id: endpoint.id.clone(),
            is_own: is_remote && is_own(&endpoint.mac_address, address, &settings.host_mac),
            is_remote,
        };
        let dropped = match self.endpoints.get(&address) {
            Some(old) if old.is_remote && !is_remote => self.endpoints.insert(address, new),
            Some(_) => Some(new),
            None => self.endpoints.insert(address, new),
        };
        let dropped = dropped.filter(|it| it.is_own);
        self.duplicates.extend(dropped.map(|it| it.id));
    }
}

/// Reads a load balancer. `None` if it belongs to another family, or has another form than
/// those of this mode.
fn read(
    family: Family,
    addresses: &HashMap<Id, IpAddr>,
    load_balancer: &hcn::LoadBalancer,
) -> Option<LoadBalancer> {
    let [mapping] = &*load_balancer.port_mappings else {
        return None;
    };
    let frontend: Option<IpAddr> = match &*load_balancer.frontend_vips {
        [] => None,
        [address] => Some(address.parse().ok()?),
        _ => return None,
    };
    let flag = match load_balancer.flags.contains(LoadBalancerFlags::IPV6) {
        true => Family::V6,
        false => Family::V4,
    };
    let protocol = mapping.protocol.ip().and_then(Transport::of)?;
    let endpoints = load_balancer.endpoints.iter();
    let mut endpoints: Vec<_> = endpoints
        .filter_map(|id| addresses.get(id).copied())
        .collect();
    endpoints.sort_unstable();
    (frontend.map_or(flag, Family::of) == family).then_some(LoadBalancer {
        frontend,
        protocol,
        external_port: mapping.external_port,
        internal_port: mapping.internal_port,
        endpoints,
        depends_on: Vec::new(),
        source_vip: load_balancer.source_vip.parse().ok(),
        flags: load_balancer.flags,
        port_flags: mapping.flags,
        distribution: mapping.distribution,
    })
}
