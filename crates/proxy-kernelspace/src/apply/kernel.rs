//! HNS as a target of edits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use vipline_hcn::{
    self as hcn, Error, Features, HResult, Id, PortMapping, ProviderAddressPolicy, Query, Service,
};
use vipline_reconcile::{Cause, Edit, Keyed, Reason, Rejection, Target};
use vipline_service_model::Family;

use super::installed::Installed;
use crate::plan::object::{Endpoint, EndpointKind, Key, LoadBalancer, Object};
use crate::settings::Settings;

/// HNS as a target of edits of one family.
///
/// Load balancers with an endpoint of the network belong to this mode. Those without any
/// existing endpoint do if a planned one needs their frontend. Remote endpoints belong to
/// this mode if they have its MAC addresses.
#[derive(Debug)]
pub struct Hns<S> {
    service: S,
    network: Box<str>,
    family: Family,
    settings: Settings,
    can_modify: bool,
    network_id: Id,
    installed: Installed,
    /// [`LoadBalancer::depends_on`] of written load balancers, which HNS does not store.
    depends_on: HashMap<Key, Vec<IpAddr>>,
}

impl<S: Service> Hns<S> {
    /// Creates a target for a network, which must exist at the first dump.
    pub fn new(service: S, network: &str, family: Family, settings: Settings) -> Self {
        Self {
            service,
            network: network.into(),
            family,
            can_modify: settings.features.contains(Features::MODIFY_LOAD_BALANCER),
            settings,
            network_id: Id::default(),
            installed: Installed::default(),
            depends_on: HashMap::new(),
        }
    }

    /// Returns the service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// Returns the service for changes. The state of the target then counts as unknown:
    /// dump before the next commit.
    pub fn service_mut(&mut self) -> &mut S {
        &mut self.service
    }

    /// Creates an endpoint, unless the address has one.
    fn create_endpoint(&mut self, new: &Endpoint) -> Result<(), Error> {
        if self.installed.endpoints.contains_key(&new.address) {
            return Ok(());
        }
        let mut endpoint = match new.kind {
            EndpointKind::Remote => hcn::Endpoint::remote(new.address, &new.mac),
            EndpointKind::SourceVip => hcn::Endpoint::local(new.address),
        };
        endpoint.mac_address = new.mac.to_string();
        if let Some(provider) = new.provider {
            let policy = ProviderAddressPolicy::new(&provider.to_string());
            endpoint = endpoint.with_policy(policy);
        }
        let created = self.service.create_endpoint(&self.network_id, &endpoint)?;
        let id = created.id.clone();
        self.installed
            .insert_own(new.address, id, created.is_remote());
        Ok(())
    }

    /// Deletes an endpoint that this mode made.
    fn delete_endpoint(&mut self, address: IpAddr) -> Result<(), Error> {
        let own = self
            .installed
            .endpoints
            .get(&address)
            .filter(|it| it.is_own);
        let Some(id) = own.map(|it| it.id.clone()) else {
            return Ok(());
        };
        present(self.service.delete_endpoint(&id))?;
        self.installed.endpoints.remove(&address);
        Ok(())
    }

    /// Creates or replaces a load balancer.
    ///
    /// As in upstream, endpoints that HNS does not have are left out. Without endpoints
    /// there is no load balancer.
    fn write_load_balancer(&mut self, new: &LoadBalancer) -> Result<(), Failure> {
        let key = Object::from(new.clone()).key();
        let mut installable = new.clone();
        let depends_on = std::mem::take(&mut installable.depends_on);
        let is_installed = |it: &IpAddr| self.installed.endpoints.contains_key(it);
        installable.endpoints.retain(is_installed);
        let is_fit = depends_on.is_empty() || depends_on.iter().any(is_installed);
        if installable.endpoints.is_empty() || !is_fit {
            self.delete_load_balancer(key)?;
            return Err(Failure::NoEndpoint);
        }
        self.install(key, installable)?;
        match depends_on.is_empty() {
            true => self.depends_on.remove(&key),
            false => self.depends_on.insert(key, depends_on),
        };
        Ok(())
    }

