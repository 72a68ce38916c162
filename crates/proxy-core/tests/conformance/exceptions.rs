//! The differences between modes.
//!
//! Mode nftables is nearest to the documents, so most lines are of other modes: their rules
//! are those of upstream, which other programs read.

use std::net::SocketAddr;

use proxy_core::Mode;
use vipline_service_model::NodePortAddresses;

use crate::fate::Fate;
use crate::flow::Flow;
use crate::oracle::affinity::Previous;
use crate::oracle::frontend::Frontend;
use crate::oracle::owner::Kind;
use crate::oracle::{
    Expectation, Oracle, Rule, chained, masquerade, node_ports, owner, unused, verdict,
};

/// A packet, of which a mode does something else than the oracle says.
struct Question<'a> {
    oracle: &'a Oracle<'a>,
    flow: &'a Flow,
    previous: Option<&'a Previous>,
}

/// A difference of a mode.
struct Exception {
    mode: Mode,
    /// Returns what happens instead, or `None` if the difference does not concern the packet.
    instead: fn(&Question<'_>, &Expectation) -> Option<Expectation>,
    reason: &'static str,
}

impl Exception {
    const fn new(
        mode: Mode,
        instead: fn(&Question<'_>, &Expectation) -> Option<Expectation>,
        reason: &'static str,
    ) -> Self {
        Self {
            mode,
            instead,
            reason,
        }
    }
}

/// All differences. A mode without a line behaves like the oracle.
#[rustfmt::skip]
const EXCEPTIONS: [Exception; 11] = [
    Exception::new(Mode::Nftables, any_cluster_ip,         "the rule that masquerades cluster IPs compares addresses, not ports"),
    Exception::new(Mode::Nftables, other_load_balancer_ip, "of the load balancer IPs only the destination itself is a permitted source, which is stricter"),
    Exception::new(Mode::Iptables, pass_unused,            "only the ports of Services have rules"),
    Exception::new(Mode::Iptables, ranges_need_endpoints,  "source ranges are checked on the path to an endpoint, and none exists"),
    Exception::new(Mode::Iptables, external_ip_first,      "an address that is external IP and load balancer IP has a rule for each, without ranges in the first"),
    Exception::new(Mode::Iptables, localhost,              "node ports are also served on 127.0.0.0/8"),
    Exception::new(Mode::Iptables, refuse_chained,         "endpoints at addresses of Services are refused by the rules of exactly this address"),
    Exception::new(Mode::Iptables, pass_from_node,         "OUTPUT rejects only cluster IPs"),
    Exception::new(Mode::Iptables, refuse_on_all_addresses, "a node port without endpoints is refused on all addresses of the node"),
    Exception::new(Mode::Iptables, node_port_below_ranges, "an address of the node whose ranges refuse a packet leaves it to the node port of the same number"),
    Exception::new(Mode::Iptables, hairpin_anywhere,       "an endpoint of another node that connects to itself is masqueraded, too"),
];

/// Returns what happens to a packet in a mode, and the reasons for differences to the
/// oracle.
pub(crate) fn expected(
    mode: Mode,
    oracle: &Oracle<'_>,
    flow: &Flow,
    previous: Option<&Previous>,
) -> (Expectation, Vec<&'static str>) {
    let question = Question {
        oracle,
        flow,
        previous,
    };
    let (mut expectation, mut reasons) = (oracle.expect(flow, previous), Vec::new());
    for exception in EXCEPTIONS.iter().filter(|it| it.mode == mode) {
        let instead = (exception.instead)(&question, &expectation);
        if let Some(instead) = instead.filter(|it| *it != expectation) {
            expectation = instead;
            reasons.push(exception.reason);
        }
    }
    (expectation, reasons)
}

/// Number of differences.
pub(crate) const COUNT: usize = EXCEPTIONS.len();

impl Question<'_> {
    fn owner(&self) -> Option<(Kind, &Frontend)> {
        owner::of(self.oracle, self.flow)
    }

    /// Returns whether the node receives packets to the destination.
    fn is_received(&self) -> bool {
        let node = &self.oracle.world.node;
        node.receives(self.flow.destination.ip(), self.flow.is_from_node())
    }

    fn passed(&self) -> Expectation {
        Expectation::certain(Rule::None, Fate::passed(self.flow.destination))
    }

    /// Returns the service port with the node port, at any address.
    fn node_port(&self, destination: SocketAddr) -> Option<&Frontend> {
        let all = self.oracle.frontends.iter();
        let own = all.filter(|each| {
            each.node_port == destination.port()
                && each.protocol == self.flow.protocol
                && each.cluster_ip.is_ipv4() == destination.is_ipv4()
        });
        own.min_by_key(|each| &each.precedence)
    }

