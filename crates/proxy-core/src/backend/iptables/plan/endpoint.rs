//! Objects of one endpoint of a service port: a chain with the DNAT rule.

use vipline_iptables::matches::{Match, Recent};
use vipline_iptables::targets::Dnat;
use vipline_iptables::{ChainName, Object, Rule};
use vipline_service_model::Endpoint;

use super::names::{self, NAT};
use super::rules::chain;
use super::service_port::Port;

/// An endpoint and its chain.
#[derive(Debug)]
pub(super) struct EndpointChain {
    pub(super) endpoint: Endpoint,
    /// The sort key of upstream: `10.1.0.5:8080`.
    pub(super) text: String,
    pub(super) chain: ChainName,
}

/// Returns the endpoints with their chains, in the order of the rules.
pub(super) fn endpoint_chains(port: &Port<'_>, endpoints: &[Endpoint]) -> Vec<EndpointChain> {
    let endpoint_chain = |endpoint: &Endpoint| EndpointChain {
        endpoint: *endpoint,
        text: endpoint.to_string(),
        chain: port.names.endpoint(endpoint),
    };
    let mut endpoint_chains: Vec<_> = endpoints.iter().map(endpoint_chain).collect();
    endpoint_chains.sort_unstable_by(|one, other| one.text.cmp(&other.text));
    endpoint_chains
}

/// Returns the chain of an endpoint.
pub(super) fn destination(port: &Port<'_>, endpoint_chain: &EndpointChain) -> Object {
    let rules = [hairpin(port, endpoint_chain), dnat(port, endpoint_chain)];
    chain(port.cx.family, NAT, endpoint_chain.chain, rules)
}

/// ```iptables
/// -t nat -A KUBE-SEP-UZBLB3XX2HRLVOJ5 -s 10.1.0.5/32 -m comment --comment "shop/web:http" -j KUBE-MARK-MASQ
/// ```
///
/// Masquerades connections of a pod to itself. Otherwise the pod would see its own
/// address as the client and reply without passing the node.
fn hairpin<'a>(port: &'a Port<'_>, endpoint_chain: &EndpointChain) -> Rule<'a> {
    let rule = Rule::new().with_source(endpoint_chain.endpoint.addr);
    port.remark(rule, || port.names.port.clone())
        .with_jump(names::chain(names::MARK_MASQ))
}

/// ```iptables
/// -t nat -A KUBE-SEP-UZBLB3XX2HRLVOJ5 -p tcp -m comment --comment "shop/web:http" -m tcp -j DNAT --to-destination 10.1.0.5:8080
/// -t nat -A KUBE-SEP-UZBLB3XX2HRLVOJ5 -p tcp -m comment --comment "shop/web:http" -m recent --set --name KUBE-SEP-UZBLB3XX2HRLVOJ5 --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.1.0.5:8080
/// ```
///
/// Translates the destination to the endpoint. With session affinity, also records the
/// client.
fn dnat<'a>(port: &'a Port<'_>, endpoint_chain: &EndpointChain) -> Rule<'a> {
    let rule = Rule::new().with_protocol(port.of.protocol);
    let mut rule = port.remark(rule, || port.names.port.clone());
    if port.of.affinity.is_some() {
        rule = rule.with_match(Recent::set(endpoint_chain.chain.as_str().to_owned()));
    }
    let Endpoint { addr, port: to, .. } = endpoint_chain.endpoint;
    rule.with_match(Match::any_port(port.of.protocol))
        .with_target(Dnat::to(addr).with_ports(to))
}
