//! Rules that reject or drop connections.

use vipline_nftables::expression::{daddr, saddr};
use vipline_nftables::statement::{Statement, drop, goto, jump, reject};
use vipline_nftables::{Chain, Rule, Set};

use crate::plan::names::{self, comment, name};
use crate::plan::table::{LookupPath, Table};
use proxy_engine::Context;

/// Returns the chains that reject or drop connections.
pub(super) fn chains(cx: &Context, table: &Table) -> Vec<Chain> {
    let nodeports = &table.nodeports;
    vec![
        table.chain(names::FIREWALL_CHECK, [source_ranges(table)]),
        table.chain(
            names::SERVICE_ENDPOINTS_CHECK,
            [
                no_endpoints(table, &table.ips, &table.no_endpoints),
                no_local_endpoints(table, &table.ips, &table.no_local_endpoints),
            ],
        ),
        table.chain(
            names::NODEPORT_ENDPOINTS_CHECK,
            [
                no_endpoints(table, nodeports, &table.no_endpoints_nodeports),
                no_local_endpoints(table, nodeports, &table.no_local_endpoints_nodeports),
            ],
        ),
        table.chain(
            names::CLUSTER_IPS_CHECK,
            [to_service_ips_check(table), unused_cluster_ips(cx, table)],
        ),
        table.chain(
            names::TRANSLATED,
            [cluster_ip_endpoints(cx, table), to_affinity_learning(table)],
        ),
        table.chain(
            names::SERVICE_IPS_CHECK,
            [endpoints_of_service_ips(table), unused_ports(table)],
        ),
    ]
}

/// ```nft
/// ip daddr . meta l4proto . th dport @restricted-ips ip daddr . meta l4proto . th dport . ip saddr != @source-ranges drop
/// ```
///
/// Drops connections from sources outside `spec.loadBalancerSourceRanges`.
fn source_ranges(table: &Table) -> Rule {
    table.rule([
        table.ips.key().in_set(&table.restricted_ips),
        table
            .ips
            .key_and(saddr(table.family()))
            .not_in_set(&table.source_ranges),
        drop(),
    ])
}

/// ```nft
/// ip daddr . meta l4proto . th dport @no-endpoints reject
/// meta l4proto . th dport @no-endpoints-nodeports reject
/// ```
///
/// Rejects connections to Services without endpoints, so that clients fail at once.
fn no_endpoints(table: &Table, path: &LookupPath, set: &Set) -> Rule {
    table.rule([path.key().in_set(set), reject()])
}

/// ```nft
/// ip daddr . meta l4proto . th dport @no-local-endpoints drop
/// meta l4proto . th dport @no-local-endpoints-nodeports drop
/// ```
///
/// Drops connections if endpoints exist but the traffic policy allows none on this node.
/// The client may retry by way of another node.
fn no_local_endpoints(table: &Table, path: &LookupPath, set: &Set) -> Rule {
    table.rule([path.key().in_set(set), drop()])
}

/// ```nft
/// ip daddr & 255.255.240.0 == @service-networks jump service-ips-check
/// ```
///
/// Skips the lookups of Services for endpoints and all other destinations.
fn to_service_ips_check(table: &Table) -> Rule {
    table.rule([
        table.to_network(&table.service_networks),
        jump(&name(names::SERVICE_IPS_CHECK)),
    ])
}

/// ```nft
/// jump service-endpoints-check
/// ```
///
/// Precedes the check of ports, which is less specific for the same address.
fn endpoints_of_service_ips(table: &Table) -> Rule {
    table.rule([jump(&name(names::SERVICE_ENDPOINTS_CHECK))])
}

/// ```nft
/// ip daddr @active-cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"
/// ```
///
/// Rejects connections to ports that a cluster IP does not have.
fn unused_ports(table: &Table) -> Rule {
    table
        .rule([daddr(table.family()).in_set(&table.cluster_ips), reject()])
        .with_comment(comment("Reject traffic to invalid ports of ClusterIPs"))
}

