//! A double of HNS in memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Endpoint, Error, Features, Filter, HResult, Id, LoadBalancer, ModifyRequest, Network, Query,
    SdnRoute, Service, Version,
};

mod changes;

mod rules;

/// A call of HNS that changes an object, without its arguments.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Call {
    /// Creates a network.
    CreateNetwork,
    /// Changes a network.
    ModifyNetwork,
    /// Deletes a network.
    DeleteNetwork,
    /// Creates an endpoint.
    CreateEndpoint,
    /// Changes an endpoint.
    ModifyEndpoint,
    /// Deletes an endpoint.
    DeleteEndpoint,
    /// Creates a load balancer.
    CreateLoadBalancer,
    /// Replaces a load balancer.
    ModifyLoadBalancer,
    /// Deletes a load balancer.
    DeleteLoadBalancer,
    /// Creates an SDN route.
    CreateSdnRoute,
    /// Replaces an SDN route.
    ModifySdnRoute,
    /// Deletes an SDN route.
    DeleteSdnRoute,
}

impl Call {
    /// Returns the name of the call in errors.
    fn name(self) -> &'static str {
        match self {
            Self::CreateNetwork => "create network",
            Self::ModifyNetwork => "modify network",
            Self::DeleteNetwork => "delete network",
            Self::CreateEndpoint => "create endpoint",
            Self::ModifyEndpoint => "modify endpoint",
            Self::DeleteEndpoint => "delete endpoint",
            Self::CreateLoadBalancer => "create load balancer",
            Self::ModifyLoadBalancer => "modify load balancer",
            Self::DeleteLoadBalancer => "delete load balancer",
            Self::CreateSdnRoute => "create SDN route",
            Self::ModifySdnRoute => "modify SDN route",
            Self::DeleteSdnRoute => "delete SDN route",
        }
    }
}

/// A double of HNS, for tests and for previews of changes.
///
/// Identifiers count from 1, so that equal histories give equal identifiers. A new object
/// never has the identifier of a deleted one. The rules:
///
/// - The name of a network is unique. Subnets with a prefix have a default route.
/// - An address has at most one local and one remote endpoint in a network. HNS permits
///   the pair, which is a bug of Windows Server 2019 and 2022. A local endpoint has an
///   address of a subnet, if its network has subnets.
/// - A load balancer has one port and at least one endpoint. All endpoints exist, and
///   belong to one network.
/// - A frontend is unique in a network: address, protocol, port, and IP family.
/// - An SDN route has at least one endpoint, and one route with a valid prefix. All
///   endpoints exist.
/// - An object is not deleted while other objects refer to it.
/// - A load balancer is modified only by versions with
///   [`Features::MODIFY_LOAD_BALANCER`].
///
/// The rules come from hcsshim, the test double of upstream kube-proxy, and the
/// descriptions of error codes. They were not compared with HNS on Windows.
#[derive(Clone, Debug)]
pub struct Memory {
    version: Version,
    last_id: u128,
    /// Identifiers of all objects up to now, also of deleted ones.
    used_ids: BTreeSet<Id>,
    networks: BTreeMap<Id, Network>,
    endpoints: BTreeMap<Id, Endpoint>,
    load_balancers: BTreeMap<Id, LoadBalancer>,
    sdn_routes: BTreeMap<Id, SdnRoute>,
    calls: Vec<Call>,
    failures: Vec<(Call, HResult)>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// Creates a service without objects, of version 15.4, which has all features.
    pub fn new() -> Self {
        Self {
            version: Version::new(15, 4),
            last_id: 0,
            used_ids: BTreeSet::new(),
            networks: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            load_balancers: BTreeMap::new(),
            sdn_routes: BTreeMap::new(),
            calls: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Sets the version of HNS.
    #[must_use]
    pub fn with_version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Adds objects with identifiers, as HNS enumerates them. They are not checked.
    #[must_use]
    pub fn with_objects(
        mut self,
        networks: impl IntoIterator<Item = Network>,
        endpoints: impl IntoIterator<Item = Endpoint>,
        load_balancers: impl IntoIterator<Item = LoadBalancer>,
    ) -> Self {
        let networks = networks.into_iter().map(|it| (it.id.clone(), it));
        self.networks.extend(networks);
        let endpoints = endpoints.into_iter().map(|it| (it.id.clone(), it));
        self.endpoints.extend(endpoints);
        let load_balancers = load_balancers.into_iter().map(|it| (it.id.clone(), it));
        self.load_balancers.extend(load_balancers);
        let networks = self.networks.keys().chain(self.endpoints.keys());
        let ids = networks.chain(self.load_balancers.keys());
        self.used_ids.extend(ids.cloned());
        self
    }

    /// Returns the calls that changed the state, or tried to, since the last call of this
    /// method.
    pub fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// Rejects the next call of a kind. Several rejections of one kind apply in turn.
    pub fn reject(&mut self, call: Call, code: HResult) {
        self.failures.push((call, code));
    }

    /// Returns the networks in the order of identifiers.
    pub fn all_networks(&self) -> impl Iterator<Item = &Network> {
        self.networks.values()
    }

    /// Returns the endpoints in the order of identifiers.
    pub fn all_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.values()
    }

    /// Returns the load balancers in the order of identifiers.
    pub fn all_load_balancers(&self) -> impl Iterator<Item = &LoadBalancer> {
        self.load_balancers.values()
    }

    /// Records a call, and rejects it if the caller requested that.
    fn record(&mut self, call: Call, object: &str) -> Result<(), Error> {
        self.calls.push(call);
        match self.failures.iter().position(|(kind, _)| *kind == call) {
            Some(index) => {
                let (_, code) = self.failures.remove(index);
                Err(rejected(call, object, code))
            }
            None => Ok(()),
        }
    }

    /// Returns the identifier of a new object.
    fn assign_id(&mut self, id: &Id) -> Id {
        if !id.is_empty() {
            self.used_ids.insert(id.clone());
            return id.clone();
        }
        loop {
            self.last_id += 1;
            let id = Id::from_u128(self.last_id);
            if self.used_ids.insert(id.clone()) {
                return id;
            }
        }
    }

    /// Writes an SDN route.
    fn insert_sdn_route(&mut self, id: Id, route: &SdnRoute) -> SdnRoute {
        let mut route = route.clone();
        route.id = id.clone();
        self.sdn_routes.insert(id, route.clone());
        route
    }
}

/// Creates an error.
fn rejected(call: Call, object: &str, code: HResult) -> Error {
    Error::Rejected {
        operation: call.name(),
        object: object.into(),
        code,
        message: "".into(),
    }
}

/// Returns the objects that match a query, with the identifier, name and network of each.
fn matching<'a, T: Clone + 'a>(
    objects: impl Iterator<Item = &'a T>,
    query: &Query,
    names: impl Fn(&T) -> (&Id, &str, Option<&Id>),
) -> Result<Vec<T>, Error> {
    let filter = query.filter().ok_or_else(|| Error::Rejected {
        operation: "enumerate",
        object: query.filter.as_str().into(),
        code: HResult::E_INVALIDARG,
        message: "".into(),
    })?;
    let matches = |object: &&T| {
        let (id, name, network) = names(object);
        match &filter {
            Filter::All => true,
            Filter::Id(wanted) => id == wanted,
            Filter::Name(wanted) => name.eq_ignore_ascii_case(wanted),
            Filter::Network(wanted) => network == Some(wanted),
        }
    };
    Ok(objects.filter(matches).cloned().collect())
}

impl Service for Memory {
    fn version(&mut self) -> Result<Version, Error> {
        Ok(self.version)
    }

