//! The differences between modes.
//!
//! Mode nftables is nearest to the documents, so most lines are of other modes: their rules
//! are those of upstream, which other programs read.

mod iptables;

mod ipvs;

use std::net::SocketAddr;

use proxy_core::Mode;

use crate::fate::Fate;
use crate::flow::Flow;
use crate::oracle::affinity::Previous;
use crate::oracle::frontend::Frontend;
use crate::oracle::owner::Kind;
use crate::oracle::{Expectation, Oracle, Rule, chained, masquerade, node_ports, owner, unused};

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
const EXCEPTIONS: [Exception; 32] = [
    Exception::new(Mode::Nftables, any_cluster_ip,         "the rule that masquerades cluster IPs compares addresses, not ports"),
    Exception::new(Mode::Nftables, node_port_below,        "an address of the node without endpoints leaves a packet to the node port of the same number"),
    Exception::new(Mode::Nftables, node_port_first,        "an address of the node without endpoints is refused like the node port of the same number"),
    Exception::new(Mode::Nftables, translated_to_itself,   "an endpoint that is the cluster IP of its own Service is refused, because the kernel translates nothing"),
    Exception::new(Mode::Iptables, iptables::pass_unused,            "only the ports of Services have rules"),
    Exception::new(Mode::Iptables, iptables::ranges_need_endpoints,  "source ranges are checked on the path to an endpoint, and none exists"),
    Exception::new(Mode::Iptables, iptables::external_ip_first,      "an address that is external IP and load balancer IP has a rule for each, without ranges in the first"),
    Exception::new(Mode::Iptables, iptables::external_address_next,       "an address that is also a cluster IP has a rule for each, and the second one applies without local endpoints for the first"),
    Exception::new(Mode::Iptables, node_port_below,                  "an address of the node without endpoints leaves a packet to the node port of the same number"),
    Exception::new(Mode::Iptables, iptables::localhost,              "node ports are also served on 127.0.0.0/8"),
    Exception::new(Mode::Iptables, iptables::refuse_chained,         "endpoints at addresses of Services are refused by the rules of exactly this address"),
    Exception::new(Mode::Iptables, iptables::health_checks,          "health check ports are open at all addresses of the node"),
    Exception::new(Mode::Iptables, iptables::pass_from_node,         "OUTPUT rejects only cluster IPs"),
    Exception::new(Mode::Iptables, iptables::refuse_on_all_addresses, "a node port without endpoints is refused on all addresses of the node"),
    Exception::new(Mode::Iptables, iptables::node_port_below_ranges, "an address of the node whose ranges refuse a packet leaves it to the node port of the same number"),
    Exception::new(Mode::Iptables, iptables::hairpin_anywhere,       "an endpoint of another node that connects to itself is masqueraded, too"),
    Exception::new(Mode::Ipvs, ipvs::affinity_of_address, "a persistence template belongs to one address of a Service"),
    Exception::new(Mode::Ipvs, ipvs::pass_chained,        "IPVS forwards to endpoints at addresses of Services without another lookup"),
    Exception::new(Mode::Ipvs, ipvs::any_source,          "a virtual server has one list of endpoints for all sources: with policy Local those of the node"),
    Exception::new(Mode::Ipvs, ipvs::all_without_local,   "without endpoints of the node a virtual server has those of all nodes, for pods and processes"),
    Exception::new(Mode::Ipvs, ipvs::internal_without_local, "without endpoints of the node a cluster IP has those of all nodes if the Service has external addresses, and rejects connections otherwise"),
    Exception::new(Mode::Ipvs, ipvs::no_ranges_for_node,  "IPVS forwards packets of the node before the rules that compare ranges"),
    Exception::new(Mode::Ipvs, ipvs::itself_as_source,    "a load balancer IP as its own source is permitted by the address of the node only, not by a range with the IP"),
    Exception::new(Mode::Ipvs, ipvs::source_of_node,      "policy Local preserves the sources of processes of the node, too"),
    Exception::new(Mode::Ipvs, ipvs::node_port_anywhere,  "the number of a node port is masqueraded at all addresses of the node"),
    Exception::new(Mode::Ipvs, ipvs::deliver_bound,       "an endpoint at an address of a Service is the node itself"),
    Exception::new(Mode::Ipvs, ipvs::check_endpoint,      "a packet of the node to an endpoint at an address of a Service is received, and checked with its new destination"),
    Exception::new(Mode::Ipvs, ipvs::pass_unallocated,    "addresses without a Service have no rules"),
    Exception::new(Mode::Ipvs, ipvs::reject_bound,        "other ports of all addresses on kube-ipvs0 are rejected"),
    Exception::new(Mode::Ipvs, ipvs::health_checks,       "health check ports are open at all addresses on kube-ipvs0"),
    Exception::new(Mode::Ipvs, ipvs::hairpin_without_service, "a pod that connects to itself is masqueraded without a Service, too"),
    Exception::new(Mode::Ipvs, ipvs::hairpin_of_node,     "masquerading of an endpoint that connects to itself keeps the port: the first IPv4 address of the node stays the source"),
];

