//! Objects of one service port.

mod external;

use vipline_iptables::matches::{Probability, Recent, Statistic};
use vipline_iptables::targets::{Reject, Target};
use vipline_iptables::{Object, Rule};
use vipline_service_model::{Route, ServicePort};

use super::endpoint::{self, EndpointChain};
use super::names::{self, FILTER, NAT, Names};
use super::rules::not_from_pods;
use super::service_port::Port;
use crate::Fragment;
use crate::MasqueradedClients;
use crate::{Address, AddressKind, Context, Iptables, PortObjects};

/// Returns the objects of a service port.
pub(super) fn objects(cx: &Context, settings: &Iptables, of: &ServicePort) -> PortObjects<Object> {
    let port = Port {
        cx,
        settings,
        of,
        names: Names::new(&of.name),
    };
    let mut objects = Objects::default();
    let endpoint_chains = endpoint::endpoint_chains(&port, &of.reachable());
    let chains = endpoint_chains
        .iter()
        .map(|endpoint_chain| endpoint::destination(&port, endpoint_chain));
    objects.0.own.extend(chains);
    let routes = [Route::Cluster, Route::Local].into_iter();
    let chains = routes.filter_map(|route| endpoints(&port, route, &endpoint_chains));
    objects.0.own.extend(chains);
    cluster_ip(&port, &mut objects);
    external::add(&port, &mut objects);
    objects.0.into()
}

/// Objects of a service port during planning.
#[derive(Debug, Default)]
struct Objects(Fragment<Object>);

impl Objects {
    /// Adds an object that the service port has only if its claim to the address wins.
    fn claim(&mut self, kind: AddressKind, address: Address, mut object: Object) {
        let claimed = self.0.at(kind, address);
        if let Object::SharedRule(entry) = &mut object {
            // An external IP may equal a load balancer IP.
            let is_copy = |held: &&Object| {
                matches!(held, Object::SharedRule(held)
                    if (held.table, held.chain, &held.rule) == (entry.table, entry.chain, &entry.rule))
            };
            let copies = claimed.iter().filter(is_copy).count();
            entry.occurrence = u32::try_from(copies).expect("the number of copies fits in 32 bits");
        }
        claimed.push(object);
    }
}

/// ```iptables
/// -t nat -A KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m comment --comment "shop/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-67NZLRHBNDSAWJRO
/// ```
///
/// Routes the cluster IP by the internal traffic policy.
fn cluster_ip(port: &Port<'_>, out: &mut Objects) {
    let of = port.of;
    let rule = |comment| port.at(of.cluster_ip, comment);
    let jump = port.chain_of(of.internal).map(|to| {
        let rule = rule(port.comment("cluster IP")).with_jump(to);
        port.entry(NAT, names::SERVICES, rule)
    });
    let refusal = verdict(of.internal).map(|(words, target)| {
        let rule = rule(port.comment(words)).with_target(target);
        port.entry(FILTER, names::SERVICES, rule)
    });
    let address = Address::ip(of, of.cluster_ip);
    for object in jump.into_iter().chain(refusal) {
        out.claim(AddressKind::ClusterIp, address, object);
    }
}

/// ```iptables
/// -t filter -A KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m comment --comment "shop/web:http has no endpoints" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
/// -t filter -A KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m comment --comment "shop/web:http has no local endpoints" -m tcp --dport 80 -j DROP
/// ```
///
/// Rejects connections without endpoints. Drops connections if only other nodes have
/// endpoints, so that clients may retry by way of another node.
fn verdict(route: Route) -> Option<(&'static str, Target<'static>)> {
    match route {
        Route::Cluster | Route::Local => None,
        Route::Drop => Some(("has no local endpoints", Target::Drop)),
        Route::Reject => Some(("has no endpoints", Reject::Default.into())),
    }
}