    fn networks(&mut self, query: &Query) -> Result<Vec<Network>, Error> {
        matching(self.networks.values(), query, |it| (&it.id, &it.name, None))
    }

    fn create_network(&mut self, network: &Network) -> Result<Network, Error> {
        const CALL: Call = Call::CreateNetwork;
        self.record(CALL, &network.name)?;
        let check = self.check_network(network);
        check.map_err(|code| rejected(CALL, &network.name, code))?;
        let mut network = network.clone();
        network.id = self.assign_id(&network.id);
        self.networks.insert(network.id.clone(), network.clone());
        Ok(network)
    }

    fn modify_network(&mut self, id: &Id, request: &ModifyRequest) -> Result<Network, Error> {
        const CALL: Call = Call::ModifyNetwork;
        self.record(CALL, id.as_str())?;
        let network = self.networks.get_mut(id);
        let network = network.ok_or(HResult::HCN_E_NETWORK_NOT_FOUND);
        let changed = network.and_then(|network| {
            changes::apply(&mut network.policies, request)?;
            Ok(network.clone())
        });
        changed.map_err(|code| rejected(CALL, id.as_str(), code))
    }

    fn delete_network(&mut self, id: &Id) -> Result<(), Error> {
        const CALL: Call = Call::DeleteNetwork;
        self.record(CALL, id.as_str())?;
        let check = self.check_network_deletion(id);
        check.map_err(|code| rejected(CALL, id.as_str(), code))?;
        self.networks.remove(id);
        Ok(())
    }

    fn endpoints(&mut self, query: &Query) -> Result<Vec<Endpoint>, Error> {
        matching(self.endpoints.values(), query, |it| {
            (&it.id, &it.name, Some(&it.network))
        })
    }

    fn create_endpoint(&mut self, network: &Id, endpoint: &Endpoint) -> Result<Endpoint, Error> {
        const CALL: Call = Call::CreateEndpoint;
        let addresses: Vec<_> = endpoint.addresses().map(|it| it.to_string()).collect();
        let object = addresses.join(", ");
        self.record(CALL, &object)?;
        let check = self.check_endpoint(network, endpoint);
        check.map_err(|code| rejected(CALL, &object, code))?;
        let mut endpoint = endpoint.clone();
        endpoint.id = self.assign_id(&endpoint.id);
        endpoint.network = network.clone();
        let copy = endpoint.clone();
        self.endpoints.insert(endpoint.id.clone(), copy);
        Ok(endpoint)
    }

