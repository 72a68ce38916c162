//! The operations of HNS.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    Endpoint, Error, Features, Filter, Id, LoadBalancer, ModifyRequest, Network, Query, SdnRoute,
    Version,
};

/// The Host Networking Service.
///
/// On Windows `Client` implements it. `Memory`, of the feature `memory`, is a double for
/// tests on all systems.
///
/// All methods return [`Error::Rejected`] if HNS rejects a call, [`Error::InvalidId`] if
/// an identifier is not a GUID, and [`Error::Json`] if a reply has an unexpected form.
/// Methods that create or modify an object return the object as HNS has it afterwards.
#[allow(
    clippy::missing_errors_doc,
    reason = "all methods have the errors of the trait's description"
)]
pub trait Service {
    /// Returns the version of HNS.
    fn version(&mut self) -> Result<Version, Error>;

    /// Returns the networks that match a query.
    fn networks(&mut self, query: &Query) -> Result<Vec<Network>, Error>;

    /// Creates a network.
    fn create_network(&mut self, network: &Network) -> Result<Network, Error>;

    /// Changes a network.
    fn modify_network(&mut self, id: &Id, request: &ModifyRequest) -> Result<Network, Error>;

    /// Deletes a network.
    fn delete_network(&mut self, id: &Id) -> Result<(), Error>;

    /// Returns the endpoints that match a query.
    fn endpoints(&mut self, query: &Query) -> Result<Vec<Endpoint>, Error>;

    /// Creates an endpoint in a network.
    fn create_endpoint(&mut self, network: &Id, endpoint: &Endpoint) -> Result<Endpoint, Error>;

    /// Changes an endpoint.
    fn modify_endpoint(&mut self, id: &Id, request: &ModifyRequest) -> Result<Endpoint, Error>;

    /// Deletes an endpoint.
    fn delete_endpoint(&mut self, id: &Id) -> Result<(), Error>;

    /// Returns the load balancers that match a query.
    fn load_balancers(&mut self, query: &Query) -> Result<Vec<LoadBalancer>, Error>;

    /// Creates a load balancer.
    fn create_load_balancer(&mut self, load_balancer: &LoadBalancer)
    -> Result<LoadBalancer, Error>;

    /// Replaces a load balancer, which keeps its identifier. Requires
    /// [`Features::MODIFY_LOAD_BALANCER`].
    fn modify_load_balancer(
        &mut self,
        id: &Id,
        load_balancer: &LoadBalancer,
    ) -> Result<LoadBalancer, Error>;

    /// Deletes a load balancer.
    fn delete_load_balancer(&mut self, id: &Id) -> Result<(), Error>;

    /// Returns the SDN routes that match a query.
    fn sdn_routes(&mut self, query: &Query) -> Result<Vec<SdnRoute>, Error>;

    /// Creates an SDN route.
    fn create_sdn_route(&mut self, route: &SdnRoute) -> Result<SdnRoute, Error>;

    /// Replaces an SDN route, which keeps its identifier. HNS may not implement this:
    /// hcsshim deletes the route and creates another one.
    fn modify_sdn_route(&mut self, id: &Id, route: &SdnRoute) -> Result<SdnRoute, Error>;

    /// Deletes an SDN route.
    fn delete_sdn_route(&mut self, id: &Id) -> Result<(), Error>;

    /// Returns the features of HNS.
    fn features(&mut self) -> Result<Features, Error> {
        self.version().map(Features::of)
    }

    /// Returns the network with a name. Also returns [`Error::NotFound`].
    fn network_by_name(&mut self, name: &str) -> Result<Network, Error> {
        let query = Query::with_filter(&Filter::Name(name.into()));
        first("network", name, self.networks(&query)?)
    }

    /// Returns the endpoint with a name. Also returns [`Error::NotFound`].
    fn endpoint_by_name(&mut self, name: &str) -> Result<Endpoint, Error> {
        let query = Query::with_filter(&Filter::Name(name.into()));
        first("endpoint", name, self.endpoints(&query)?)
    }

    /// Returns the endpoints of a network.
    fn endpoints_of(&mut self, network: &Id) -> Result<Vec<Endpoint>, Error> {
        self.endpoints(&Query::with_filter(&Filter::Network(network.clone())))
    }
}

/// Defines the methods of a shared service by those of the service.
macro_rules! shared {
    ($($method:ident($($argument:ident: $type:ty),*) -> $result:ty;)+) => {
        /// A service that several owners share. A panic of an owner is ignored, because
        /// each call is complete in itself.
        impl<S: Service> Service for Arc<Mutex<S>> {
            $(fn $method(&mut self, $($argument: $type),*) -> Result<$result, Error> {
                let mut service = self.lock().unwrap_or_else(PoisonError::into_inner);
                service.$method($($argument),*)
            })+
        }
    };
}

shared! {
    version() -> Version;
    networks(query: &Query) -> Vec<Network>;
    create_network(network: &Network) -> Network;
    modify_network(id: &Id, request: &ModifyRequest) -> Network;
    delete_network(id: &Id) -> ();
    endpoints(query: &Query) -> Vec<Endpoint>;
    create_endpoint(network: &Id, endpoint: &Endpoint) -> Endpoint;
    modify_endpoint(id: &Id, request: &ModifyRequest) -> Endpoint;
    delete_endpoint(id: &Id) -> ();
    load_balancers(query: &Query) -> Vec<LoadBalancer>;
    create_load_balancer(new: &LoadBalancer) -> LoadBalancer;
    modify_load_balancer(id: &Id, new: &LoadBalancer) -> LoadBalancer;
    delete_load_balancer(id: &Id) -> ();
    sdn_routes(query: &Query) -> Vec<SdnRoute>;
    create_sdn_route(new: &SdnRoute) -> SdnRoute;
    modify_sdn_route(id: &Id, new: &SdnRoute) -> SdnRoute;
    delete_sdn_route(id: &Id) -> ();
}

/// Returns the first object.
fn first<T>(kind: &'static str, name: &str, objects: Vec<T>) -> Result<T, Error> {
    let name = name.into();
    let missing = || Error::NotFound { kind, name };
    objects.into_iter().next().ok_or_else(missing)
}