    /// Creates or replaces a load balancer, whose endpoints HNS has.
    fn install(&mut self, key: Key, installable: LoadBalancer) -> Result<(), Error> {
        self.delete_surplus(key, Some(&installable))?;
        let document = self.document(&installable);
        if let Some((id, old)) = self.installed.load_balancers.get(&key) {
            if *old == installable {
                return Ok(());
            }
            let id = id.clone();
            if self.can_modify {
                match self.service.modify_load_balancer(&id, &document) {
                    Err(error) if error.is_not_implemented() => self.can_modify = false,
                    modified => {
                        let id = modified?.id;
                        self.installed.load_balancers.insert(key, (id, installable));
                        return Ok(());
                    }
                }
            }
            self.delete_load_balancer(key)?;
        }
        self.delete_orphans(key)?;
        let id = self.service.create_load_balancer(&document)?.id;
        self.installed.load_balancers.insert(key, (id, installable));
        Ok(())
    }

    /// Adds the endpoints that HNS still has of those that objects of a dump depend on.
    fn add_depends_on(&self, objects: &mut [Object]) {
        for object in objects {
            let addresses = self.depends_on.get(&object.key());
            if let (Object::LoadBalancer(of), Some(addresses)) = (object, addresses) {
                let addresses = addresses.iter().copied();
                let installed = &self.installed.endpoints;
                let existing = addresses.filter(|it| installed.contains_key(it));
                Arc::make_mut(of).depends_on = existing.collect();
            }
        }
    }

    /// Deletes load balancers without endpoints that occupy a frontend.
    ///
    /// HNS may keep a load balancer when another program deletes its endpoints, or the whole
    /// network.
    fn delete_orphans(&mut self, key: Key) -> Result<(), Error> {
        let Some(orphans) = self.installed.orphans.get_mut(&key) else {
            return Ok(());
        };
        while let Some(id) = orphans.last() {
            present(self.service.delete_load_balancer(id))?;
            orphans.pop();
        }
        Ok(())
    }

    /// Deletes the load balancers under a key, except for one, which is preferably equal to
    /// the `wanted` one.
    fn delete_surplus(&mut self, key: Key, wanted: Option<&LoadBalancer>) -> Result<(), Error> {
        for id in self.installed.surplus(key, wanted) {
            self.delete_by_id(&id)?;
            self.installed.remove_surplus(key, &id);
        }
        Ok(())
    }

    /// Deletes the load balancers under a key.
    fn delete_load_balancer(&mut self, key: Key) -> Result<(), Error> {
        self.delete_surplus(key, None)?;
        let Some((id, _)) = self.installed.load_balancers.get(&key) else {
            return Ok(());
        };
        let id = id.clone();
        self.delete_by_id(&id)?;
        self.installed.load_balancers.remove(&key);
        self.depends_on.remove(&key);
        Ok(())
    }

    /// Deletes a load balancer. On Windows Server 2019 the first attempt may fail without a
    /// reason.
    fn delete_by_id(&mut self, id: &Id) -> Result<(), Error> {
        if present(self.service.delete_load_balancer(id)).is_ok() {
            return Ok(());
        }
        present(self.service.delete_load_balancer(id))
    }

    /// Returns the document of a load balancer.
    fn document(&self, of: &LoadBalancer) -> hcn::LoadBalancer {
        let protocol = of.protocol.protocol().into();
        let mapping = PortMapping::new(protocol, of.external_port, of.internal_port)
            .with_distribution(of.distribution)
            .with_flags(of.port_flags);
        let endpoints = of.endpoints.iter();
        let ids = endpoints.filter_map(|it| self.installed.endpoints.get(it));
        let ids = ids.map(|it| it.id.clone());
        let document = hcn::LoadBalancer::new(of.frontend, mapping, ids).with_flags(of.flags);
        match of.source_vip {
            Some(source) => document.with_source_vip(source),
            None => document,
        }
    }

    /// Reads the endpoints of the network again if a load balancer has an unknown one.
    ///
    /// Other programs make the endpoints of pods of this node, also after the last dump.
    fn find_endpoints(&mut self, edits: &[Edit<Object>]) -> Result<(), Error> {
        let known = &self.installed.endpoints;
        let is_complete = edits.iter().all(|edit| match edit {
            Edit::Remove(_) => true,
            edit => match edit.object() {
                Object::LoadBalancer(new) => {
                    let mut needed = new.endpoints.iter().chain(&new.depends_on);
                    needed.all(|it| known.contains_key(it))
                }
                Object::Endpoint(_) => true,
            },
        });
        if is_complete {
            return Ok(());
        }
        let endpoints = self.service.endpoints_of(&self.network_id)?;
        self.installed
            .add_unknown(self.family, &self.settings, &endpoints);
        Ok(())
    }