/// ```nft
/// ip daddr 10.96.0.0/16 drop comment "Drop traffic to unallocated ClusterIPs"
/// ip daddr @service-cidrs drop comment "Drop traffic to unallocated ClusterIPs"
/// ```
///
/// Drops connections to unallocated cluster IPs, so that they do not leave the cluster.
fn unused_cluster_ips(cx: &Context, table: &Table) -> Rule {
    table
        .rule([to_service_cidrs(cx, table), drop()])
        .with_comment(comment("Drop traffic to unallocated ClusterIPs"))
}

/// ```nft
/// ip daddr 10.96.0.0/16 jump cluster-ips-check
/// ip daddr @service-cidrs jump cluster-ips-check
/// ```
///
/// Checks connections that were translated to a cluster IP, which is no endpoint.
fn cluster_ip_endpoints(cx: &Context, table: &Table) -> Rule {
    table.rule([
        to_service_cidrs(cx, table),
        jump(&name(names::CLUSTER_IPS_CHECK)),
    ])
}

/// ```nft
/// goto affinity-learning
/// ```
///
/// Records the endpoint of a client after DNAT.
fn to_affinity_learning(table: &Table) -> Rule {
    table.rule([goto(&name(names::AFFINITY_LEARNING))])
}

/// Returns the match for destinations in the networks of cluster IPs.
fn to_service_cidrs(cx: &Context, table: &Table) -> Statement {
    let daddr = daddr(table.family());
    match &*cx.service_cidrs {
        // The default. A comparison is cheaper than a lookup.
        [network] => daddr.is(*network),
        _ => daddr.in_set(&table.service_cidrs),
    }
}

#[cfg(test)]
mod tests {
    use vipline_service_model::{DetectLocal, Family};

    use super::*;
    use crate::plan::tests::{assert_documented, cx};

    #[test]
    fn rules_match_their_documentation() {
        let table = Table::of(Family::V4);
        let within = |networks: &[&str]| {
            let mut cx = cx(Family::V4, DetectLocal::NodeCidr);
            cx.service_cidrs = networks.iter().map(|it| it.parse().unwrap()).collect();
            cx
        };
        let contexts = [
            within(&["10.96.0.0/16"]),
            within(&["10.96.0.0/16", "10.97.0.0/16"]),
        ];
        let of_contexts = |rule: fn(&Context, &Table) -> Rule| {
            let rules = contexts.iter().map(|cx| rule(cx, table).to_string());
            rules.collect::<Vec<_>>()
        };
        let text = |rules: &[Rule]| rules.iter().map(Rule::to_string).collect();
        let (ips, nodeports) = (&table.ips, &table.nodeports);
        assert_documented(
            include_str!("checks.rs"),
            &[
                ("source_ranges", text(&[source_ranges(table)])),
                (
                    "no_endpoints",
                    text(&[
                        no_endpoints(table, ips, &table.no_endpoints),
                        no_endpoints(table, nodeports, &table.no_endpoints_nodeports),
                    ]),
                ),
                (
                    "no_local_endpoints",
                    text(&[
                        no_local_endpoints(table, ips, &table.no_local_endpoints),
                        no_local_endpoints(table, nodeports, &table.no_local_endpoints_nodeports),
                    ]),
                ),
                ("to_service_ips_check", text(&[to_service_ips_check(table)])),
                (
                    "endpoints_of_service_ips",
                    text(&[endpoints_of_service_ips(table)]),
                ),
                ("unused_ports", text(&[unused_ports(table)])),
                ("unused_cluster_ips", of_contexts(unused_cluster_ips)),
                ("cluster_ip_endpoints", of_contexts(cluster_ip_endpoints)),
                ("to_affinity_learning", text(&[to_affinity_learning(table)])),
            ],
        );
    }
}
