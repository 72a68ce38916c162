//! Rules that look up the Service of a packet and its load-balancing chain.

use vipline_nftables::expr::{AddrType, CmpOp};
use vipline_nftables::expression::{daddr, fib_daddr_type, fib_saddr_type, iifname, mark, saddr};
use vipline_nftables::statement::{Statement, jump};
use vipline_nftables::{Chain, Rule};
use vipline_service_model::LocalTraffic;

use super::affinity::to_recorded_endpoint;
use super::masquerading::masquerade_cluster_ips;
use crate::plan::names::{self, comment, name};
use crate::plan::table::{LookupPath, Table};
use proxy_engine::Context;

/// Returns the chains that look up Services.
pub(super) fn chains(cx: &Context, table: &Table) -> Vec<Chain> {
    let services = masquerade_cluster_ips(cx, table)
        .into_iter()
        .chain([
            to_external_ips(table),
            to_affinity(table, &table.ips),
            dispatch(table, &table.ips),
        ])
        .chain(direct(table));
    let external_ips = [masquerade_external(cx, table), to_short_circuit(table)];
    let nodeports = [
        to_short_circuit_nodeports(table),
        to_affinity(table, &table.nodeports),
        dispatch(table, &table.nodeports),
    ];
    vec![
        table.chain(names::SERVICES, services),
        table.chain(names::EXTERNAL_IPS, external_ips),
        table.chain(
            names::SHORT_CIRCUIT,
            short_circuit(cx, table, &table.short_ips),
        ),
        table.chain(names::NODEPORTS, nodeports),
        table.chain(names::MARK_FOR_MASQUERADE, [masquerade_nodeport(cx, table)]),
        table.chain(
            names::SHORT_CIRCUIT_NODEPORTS,
            short_circuit(cx, table, &table.short_nodeports),
        ),
    ]
}

/// ```nft
/// ip daddr & 255.255.240.0 == @service-networks jump services
/// ```
///
/// Selects the endpoint before routing. Packets to networks without Services skip all
/// lookups of Services: a lookup in a large set is expensive, because it is rarely in a
/// cache of the processor.
pub(super) fn to_services(table: &Table) -> Rule {
    table.rule([
        table.to_network(&table.service_networks),
        jump(&name(names::SERVICES)),
    ])
}

/// ```nft
/// ip daddr & 255.255.240.0 == @external-networks jump external-ips
/// ```
///
/// Handles external addresses, before the lookup of the endpoint.
fn to_external_ips(table: &Table) -> Rule {
    table.rule([
        table.to_network(&table.external_networks),
        jump(&name(names::EXTERNAL_IPS)),
    ])
}

/// ```nft
/// ip daddr . meta l4proto . th dport @masquerade-ips meta mark set meta mark | 0x00004000 comment "masquerade"
/// ```
///
/// Marks external traffic with policy Cluster for masquerading, so that replies of
/// endpoints on other nodes return by way of this node.
fn masquerade_external(cx: &Context, table: &Table) -> Rule {
    let is_external = table.ips.key().in_set(&table.masquerade_ips);
    let rule = table.rule([is_external, mark_to_masquerade(cx)]);
    rule.with_comment(comment("masquerade"))
}

/// ```nft
/// meta mark set meta mark | 0x00004000 comment "masquerade"
/// ```
///
/// The same for node ports. The load-balancing chain decides, without a lookup.
fn masquerade_nodeport(cx: &Context, table: &Table) -> Rule {
    let rule = table.rule([mark_to_masquerade(cx)]);
    rule.with_comment(comment("masquerade"))
}

/// ```nft
/// ip daddr . meta l4proto . th dport @local-policy-ips jump short-circuit
/// ```
///
/// External policy Local applies to clients outside the cluster only. Other clients use
/// all endpoints.
fn to_short_circuit(table: &Table) -> Rule {
    table.rule([
        table.ips.key().in_set(&table.local_policy_ips),
        jump(&name(names::SHORT_CIRCUIT)),
    ])
}