/// Returns what happens to a packet in a mode, and the reasons for differences to the
/// oracle.
pub(crate) fn expected(
    mode: Mode,
    oracle: &Oracle<'_>,
    flow: &Flow,
    previous: Option<&Previous>,
) -> (Expectation, Vec<String>) {
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
            reasons.push(format!("{mode}: {}", exception.reason));
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

    /// Returns what happens at the node port of the same number.
    fn below(&self) -> Option<Expectation> {
        let Self { oracle, flow, .. } = *self;
        let frontend = self.node_port(flow.destination)?;
        let is_served = node_ports::is_served(oracle, flow.destination.ip());
        let refuse = |endpoint, _| chained::refuse(oracle, flow, endpoint);
        let below = oracle.expect_at(Kind::NodePort, frontend, flow, self.previous, refuse);
        is_served.then_some(below)
    }

    fn passed(&self) -> Expectation {
        Expectation::certain(Rule::None, Fate::passed(self.flow.destination))
    }

    /// Returns whether the number of a port is one of health checks.
    fn is_health_check(&self, to: SocketAddr) -> bool {
        let mut frontends = self.oracle.frontends.iter();
        frontends.any(|frontend| {
            let is_of_family = frontend.cluster_ip.is_ipv4() == to.is_ipv4();
            is_of_family && frontend.health_check_port == to.port()
        })
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

fn node_port_below(question: &Question<'_>, expectation: &Expectation) -> Option<Expectation> {
    let below = question.below().filter(Expectation::is_balanced);
    below.filter(|_| expectation.is_address_unserved())
}

fn node_port_first(question: &Question<'_>, expectation: &Expectation) -> Option<Expectation> {
    let below = question.below().filter(|it| !it.is_balanced());
    below.filter(|_| expectation.is_address_unserved())
}

fn translated_to_itself(question: &Question<'_>, expectation: &Expectation) -> Option<Expectation> {
    let Question { oracle, flow, .. } = question;
    let to = flow.destination;
    let leaves = flow.is_from_node() || !oracle.world.node.receives(to.ip(), false);
    let is_refused = leaves && unused::is_cluster_ip(oracle, to.ip()) && expectation.is_balanced();
    let refuse = |fate| match fate {
        Fate::Passed { destination, .. } if destination == to => Fate::Rejected,
        fate => fate,
    };
    is_refused.then(|| Expectation {
        rule: expectation.rule,
        fates: expectation.fates.map(refuse),
    })
}

impl Expectation {
    fn is_balanced(&self) -> bool {
        matches!(self.rule, Rule::Balanced(_))
    }

    /// Returns whether an address without usable endpoints is the reason.
    fn is_address_unserved(&self) -> bool {
        match self.rule {
            Rule::NoEndpoints(kind) | Rule::NoLocalEndpoints(kind) => kind != Kind::NodePort,
            _ => false,
        }
    }
}
