//! Objects that do not depend on Services: table, sets, chains and rules.

pub(super) mod affinity;

mod checks;

mod dispatch;

mod masquerading;

use ipnet::IpNet;
use vipline_nftables::expr::{CtState, CtStatus};
use vipline_nftables::expression::{ct_state, ct_status};
use vipline_nftables::statement::{Statement, goto, jump};
use vipline_nftables::{BaseChain, Chain, ChainType, Hook, Object, Rule, Set, Value};

use self::dispatch::{to_nodeports, to_services};
use super::names::{self, name};
use super::table::{self, Table, rule};
use proxy_engine::Context;

/// Returns the objects that do not depend on Services.
pub(super) fn objects(cx: &Context) -> Vec<Object> {
    let table = Table::of(cx.family);
    let mut objects: Vec<_> = table.objects().collect();
    objects.extend(base_chains(cx, table).map(Object::from));
    let parts = [
        dispatch::chains(cx, table),
        masquerading::chains(cx, table),
        checks::chains(cx, table),
        affinity::chains(table),
    ];
    objects.extend(parts.into_iter().flatten().map(Object::from));
    objects.extend(service_cidrs(cx, table));
    objects.extend(nodeport_networks(cx, table));
    objects
}

/// ```nft
/// add element ip kube-proxy service-cidrs { 10.96.0.0/16 }
/// ```
///
/// The networks from which cluster IPs are allocated.
fn service_cidrs(cx: &Context, table: &Table) -> Vec<Object> {
    networks(&table.service_cidrs, &cx.service_cidrs)
}

/// ```nft
/// add element ip kube-proxy nodeport-networks { 192.168.0.0/24 }
/// ```
///
/// The networks of the node addresses on which node ports are served.
fn nodeport_networks(cx: &Context, table: &Table) -> Vec<Object> {
    networks(
        &table.nodeport_networks,
        cx.nodeport_networks.as_deref().unwrap_or_default(),
    )
}

fn networks(set: &Set, networks: &[IpNet]) -> Vec<Object> {
    let element = |&network| table::element(set, &[Value::from(network)]);
    networks.iter().map(element).collect()
}

/// Returns the base chains. Name, type, hook and priority equal those of upstream.
///
/// Upstream deletes and creates its base chains at start. A base chain with another name
/// would keep our rules active next to the rules of upstream.
fn base_chains(cx: &Context, table: &Table) -> [Chain; 6] {
    use ChainType::{Filter, Nat};
    use Hook::{Forward, Input, Output, Postrouting, Prerouting};
    let [dnat, filter, snat] = [-100, 0, 100];
    let chain = |text, kind, hook, priority| table.base_chain(text, kind, hook, priority);
    let to_endpoints = || [to_services(table), to_nodeports(cx, table)];
    [
        chain(names::NAT_PREROUTING, Nat, Prerouting, dnat).with_rules(to_endpoints()),
        chain(names::NAT_OUTPUT, Nat, Output, dnat).with_rules(to_endpoints()),
        chain(names::FILTER_INPUT, Filter, Input, filter).with_rules([
            to_nodeport_endpoints_check(cx, table),
            to_service_endpoints_check(table),
            to_affinity_learning(table),
        ]),
        chain(names::FILTER_FORWARD, Filter, Forward, filter)
            .with_rules([to_translated(table), to_cluster_ips_check(table)]),
        chain(names::FILTER_OUTPUT, Filter, Output, filter)
            .with_rules([to_translated(table), to_cluster_ips_check(table)]),
        chain(names::NAT_POSTROUTING, Nat, Postrouting, snat).with_rules([to_masquerading(table)]),
    ]
}

/// Returns the base chains that check source ranges before DNAT.
///
/// They exist only while a Service has source ranges, because each base chain costs every
/// packet. A start without such Services removes them.
pub(super) fn chains_before_dnat(table: &Table) -> [Chain; 2] {
    let hooks = [
        (names::FILTER_PREROUTING_PRE_DNAT, Hook::Prerouting),
        (names::FILTER_OUTPUT_PRE_DNAT, Hook::Output),
    ];
    hooks.map(|(text, hook)| {
        let chain = table.base_chain(text, ChainType::Filter, hook, -110);
        chain.with_rules([to_firewall_check(table)])
    })
}

impl Table {
    fn base_chain(&self, text: &'static str, kind: ChainType, hook: Hook, priority: i32) -> Chain {
        let base = BaseChain::new(kind, hook, priority);
        self.chain(text, []).with_base(base)
    }

    fn rule(&self, statements: impl IntoIterator<Item = Statement>) -> Rule {
        rule(self.family(), statements)
    }