/// ```nft
/// meta l4proto . th dport @local-policy-nodeports jump short-circuit-nodeports
/// ```
///
/// External policy Local applies to clients outside the cluster only. Other clients use
/// all endpoints.
fn to_short_circuit_nodeports(table: &Table) -> Rule {
    table.rule([
        table.nodeports.key().in_set(&table.local_policy_nodeports),
        jump(&name(names::SHORT_CIRCUIT_NODEPORTS)),
    ])
}

/// ```nft
/// ip saddr 10.0.0.0/8 meta priority set ip daddr . meta l4proto . th dport map @pool-ips jump short-affinity
/// ip saddr 10.0.0.0/8 ip daddr . meta l4proto . th dport vmap @short-ips comment "short-circuit pod traffic"
/// fib saddr type local meta mark set meta mark | 0x00004000 comment "masquerade local traffic"
/// fib saddr type local meta priority set ip daddr . meta l4proto . th dport map @pool-ips jump short-affinity
/// fib saddr type local ip daddr . meta l4proto . th dport vmap @short-ips comment "short-circuit local traffic"
/// ```
///
/// Sends pods and local processes to all endpoints. Traffic of local processes is
/// masqueraded, because endpoints may have no route to its source address.
fn short_circuit(cx: &Context, table: &Table, path: &LookupPath) -> Vec<Rule> {
    let from_node = || fib_saddr_type().is(AddrType::Local);
    let affinity = |source| {
        let source = [source].into_iter();
        table.rule(source.chain(to_recorded_endpoint(path)))
    };
    let dispatch = || path.key().vmap(&path.dispatch);
    let from_pods = cx.local.as_ref().map(|pods| {
        let from_pods = || local_test(CmpOp::Eq, pods, table);
        let rule = table.rule([from_pods(), dispatch()]);
        [
            affinity(from_pods()),
            rule.with_comment(comment("short-circuit pod traffic")),
        ]
    });
    let rules = [
        table
            .rule([from_node(), mark_to_masquerade(cx)])
            .with_comment(comment("masquerade local traffic")),
        affinity(from_node()),
        table
            .rule([from_node(), dispatch()])
            .with_comment(comment("short-circuit local traffic")),
    ];
    from_pods.into_iter().flatten().chain(rules).collect()
}

/// Returns a match for traffic of local pods, or with `!=` for all other traffic.
pub(super) fn local_test(op: CmpOp, local: &LocalTraffic, table: &Table) -> Statement {
    match local {
        LocalTraffic::Cidr(network) => saddr(table.family()).compares(op, *network),
        LocalTraffic::Interface(name) => iifname().compares(op, &**name),
        LocalTraffic::InterfacePrefix(prefix) => iifname().compares(op, &*format!("{prefix}*")),
    }
}

/// ```nft
/// dnat ip to ip daddr . meta l4proto . th dport map @single-backends
/// dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @backends-2
/// dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @backends-3
/// dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 4 map @backends-4
/// dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 5 map @backends-5
/// dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 6 map @backends-6
/// ```
///
/// Selects an endpoint of an address with one to six endpoints. An address with N
/// endpoints is in map `backends-N` only, and one with a single endpoint in
/// `single-backends`, whose key has no random slot. Maps of endpoints are cheap to change: if an
/// element of a verdict map changes, the kernel validates the whole map.
fn direct(table: &Table) -> Vec<Rule> {
    let rule = |(slots, backends)| table.rule([table.ips.to_slot(slots, backends)]);
    (1..).zip(&table.ips.direct).map(rule).collect()
}

/// ```nft
/// meta priority set ip daddr . meta l4proto . th dport map @pool-ips jump affinity
/// meta priority set meta l4proto . th dport map @pool-nodeports jump nodeport-affinity
/// ```
///
/// Sends clients of Services with session affinity to their recorded endpoints. Other
/// clients return, and continue like those of a Service without affinity.
fn to_affinity(table: &Table, path: &LookupPath) -> Rule {
    table.rule(to_recorded_endpoint(path))
}

/// ```nft
/// ip daddr . meta l4proto . th dport vmap @dispatch-ips
/// meta l4proto . th dport vmap @dispatch-nodeports
/// ```
///
/// Finds the Service and its load-balancing chain with one lookup. This map comes before
/// the maps of endpoints, because it has few elements. A match ends the search.
fn dispatch(table: &Table, path: &LookupPath) -> Rule {
    table.rule([path.key().vmap(&path.dispatch)])
}