    /// Returns what happens at the node port of the same number, if it has endpoints.
    fn below(&self) -> Option<Expectation> {
        let Self { oracle, flow, .. } = *self;
        let frontend = self.node_port(flow.destination)?;
        let is_served = node_ports::is_served(oracle, flow.destination.ip());
        let refuse = |endpoint, _| chained::refuse(oracle, flow, endpoint);
        let below = oracle.expect_at(Kind::NodePort, frontend, flow, self.previous, refuse);
        let is_balanced = matches!(below.rule, Rule::Balanced(_));
        (is_served && is_balanced).then_some(below)
    }

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

/// Changes the ends of connections to endpoints.
fn masqueraded_if(expectation: &Expectation, applies: impl Fn(SocketAddr) -> bool) -> Expectation {
    let change = |fate| match fate {
        Fate::Passed { destination, .. } if applies(destination) => Fate::Passed {
            destination,
            is_masqueraded: true,
        },
        fate => fate,
    };
    Expectation {
        rule: expectation.rule,
        fates: expectation.fates.map(change),
    }
}

fn any_cluster_ip(question: &Question<'_>, expectation: &Expectation) -> Option<Expectation> {
    let Question { oracle, flow, .. } = question;
    let is_marked = matches!(expectation.rule, Rule::Balanced(kind) if kind != Kind::ClusterIp)
        && unused::is_cluster_ip(oracle, flow.destination.ip())
        && masquerade::is_cluster_ip_marked(oracle, flow);
    let leaves = |endpoint: SocketAddr| {
        flow.is_from_node() || !oracle.world.node.receives(endpoint.ip(), false)
    };
    is_marked.then(|| masqueraded_if(expectation, leaves))
}

fn other_load_balancer_ip(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let Flow {
        source,
        destination,
        ..
    } = *question.flow;
    let ranges = &frontend.source_ranges;
    let is_refused = kind == Kind::LoadBalancerIp
        && expectation.rule != Rule::SourceRanges
        && !ranges.is_empty()
        && !ranges.iter().any(|range| range.contains(&source))
        && source != destination.ip();
    is_refused.then(|| Expectation::certain(Rule::SourceRanges, Fate::Dropped))
}

fn pass_unused(question: &Question<'_>, expectation: &Expectation) -> Option<Expectation> {
    let is_unused = [Rule::UnusedPort, Rule::Unallocated].contains(&expectation.rule);
    is_unused.then(|| question.passed())
}

fn ranges_need_endpoints(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let is_unusable = !frontend.lists.is_any_usable;
    (expectation.rule == Rule::SourceRanges && is_unusable)
        .then(|| Expectation::certain(Rule::NoEndpoints(kind), Fate::Rejected))
}

fn external_ip_first(question: &Question<'_>, expectation: &Expectation) -> Option<Expectation> {
    let (kind, frontend) = question.owner()?;
    let is_both = frontend
        .external_ips
        .contains(&question.flow.destination.ip());
    let at = || question.balanced(kind, frontend);
    (expectation.rule == Rule::SourceRanges && is_both).then(at)
}

fn localhost(question: &Question<'_>, _: &Expectation) -> Option<Expectation> {
    let Question { oracle, flow, .. } = question;
    let (config, ip) = (&oracle.world.config, flow.destination.ip());
    let is_served = config.iptables.localhost_node_ports
        && config.node_port_addresses != NodePortAddresses::Primary
        && node_ports::is_selected(oracle, ip);
    if !is_served || !ip.is_loopback() || ip.is_ipv6() {
        return None;
    }
    let frontend = question.node_port(flow.destination)?;
    Some(question.balanced(Kind::NodePort, frontend))
}

fn refuse_chained(question: &Question<'_>, expectation: &Expectation) -> Option<Expectation> {
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

fn pass_from_node(question: &Question<'_>, expectation: &Expectation) -> Option<Expectation> {
    let is_external = matches!(
        expectation.rule,
        Rule::NoEndpoints(Kind::LoadBalancerIp | Kind::ExternalIp)
    );
    let leaves = question.flow.is_from_node() && !question.is_received();
    (is_external && leaves).then(|| question.passed())
}

fn refuse_on_all_addresses(
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

fn node_port_below_ranges(
    question: &Question<'_>,
    expectation: &Expectation,
) -> Option<Expectation> {
    let is_refused = expectation.rule == Rule::SourceRanges;
    question.below().filter(|_| is_refused)
}

fn hairpin_anywhere(question: &Question<'_>, expectation: &Expectation) -> Option<Expectation> {
    let Question { oracle, flow, .. } = question;
    let is_itself = |endpoint: SocketAddr| {
        let leaves = flow.is_from_node() || !oracle.world.node.receives(endpoint.ip(), false);
        endpoint.ip() == flow.source && leaves
    };
    matches!(expectation.rule, Rule::Balanced(_)).then(|| masqueraded_if(expectation, is_itself))
}