    fn chain(&self, text: &'static str, rules: impl IntoIterator<Item = Rule>) -> Chain {
        Chain::new(self.id.clone(), name(text)).with_rules(rules)
    }
}

/// ```nft
/// ct state new ip daddr & 255.255.240.0 == @external-networks jump firewall-check
/// ```
///
/// Checks source ranges before DNAT changes the destination.
fn to_firewall_check(table: &Table) -> Rule {
    table.rule([
        ct_state().is(CtState::NEW),
        table.to_network(&table.external_networks),
        jump(&name(names::FIREWALL_CHECK)),
    ])
}

/// ```nft
/// jump masquerading
/// ```
///
/// Masquerades after routing, when the outgoing interface is known.
fn to_masquerading(table: &Table) -> Rule {
    table.rule([jump(&name(names::MASQUERADING))])
}

/// ```nft
/// ct state new fib daddr type local ip daddr != 127.0.0.0/8 jump nodeport-endpoints-check
/// ```
///
/// Checks node ports at the addresses on which node ports are served.
fn to_nodeport_endpoints_check(cx: &Context, table: &Table) -> Rule {
    let is_new = [ct_state().is(CtState::NEW)].into_iter();
    let to_check = [jump(&name(names::NODEPORT_ENDPOINTS_CHECK))];
    table.rule(is_new.chain(dispatch::to_node(cx, table)).chain(to_check))
}

/// ```nft
/// ct state new ip daddr & 255.255.240.0 == @service-networks jump service-endpoints-check
/// ```
///
/// Checks new connections only: established connections keep their endpoint.
fn to_service_endpoints_check(table: &Table) -> Rule {
    table.rule([
        ct_state().is(CtState::NEW),
        table.to_network(&table.service_networks),
        jump(&name(names::SERVICE_ENDPOINTS_CHECK)),
    ])
}

/// ```nft
/// ct state new ct status dnat goto translated
/// ```
///
/// Separates new connections to endpoints. They need no lookup among the networks of
/// Services.
fn to_translated(table: &Table) -> Rule {
    let [is_new, is_translated] = new_and_translated();
    table.rule([is_new, is_translated, goto(&name(names::TRANSLATED))])
}

/// ```nft
/// ct state new jump cluster-ips-check
/// ```
///
/// Checks new connections that are neither translated nor delivered to this node.
fn to_cluster_ips_check(table: &Table) -> Rule {
    let is_new = ct_state().is(CtState::NEW);
    table.rule([is_new, jump(&name(names::CLUSTER_IPS_CHECK))])
}

/// ```nft
/// ct state new ct status dnat jump affinity-learning
/// ```
///
/// Records the endpoint of a client if the endpoint is on this node. Chain `translated`
/// does so for other endpoints, and for a client on this node.
fn to_affinity_learning(table: &Table) -> Rule {
    let [is_new, is_translated] = new_and_translated();
    table.rule([is_new, is_translated, jump(&name(names::AFFINITY_LEARNING))])
}

/// Returns the matches for new connections whose destination was translated. A new
/// connection has no packets in reply direction.
fn new_and_translated() -> [Statement; 2] {
    [ct_state().is(CtState::NEW), ct_status().is(CtStatus::DNAT)]
}

#[cfg(test)]
mod tests {
    use vipline_service_model::{DetectLocal, Family};

    use super::super::tests::{assert_documented, command, cx};
    use super::*;

    #[test]
    fn rules_match_their_documentation() {
        let mut anywhere = cx(Family::V4, DetectLocal::NodeCidr);
        anywhere.nodeport_networks = None;
        let mut cx = anywhere.clone();
        cx.nodeport_networks = Some(vec!["192.168.0.0/24".parse().unwrap()]);
        let table = Table::of(Family::V4);
        let elements = |objects: Vec<Object>| objects.iter().map(command).collect();
        let one = |rule: Rule| vec![rule.to_string()];
        assert_documented(
            include_str!("mod.rs"),
            &[
                ("service_cidrs", elements(service_cidrs(&cx, table))),
                ("nodeport_networks", elements(nodeport_networks(&cx, table))),
                ("to_firewall_check", one(to_firewall_check(table))),
                ("to_masquerading", one(to_masquerading(table))),
                (
                    "to_nodeport_endpoints_check",
                    one(to_nodeport_endpoints_check(&anywhere, table)),
                ),
                (
                    "to_service_endpoints_check",
                    one(to_service_endpoints_check(table)),
                ),
                ("to_translated", one(to_translated(table))),
                ("to_cluster_ips_check", one(to_cluster_ips_check(table))),
                ("to_affinity_learning", one(to_affinity_learning(table))),
            ],
        );
    }
}
