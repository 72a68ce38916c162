//! Differences of mode iptables.

use std::net::SocketAddr;

use vipline_service_model::{NodePortAddresses, Transport};

use super::{Question, masqueraded_if};
use crate::fate::Fate;
use crate::oracle::frontend::Frontend;
use crate::oracle::owner::Kind;
use crate::oracle::{Expectation, Rule, node_ports, owner, source_ranges, verdict};

impl Question<'_> {
    /// Returns what happens at an address of a service port in mode iptables.
    fn balanced(&self, kind: Kind, frontend: &Frontend) -> Expectation {
        let refuse = |endpoint: SocketAddr, is_marked| {
            let is_itself = endpoint.ip() == self.flow.source;
            refuse_in_iptables(self, endpoint, is_marked || is_itself)
        };
        self.oracle
            .expect_at(kind, frontend, self.flow, self.previous, refuse)
    }
}

pub(super) fn pass_unused(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let is_unused = [Rule::UnusedPort, Rule::Unallocated].contains(&expectation.rule);
    is_unused.then(|| question.passed())
}

pub(super) fn ranges_need_endpoints(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let is_unusable = !frontend.lists.is_any_usable;
    (expectation.rule == Rule::SourceRanges && is_unusable)
        .then(|| Expectation::certain(Rule::NoEndpoints(kind), Fate::Rejected))
}

pub(super) fn external_ip_first(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let is_both = frontend
        .external_ips
        .contains(&question.flow.destination.ip());
    let is_refused = expectation.rule == Rule::SourceRanges;
    let first = question.balanced(kind, frontend);
    (is_refused && is_both && first.rule == Rule::Balanced(kind)).then_some(first)
}

pub(super) fn external_address_next(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let is_refused = kind == Kind::ClusterIp && expectation.rule == Rule::NoLocalEndpoints(kind);
    let ip = question.flow.destination.ip();
    let next = match () {
        () if frontend.external_ips.contains(&ip) => Kind::ExternalIp,
        () if frontend.load_balancer_ips.contains(&ip) => Kind::LoadBalancerIp,
        () => return None,
    };
    let in_no_range = source_ranges::refuse(question.oracle, frontend, next, question.flow);
    is_refused.then(|| match in_no_range {
        true => Expectation::certain(Rule::SourceRanges, Fate::Dropped),
        false => question.balanced(next, frontend),
    })
}

pub(super) fn localhost(question: &Question<'_>, _: &Expectation) -> Option<Expectation> {
    let Question { oracle, flow, .. } = question;
    let (config, ip) = (&oracle.world.config, flow.destination.ip());
    let is_served = config.iptables.localhost_node_ports
        && config.engine.node_port_addresses != NodePortAddresses::Primary
        && node_ports::is_selected(oracle, ip);
    if !is_served || !ip.is_loopback() || ip.is_ipv6() {
        return None;
    }
    let frontend = question.node_port(flow.destination)?;
    Some(question.balanced(Kind::NodePort, frontend))
}

pub(super) fn refuse_chained(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let is_balanced = expectation.rule == Rule::Balanced(kind);
    is_balanced.then(|| question.balanced(kind, frontend))
}

/// Returns how mode iptables refuses a connection to an endpoint, if it does.
fn refuse_in_iptables(
    question: &Question<'_>,
    endpoint: SocketAddr,
    is_marked: bool,
) -> Option<Fate> {
    let Question { oracle, flow, .. } = question;
    let is_received = oracle
        .world
        .node
        .receives(endpoint.ip(), flow.is_from_node());
    let is_forwarded = !flow.is_from_node() && !is_received;
    let owner = owner::of(oracle, &flow.to(endpoint));
    let is_restricted =
        |frontend: &Frontend| !frontend.source_ranges.is_empty() && frontend.lists.is_any_usable;
    match owner {
        Some((Kind::LoadBalancerIp, frontend)) if is_restricted(frontend) => {
            return Some(Fate::Dropped);
        }
        _ if is_forwarded && is_marked => return None,
        Some((Kind::ClusterIp, frontend)) if !is_received || flow.is_from_node() => {
            return verdict(frontend, Kind::ClusterIp);
        }
        Some((kind @ (Kind::LoadBalancerIp | Kind::ExternalIp), frontend))
            if is_forwarded || is_received =>
        {
            if let Some(fate) = verdict(frontend, kind) {
                return Some(fate);
            }
        }
        _ => {}
    }
    let is_local = oracle.world.node.is_local(endpoint.ip());
    let of_node_port = question.node_port(endpoint).filter(|_| is_local);
    of_node_port.and_then(|frontend| verdict(frontend, Kind::NodePort))
}

pub(super) fn health_checks(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let is_refused = matches!(
        expectation.rule,
        Rule::NoEndpoints(Kind::LoadBalancerIp | Kind::ExternalIp)
            | Rule::NoLocalEndpoints(Kind::LoadBalancerIp | Kind::ExternalIp)
    );
    let is_health_check = question.flow.protocol == Transport::Tcp
        && question.is_health_check(question.flow.destination);
    let is_open = question.is_received() && is_health_check;
    (is_refused && is_open).then(|| question.passed())
}

pub(super) fn pass_from_node(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let is_external = matches!(
        expectation.rule,
        Rule::NoEndpoints(Kind::LoadBalancerIp | Kind::ExternalIp)
    );
    let leaves = question.flow.is_from_node() && !question.is_received();
    (is_external && leaves).then(|| question.passed())
}

pub(super) fn refuse_on_all_addresses(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let destination = question.flow.destination;
    let is_local = question.oracle.world.node.is_local(destination.ip());
    let frontend = question.node_port(destination).filter(|_| is_local)?;
    let fate = verdict(frontend, Kind::NodePort)?;
    let rule = match fate {
        Fate::Dropped => Rule::NoLocalEndpoints(Kind::NodePort),
        _ => Rule::NoEndpoints(Kind::NodePort),
    };
    (expectation.rule == Rule::None).then(|| Expectation::certain(rule, fate))
}

pub(super) fn node_port_below_ranges(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let is_refused = expectation.rule == Rule::SourceRanges;
    let below = question.below().filter(Expectation::is_balanced);
    below.filter(|_| is_refused)
}

pub(super) fn hairpin_anywhere(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let Question { oracle, flow, .. } = question;
    let is_itself = |endpoint: SocketAddr| {
        let leaves = flow.is_from_node() || !oracle.world.node.receives(endpoint.ip(), false);
        endpoint.ip() == flow.source && leaves
    };
    matches!(expectation.rule, Rule::Balanced(_)).then(|| masqueraded_if(expectation, is_itself))
}
