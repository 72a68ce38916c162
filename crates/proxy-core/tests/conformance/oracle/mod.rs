//! An oracle: the ends of a packet, from the documents of kube-proxy.
//!
//! Each file states one concern in sentences and implements them. The oracle shares only
//! the objects of the API with the proxy.

pub(crate) mod affinity;

pub(crate) mod candidate;

pub(crate) mod chained;

pub(crate) mod detection;

pub(crate) mod frontend;

pub(crate) mod hairpin;

pub(crate) mod masquerade;

pub(crate) mod node_ports;

pub(crate) mod owner;

pub(crate) mod policy;

pub(crate) mod source_ranges;

pub(crate) mod terminating;

pub(crate) mod text;

pub(crate) mod topology;

pub(crate) mod unused;

use std::net::SocketAddr;

use vipline_service_model::ipnet::IpNet;

use self::affinity::Previous;
use self::frontend::Frontend;
use self::owner::Kind;
use crate::fate::{Fate, Fates};
use crate::flow::Flow;
use crate::world::World;

/// A world, as the documents describe it.
#[derive(Debug)]
pub(crate) struct Oracle<'a> {
    pub(crate) world: &'a World,
    pub(crate) frontends: Vec<Frontend>,
    /// The networks of cluster IPs.
    pub(crate) cidrs: Vec<IpNet>,
}

/// The rule that decides.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Rule {
    /// An endpoint gets the connection.
    Balanced(Kind),
    /// The source is in no range.
    SourceRanges,
    /// No endpoint is usable.
    NoEndpoints(Kind),
    /// The policy allows no usable endpoint.
    NoLocalEndpoints(Kind),
    /// A cluster IP lacks the port.
    UnusedPort,
    /// No Service has the cluster IP.
    Unallocated,
    /// The packet does not concern Services.
    None,
}

/// The ends of a packet, and the rule that decided.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expectation {
    pub(crate) rule: Rule,
    pub(crate) fates: Fates,
}

impl<'a> Oracle<'a> {
    /// Reads the objects of a world.
    pub(crate) fn new(world: &'a World) -> Self {
        let cidrs = world.cidrs.iter().flat_map(|cidr| &cidr.spec.cidrs);
        Self {
            world,
            frontends: frontend::all(world),
            cidrs: cidrs.filter_map(|cidr| text::network(cidr)).collect(),
        }
    }

    /// Returns what happens to a packet of a client that may have a previous connection.
    pub(crate) fn expect(&self, flow: &Flow, previous: Option<&Previous>) -> Expectation {
        let Some((kind, frontend)) = owner::of(self, flow) else {
            return unused::expect(self, flow);
        };
        let is_refused = source_ranges::refuse(self, frontend, kind, flow);
        let refuse = |endpoint, _| chained::refuse(self, flow, endpoint);
        match is_refused {
            true => Expectation::certain(Rule::SourceRanges, Fate::Dropped),
            false => self.expect_at(kind, frontend, flow, previous, refuse),
        }
    }

    /// Returns what happens to a packet to an address of a service port. `refuse` returns
    /// how a connection to an endpoint is refused, if it is masqueraded or not.
    pub(crate) fn expect_at(
        &self,
        kind: Kind,
        frontend: &Frontend,
        flow: &Flow,
        previous: Option<&Previous>,
        refuse: impl Fn(SocketAddr, bool) -> Option<Fate>,
    ) -> Expectation {
        let route = policy::route(self, frontend, kind, flow);
        let endpoints = frontend.lists.of(route);
        if endpoints.is_empty() {
            return match frontend.lists.is_any_usable {
                true => Expectation::certain(Rule::NoLocalEndpoints(kind), Fate::Dropped),
                false => Expectation::certain(Rule::NoEndpoints(kind), Fate::Rejected),
            };
        }
        let endpoints = affinity::restrict(frontend, endpoints, previous);
        self.balance(kind, frontend, flow, endpoints, refuse)
    }

    /// Returns what happens to a packet that one of some endpoints gets.
    pub(crate) fn balance(
        &self,
        kind: Kind,
        frontend: &Frontend,
        flow: &Flow,
        endpoints: &[policy::Endpoint],
        refuse: impl Fn(SocketAddr, bool) -> Option<Fate>,
    ) -> Expectation {
        let fate = |endpoint: &policy::Endpoint| {
            let is_masqueraded = masquerade::applies(self, frontend, kind, flow, endpoint);
            refuse(endpoint.address, is_masqueraded).unwrap_or(Fate::Passed {
                destination: endpoint.address,
                is_masqueraded,
            })
        };
        Expectation {
            rule: Rule::Balanced(kind),
            fates: Fates::equal(endpoints.iter().map(fate).collect()),
        }
    }
}

impl Expectation {
    /// Creates an expectation with one end.
    pub(crate) fn certain(rule: Rule, fate: Fate) -> Self {
        Self {
            rule,
            fates: Fates::certain(fate),
        }
    }
}

/// Returns how connections from outside to an address of a kind are refused, if they are.
pub(crate) fn verdict(frontend: &Frontend, kind: Kind) -> Option<Fate> {
    let is_local = match kind {
        Kind::ClusterIp => frontend.is_internal_local,
        _ => frontend.is_external_local,
    };
    let route = match is_local {
        true => policy::Route::Local,
        false => policy::Route::Cluster,
    };
    match (frontend.lists.of(route), frontend.lists.is_any_usable) {
        ([], true) => Some(Fate::Dropped),
        ([], false) => Some(Fate::Rejected),
        _ => None,
    }
}