    fn modify_endpoint(&mut self, id: &Id, request: &ModifyRequest) -> Result<Endpoint, Error> {
        const CALL: Call = Call::ModifyEndpoint;
        self.record(CALL, id.as_str())?;
        let endpoint = self.endpoints.get_mut(id);
        let endpoint = endpoint.ok_or(HResult::HCN_E_ENDPOINT_NOT_FOUND);
        let changed = endpoint.and_then(|endpoint| {
            changes::apply(&mut endpoint.policies, request)?;
            Ok(endpoint.clone())
        });
        changed.map_err(|code| rejected(CALL, id.as_str(), code))
    }

    fn delete_endpoint(&mut self, id: &Id) -> Result<(), Error> {
        const CALL: Call = Call::DeleteEndpoint;
        self.record(CALL, id.as_str())?;
        let check = self.check_endpoint_deletion(id);
        check.map_err(|code| rejected(CALL, id.as_str(), code))?;
        self.endpoints.remove(id);
        Ok(())
    }

    fn load_balancers(&mut self, query: &Query) -> Result<Vec<LoadBalancer>, Error> {
        matching(self.load_balancers.values(), query, |it| (&it.id, "", None))
    }

    fn create_load_balancer(&mut self, new: &LoadBalancer) -> Result<LoadBalancer, Error> {
        const CALL: Call = Call::CreateLoadBalancer;
        let object = rules::frontend(new);
        self.record(CALL, &object)?;
        let check = self.check_load_balancer(None, new);
        check.map_err(|code| rejected(CALL, &object, code))?;
        let mut new = new.clone();
        new.id = self.assign_id(&new.id);
        self.load_balancers.insert(new.id.clone(), new.clone());
        Ok(new)
    }

    fn modify_load_balancer(&mut self, id: &Id, new: &LoadBalancer) -> Result<LoadBalancer, Error> {
        const CALL: Call = Call::ModifyLoadBalancer;
        self.record(CALL, id.as_str())?;
        let is_implemented = Features::of(self.version).contains(Features::MODIFY_LOAD_BALANCER);
        let check = match (is_implemented, self.load_balancers.contains_key(id)) {
            (false, _) => Err(HResult::E_NOTIMPL),
            (true, false) => Err(HResult::ERROR_NOT_FOUND),
            (true, true) => self.check_load_balancer(Some(id), new),
        };
        check.map_err(|code| rejected(CALL, id.as_str(), code))?;
        let mut new = new.clone();
        new.id = id.clone();
        self.load_balancers.insert(id.clone(), new.clone());
        Ok(new)
    }

    fn delete_load_balancer(&mut self, id: &Id) -> Result<(), Error> {
        const CALL: Call = Call::DeleteLoadBalancer;
        self.record(CALL, id.as_str())?;
        match self.load_balancers.remove(id) {
            Some(_) => Ok(()),
            None => Err(rejected(CALL, id.as_str(), HResult::ERROR_NOT_FOUND)),
        }
    }

    fn sdn_routes(&mut self, query: &Query) -> Result<Vec<SdnRoute>, Error> {
        matching(self.sdn_routes.values(), query, |it| (&it.id, "", None))
    }

    fn create_sdn_route(&mut self, route: &SdnRoute) -> Result<SdnRoute, Error> {
        const CALL: Call = Call::CreateSdnRoute;
        self.record(CALL, route.id.as_str())?;
        let check = match self.sdn_routes.contains_key(&route.id) {
            true => Err(HResult::HCN_E_POLICY_ALREADY_EXISTS),
            false => self.check_sdn_route(route),
        };
        check.map_err(|code| rejected(CALL, route.id.as_str(), code))?;
        let id = self.assign_id(&route.id);
        Ok(self.insert_sdn_route(id, route))
    }

    fn modify_sdn_route(&mut self, id: &Id, route: &SdnRoute) -> Result<SdnRoute, Error> {
        const CALL: Call = Call::ModifySdnRoute;
        self.record(CALL, id.as_str())?;
        let check = match self.sdn_routes.contains_key(id) {
            true => self.check_sdn_route(route),
            false => Err(HResult::ERROR_NOT_FOUND),
        };
        check.map_err(|code| rejected(CALL, id.as_str(), code))?;
        Ok(self.insert_sdn_route(id.clone(), route))
    }

    fn delete_sdn_route(&mut self, id: &Id) -> Result<(), Error> {
        const CALL: Call = Call::DeleteSdnRoute;
        self.record(CALL, id.as_str())?;
        match self.sdn_routes.remove(id) {
            Some(_) => Ok(()),
            None => Err(rejected(CALL, id.as_str(), HResult::ERROR_NOT_FOUND)),
        }
    }
}
