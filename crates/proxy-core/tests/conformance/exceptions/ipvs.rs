//! Differences of mode ipvs.

use std::net::{IpAddr, SocketAddr};

use vipline_service_model::Transport;

use super::{Question, masqueraded_if};
use crate::fate::Fate;
use crate::oracle::frontend::Frontend;
use crate::oracle::owner::Kind;
use crate::oracle::policy::Route;
use crate::oracle::{Expectation, Rule, affinity, hairpin, owner, policy, source_ranges};

impl Question<'_> {
    /// Returns whether the interface `kube-ipvs0` has an address.
    fn is_bound(&self, ip: IpAddr) -> bool {
        let is_elsewhere = self.oracle.world.node.is_local(ip);
        self.oracle.frontends.iter().any(|frontend| {
            let external = [&frontend.external_ips, &frontend.load_balancer_ips];
            let mut external = external.into_iter().flatten();
            frontend.cluster_ip == ip || !is_elsewhere && external.any(|it| *it == ip)
        })
    }

    /// Returns whether a packet to an endpoint leaves the node or the process that sends it.
    fn leaves(&self, endpoint: SocketAddr) -> bool {
        let ip = endpoint.ip();
        let is_received = self.is_bound(ip) || self.oracle.world.node.receives(ip, false);
        self.flow.is_from_node() || !is_received
    }

    /// Returns how the node refuses a packet at an address, if it does.
    fn refused(&self, to: SocketAddr) -> Option<Fate> {
        let owner = owner::of(self.oracle, &self.flow.to(to));
        match owner.filter(|(kind, _)| *kind != Kind::NodePort) {
            Some((kind, frontend)) => {
                let is_refused = source_ranges::refuse(self.oracle, frontend, kind, self.flow);
                is_refused.then_some(Fate::Dropped)
            }
            None => {
                let is_open = !self.is_bound(to.ip()) || self.is_health_check(to);
                (!is_open).then_some(Fate::Rejected)
            }
        }
    }

    /// Returns whether a connection to an endpoint is one of the endpoint to itself.
    fn is_hairpin(&self, address: SocketAddr) -> bool {
        let is_local = true;
        hairpin::applies(
            self.oracle,
            self.flow,
            &policy::Endpoint { address, is_local },
        )
    }

    /// Returns what a virtual server does with the endpoints of a route.
    fn scheduled(&self, kind: Kind, frontend: &Frontend, route: Route) -> Expectation {
        let to = self.flow.destination;
        let endpoints = frontend.lists.of(route);
        let own = self.previous.filter(|previous| previous.to == to);
        match affinity::restrict(frontend, endpoints, own) {
            [] => Expectation::certain(Rule::NoEndpoints(kind), Fate::Rejected),
            some => (self.oracle).balance(kind, frontend, self.flow, some, |_, _| None),
        }
    }

    /// Returns what the virtual server of an external address or node port does.
    fn scheduled_outside(&self, kind: Kind, frontend: &Frontend) -> Expectation {
        let is_local = frontend.is_external_local && !frontend.lists.local.is_empty();
        let route = if is_local {
            Route::Local
        } else {
            Route::Cluster
        };
        self.scheduled(kind, frontend, route)
    }
}

pub(super) fn affinity_of_address(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let previous = question.previous?;
    let is_other = previous.to != question.flow.destination;
    let is_balanced = matches!(expectation.rule, Rule::Balanced(_));
    (is_other && is_balanced).then(|| question.oracle.expect(question.flow, None))
}

pub(super) fn pass_chained(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let route = policy::route(question.oracle, frontend, kind, question.flow);
    let is_balanced = matches!(expectation.rule, Rule::Balanced(_));
    is_balanced.then(|| question.scheduled(kind, frontend, route))
}

pub(super) fn any_source(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let is_external = expectation.rule == Rule::Balanced(kind) && kind != Kind::ClusterIp;
    is_external.then(|| question.scheduled_outside(kind, frontend))
}

pub(super) fn all_without_local(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let is_without = expectation.rule == Rule::NoLocalEndpoints(kind) && kind != Kind::ClusterIp;
    is_without.then(|| question.scheduled_outside(kind, frontend))
}

pub(super) fn internal_without_local(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let is_without = expectation.rule == Rule::NoLocalEndpoints(Kind::ClusterIp);
    is_without.then(|| question.scheduled(kind, frontend, Route::Cluster))
}