/// ```nft
/// fib daddr type local ip daddr != 127.0.0.0/8 jump nodeports
/// ip daddr 192.168.0.1 fib daddr type local ip daddr != 127.0.0.0/8 jump nodeports
/// ip daddr @nodeport-networks fib daddr type local ip daddr != 127.0.0.0/8 jump nodeports
/// ```
///
/// Excludes loopback addresses: connections to them are rejected locally instead of being
/// routed without success.
pub(super) fn to_nodeports(cx: &Context, table: &Table) -> Rule {
    let to_nodeports = [jump(&name(names::NODEPORTS))];
    table.rule(to_node(cx, table).into_iter().chain(to_nodeports))
}

/// Returns the matches for addresses on which node ports are served.
pub(super) fn to_node(cx: &Context, table: &Table) -> Vec<Statement> {
    let family = table.family();
    let limited = cx.nodeport_networks.as_deref();
    let limited = limited.map(|networks| match networks {
        // The default. A comparison is cheaper than a lookup.
        [network] => daddr(family).is(*network),
        _ => daddr(family).in_set(&table.nodeport_networks),
    });
    let mut tests = Vec::from_iter(limited);
    tests.push(fib_daddr_type().is(AddrType::Local));
    tests.push(daddr(family).is_not(cx.family.loopback()));
    tests
}

/// Returns the statement that marks a packet for masquerading.
pub(super) fn mark_to_masquerade(cx: &Context) -> Statement {
    mark().set(&mark().or(cx.masquerade_mark.value()))
}

#[cfg(test)]
mod tests {
    use vipline_service_model::{DetectLocal, Family};

    use super::*;
    use crate::plan::tests::{assert_documented, cx};

    fn text(rules: Vec<Rule>) -> Vec<String> {
        rules.iter().map(Rule::to_string).collect()
    }

    #[test]
    fn rules_match_their_documentation() {
        let pods = DetectLocal::ClusterCidr(vec!["10.0.0.0/8".parse().unwrap()]);
        let cx = cx(Family::V4, pods);
        let limited = |networks: &[&str]| {
            let mut cx = cx.clone();
            let networks = networks.iter().map(|it| it.parse().unwrap());
            cx.nodeport_networks = Some(networks.collect());
            cx
        };
        let one = limited(&["192.168.0.1/32"]);
        let several = limited(&["192.168.0.1/32", "198.51.100.0/24"]);
        let table = Table::of(Family::V4);
        let dispatches = [&table.ips, &table.nodeports].map(|path| dispatch(table, path));
        let affinities = [&table.ips, &table.nodeports].map(|path| to_affinity(table, path));
        assert_documented(
            include_str!("dispatch.rs"),
            &[
                ("to_services", text(vec![to_services(table)])),
                ("to_external_ips", text(vec![to_external_ips(table)])),
                (
                    "masquerade_external",
                    text(vec![masquerade_external(&cx, table)]),
                ),
                (
                    "masquerade_nodeport",
                    text(vec![masquerade_nodeport(&cx, table)]),
                ),
                ("to_short_circuit", text(vec![to_short_circuit(table)])),
                (
                    "to_short_circuit_nodeports",
                    text(vec![to_short_circuit_nodeports(table)]),
                ),
                (
                    "short_circuit",
                    text(short_circuit(&cx, table, &table.short_ips)),
                ),
                ("direct", text(direct(table))),
                ("to_affinity", text(affinities.into())),
                ("dispatch", text(dispatches.into())),
                (
                    "to_nodeports",
                    text(
                        [&cx, &one, &several]
                            .map(|cx| to_nodeports(cx, table))
                            .into(),
                    ),
                ),
            ],
        );
    }

    #[test]
    fn pods_have_no_short_circuit_rule_without_local_detection() {
        let cx = cx(Family::V4, DetectLocal::ClusterCidr(Vec::new()));
        let table = Table::of(Family::V4);
        assert_eq!(short_circuit(&cx, table, &table.short_ips).len(), 3);
    }
}