    /// Applies an edit in the step to which it belongs.
    fn apply(&mut self, step: Step, edit: &Edit<Object>) -> Result<(), Failure> {
        let is_removal = matches!(edit, Edit::Remove(_));
        match (step, is_removal, edit.object()) {
            (Step::Endpoints, false, Object::Endpoint(new)) => self.create_endpoint(new)?,
            (Step::Removals, true, Object::LoadBalancer(_)) => {
                self.delete_load_balancer(edit.key())?;
            }
            (Step::LoadBalancers, false, Object::LoadBalancer(new)) => {
                self.write_load_balancer(new)?;
            }
            (Step::Cleanup, true, Object::Endpoint(old)) => self.delete_endpoint(old.address)?,
            _ => {}
        }
        Ok(())
    }
}

/// Failure of an edit.
#[derive(Debug)]
enum Failure {
    Hns(Error),
    /// HNS has none of the endpoints of a load balancer. Other programs make the endpoints
    /// of this node.
    NoEndpoint,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Hns(error)
    }
}

/// The steps of a commit, in their order: a load balancer needs its endpoints and a free
/// frontend, and HNS keeps endpoints that are in use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Endpoints,
    Removals,
    LoadBalancers,
    Cleanup,
}

impl Step {
    const ALL: [Self; 4] = [
        Self::Endpoints,
        Self::Removals,
        Self::LoadBalancers,
        Self::Cleanup,
    ];
}

/// Returns success if an object that is deleted does not exist.
fn present(deleted: Result<(), Error>) -> Result<(), Error> {
    match deleted {
        Err(error) if error.is_not_found() => Ok(()),
        deleted => deleted,
    }
}

/// Returns the reason of a rejection.
///
/// # Errors
///
/// The error, if HNS did not reject the call.
fn reason(failure: Failure, object: &Object) -> Result<Reason, Error> {
    let error = match failure {
        Failure::Hns(error) => error,
        Failure::NoEndpoint => {
            let message = format!("{object}: HNS has none of the endpoints");
            return Ok(Reason::rejected(None, message).with_cause(Cause::Dependent));
        }
    };
    let Some(code) = error.code() else {
        return Err(error);
    };
    let reason = Reason::rejected(Some(code.code().cast_signed()), &error);
    let is_conflict = error.is_already_exists() || error.is_not_found();
    let is_used = code == HResult::HCN_E_ENTITY_HAS_REFERENCES;
    Ok(match is_conflict || is_used {
        true => reason.with_cause(Cause::Conflict),
        false => reason,
    })
}

impl<S: Service> Hns<S> {
    fn read_all(&mut self) -> Result<Vec<Object>, Error> {
        self.network_id = self.service.network_by_name(&self.network)?.id;
        let endpoints = self.service.endpoints(&Query::all())?;
        let (endpoints, others): (Vec<_>, Vec<_>) = endpoints
            .into_iter()
            .partition(|it| it.network == self.network_id);
        let load_balancers = self.service.load_balancers(&Query::all())?;
        let (installed, mut objects) = Installed::read(
            self.family,
            &self.settings,
            &endpoints,
            &others,
            &load_balancers,
        );
        self.installed = installed;
        self.add_depends_on(&mut objects);
        Ok(objects)
    }

    fn write_all(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        let mut rejections = Vec::new();
        for step in Step::ALL {
            if step == Step::LoadBalancers {
                self.find_endpoints(edits)?;
            }
            for (index, edit) in edits.iter().enumerate() {
                if let Err(failure) = self.apply(step, edit) {
                    let reason = reason(failure, edit.object())?;
                    rejections.push(Rejection::new(index, reason));
                }
            }
        }
        for id in std::mem::take(&mut self.installed.duplicates) {
            // A load balancer may still use the endpoint: the next dump finds it again.
            let _ = self.service.delete_endpoint(&id);
        }
        rejections.sort_by_key(|rejection| rejection.index);
        Ok(rejections)
    }
}

impl<S: Service> Target for Hns<S> {
    type Object = Object;
    type Error = proxy_engine::Error;

    fn dump(&mut self) -> Result<Vec<Object>, proxy_engine::Error> {
        self.read_all().map_err(of_hns)
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, proxy_engine::Error> {
        self.write_all(edits).map_err(of_hns)
    }
}

/// Returns the error of a sync.
fn of_hns(error: Error) -> proxy_engine::Error {
    match error.code() {
        Some(HResult::E_ACCESSDENIED) => proxy_engine::Error::custom_permanent(error),
        _ => proxy_engine::Error::custom(error),
    }
}