/// ```iptables
/// -t nat -A KUBE-SVC-67NZLRHBNDSAWJRO ! -s 10.0.0.0/14 -d 10.96.0.20/32 -p tcp -m comment --comment "shop/web:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ
/// ```
///
/// Marks traffic from outside the pod network for masquerading, because endpoints must
/// reply by way of this node.
fn masquerade<'a>(port: &Port<'_>) -> Option<Rule<'a>> {
    let rule = port.at(port.of.cluster_ip, port.comment("cluster IP"));
    let rule = match port.cx.masqueraded_clients() {
        MasqueradedClients::All => rule,
        MasqueradedClients::Outside(pods) => not_from_pods(rule, pods),
        MasqueradedClients::None => return None,
    };
    Some(rule.with_jump(names::chain(names::MARK_MASQ)))
}

/// Returns the chain that selects one of the endpoints of a route, or `None` without
/// endpoints.
fn endpoints(port: &Port<'_>, route: Route, endpoint_chains: &[EndpointChain]) -> Option<Object> {
    let name = port.chain_of(route)?;
    let endpoints = port.of.endpoints(route);
    if endpoints.is_empty() {
        return None;
    }
    let is_chosen =
        |endpoint_chain: &&EndpointChain| endpoints.binary_search(&endpoint_chain.endpoint).is_ok();
    let chosen: Vec<_> = endpoint_chains.iter().filter(is_chosen).collect();
    let is_internal = port.of.internal == route;
    let masquerade = is_internal.then(|| masquerade(port)).flatten();
    let rules = masquerade.into_iter();
    let rules = rules.chain(affinity(port, &chosen));
    Some(port.chain(name, rules.chain(balance(port, &chosen))))
}

/// ```iptables
/// -t nat -A KUBE-SVC-67NZLRHBNDSAWJRO -m comment --comment "shop/web:http -> 10.1.0.5:8080" -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-UZBLB3XX2HRLVOJ5 --mask 255.255.255.255 --rsource -j KUBE-SEP-UZBLB3XX2HRLVOJ5
/// -t nat -A KUBE-SVC-67NZLRHBNDSAWJRO -m comment --comment "shop/web:http -> 10.2.0.7:8080" -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-CPFU5WO3ALLGOW3G --mask 255.255.255.255 --rsource -j KUBE-SEP-CPFU5WO3ALLGOW3G
/// ```
///
/// Sends a client to its last endpoint.
fn affinity<'a>(
    port: &Port<'_>,
    endpoint_chains: &[&'a EndpointChain],
) -> impl Iterator<Item = Rule<'a>> {
    let seconds = port.of.affinity;
    let endpoint_chains = endpoint_chains.iter().filter(move |_| seconds.is_some());
    endpoint_chains.map(move |endpoint_chain| {
        let name = endpoint_chain.chain.to_string();
        let was_here = Recent::check(name).with_seconds(seconds.unwrap_or_default());
        to_endpoint(port, endpoint_chain)
            .with_match(was_here.with_reap())
            .with_jump(endpoint_chain.chain)
    })
}

/// ```iptables
/// -t nat -A KUBE-SVC-67NZLRHBNDSAWJRO -m comment --comment "shop/web:http -> 10.1.0.5:8080" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-UZBLB3XX2HRLVOJ5
/// -t nat -A KUBE-SVC-67NZLRHBNDSAWJRO -m comment --comment "shop/web:http -> 10.2.0.7:8080" -j KUBE-SEP-CPFU5WO3ALLGOW3G
/// ```
///
/// Selects an endpoint at random with equal probability. With n endpoints left, the rule
/// matches with probability 1/n.
fn balance<'a>(
    port: &Port<'_>,
    endpoint_chains: &[&'a EndpointChain],
) -> impl Iterator<Item = Rule<'a>> {
    let left = (1..=u32::try_from(endpoint_chains.len())
        .expect("the number of endpoints fits in 32 bits"))
        .rev();
    left.zip(endpoint_chains)
        .map(move |(left, endpoint_chain)| {
            let rule = to_endpoint(port, endpoint_chain);
            let rule = match left {
                1 => rule,
                _ => rule.with_match(Statistic::random(Probability::one_in(left))),
            };
            rule.with_jump(endpoint_chain.chain)
        })
}

/// Returns the start of a rule that jumps to an endpoint.
fn to_endpoint<'a>(port: &Port<'_>, endpoint_chain: &EndpointChain) -> Rule<'a> {
    port.remark(Rule::new(), || {
        port.comment(&format!("-> {}", endpoint_chain.text))
    })
}