pub(super) fn no_ranges_for_node(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let is_spared = expectation.rule == Rule::SourceRanges && question.flow.is_from_node();
    is_spared.then(|| question.scheduled_outside(kind, frontend))
}

pub(super) fn itself_as_source(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let source = question.flow.source;
    let is_itself = kind == Kind::LoadBalancerIp && question.flow.destination.ip() == source;
    let is_restricted = is_itself && !frontend.source_ranges.is_empty();
    let drop = |fate| match fate {
        Fate::Passed { destination, .. } if question.leaves(destination) => Fate::Dropped,
        fate => fate,
    };
    let is_node_permitted = source_ranges::permit_node(question.oracle, frontend);
    (is_restricted && !is_node_permitted).then(|| Expectation {
        rule: expectation.rule,
        fates: expectation.fates.map(drop),
    })
}

pub(super) fn source_of_node(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let is_kept = kind != Kind::ClusterIp && frontend.is_external_local;
    let keep = |fate| match fate {
        Fate::Passed { destination, .. } if !question.is_hairpin(destination) => {
            Fate::passed(destination)
        }
        fate => fate,
    };
    is_kept.then(|| Expectation {
        rule: expectation.rule,
        fates: expectation.fates.map(keep),
    })
}

pub(super) fn node_port_anywhere(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let flow = question.flow;
    let node = &question.oracle.world.node;
    let (to, kind) = (
        flow.destination.ip(),
        question.owner().map(|(kind, _)| kind),
    );
    let frontend = question.node_port(flow.destination)?;
    let is_decided = matches!(kind, Some(Kind::ExternalIp | Kind::NodePort));
    let is_here = node.is_local(to) || question.is_bound(to);
    let is_listed = flow.protocol != Transport::Sctp && !flow.source.is_loopback();
    let is_marked = is_listed && is_here && !is_decided && !frontend.is_external_local;
    is_marked.then(|| masqueraded_if(expectation, |endpoint| question.leaves(endpoint)))
}

pub(super) fn deliver_bound(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let keep = |fate| match fate {
        Fate::Passed { destination, .. } if question.is_bound(destination.ip()) => {
            Fate::passed(destination)
        }
        fate => fate,
    };
    let is_received = !question.flow.is_from_node();
    is_received.then(|| Expectation {
        rule: expectation.rule,
        fates: expectation.fates.map(keep),
    })
}

pub(super) fn check_endpoint(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let check = |fate| match fate {
        Fate::Passed { destination, .. } => question.refused(destination).unwrap_or(fate),
        fate => fate,
    };
    let is_scheduled = matches!(expectation.rule, Rule::Balanced(_));
    (is_scheduled && question.flow.is_from_node()).then(|| Expectation {
        rule: expectation.rule,
        fates: expectation.fates.map(check),
    })
}

pub(super) fn pass_unallocated(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    (expectation.rule == Rule::Unallocated).then(|| question.passed())
}

pub(super) fn reject_bound(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let is_unowned = expectation.rule == Rule::None && question.owner().is_none();
    let is_bound = is_unowned && question.is_bound(question.flow.destination.ip());
    is_bound.then(|| Expectation::certain(Rule::UnusedPort, Fate::Rejected))
}

pub(super) fn health_checks(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let is_health_check = question.is_health_check(question.flow.destination);
    let is_unused = expectation.rule == Rule::UnusedPort;
    (is_unused && is_health_check).then(|| question.passed())
}

pub(super) fn hairpin_without_service(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let flow = question.flow;
    let is_forwarded = !flow.is_from_node() && question.leaves(flow.destination);
    let is_hairpin = is_forwarded && question.is_hairpin(flow.destination);
    is_hairpin.then(|| masqueraded_if(expectation, |endpoint| endpoint == flow.destination))
}

pub(super) fn hairpin_of_node(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let keep = |fate| match fate {
        Fate::Passed { destination, .. } if question.is_hairpin(destination) => {
            Fate::passed(destination)
        }
        fate => fate,
    };
    // The address of masqueraded packets that leave through `lo`.
    let mut own = question.oracle.world.node.addresses().into_iter();
    let first = own.find(IpAddr::is_ipv4);
    let is_kept = question.flow.is_from_node() && first == Some(question.flow.source);
    is_kept.then(|| Expectation {
        rule: expectation.rule,
        fates: expectation.fates.map(keep),
    })
}
