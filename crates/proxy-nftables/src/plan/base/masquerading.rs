//! Rules that masquerade connections.

use vipline_nftables::expr::{CmpOp, CtStatus, NatFlags};
use vipline_nftables::expression::{ct_status, daddr, mark};
use vipline_nftables::statement::masquerade;
use vipline_nftables::{Chain, Rule};

use super::dispatch::{local_test, mark_to_masquerade};
use crate::plan::names::{self, comment};
use crate::plan::table::Table;
use proxy_engine::Context;
use proxy_engine::MasqueradedClients;

/// Returns the chain that masquerades connections.
pub(super) fn chains(cx: &Context, table: &Table) -> Vec<Chain> {
    let rules = [masquerade_marked(cx, table), hairpin(table)];
    vec![table.chain(names::MASQUERADING, rules)]
}

/// ```nft
/// ip daddr @active-cluster-ips meta mark set meta mark | 0x00004000 comment "masquerade all clusterIP traffic"
/// ip saddr != 10.0.0.0/8 ip daddr @active-cluster-ips meta mark set meta mark | 0x00004000 comment "masquerade clusterIP traffic from outside cluster"
/// iifname != "cni0" ip daddr @active-cluster-ips meta mark set meta mark | 0x00004000 comment "masquerade clusterIP traffic from outside cluster"
/// iifname != "veth*" ip daddr @active-cluster-ips meta mark set meta mark | 0x00004000 comment "masquerade clusterIP traffic from outside cluster"
/// ```
///
/// Marks traffic from outside the cluster for masquerading, or all traffic with
/// `--masquerade-all`. Otherwise endpoints may have no return route. The comparison comes
/// first, so that packets of pods skip the lookup.
pub(super) fn masquerade_cluster_ips(cx: &Context, table: &Table) -> Option<Rule> {
    let to_cluster_ip = daddr(table.family()).in_set(&table.cluster_ips);
    let mark = mark_to_masquerade(cx);
    match cx.masqueraded_clients() {
        MasqueradedClients::All => {
            let rule = table.rule([to_cluster_ip, mark]);
            Some(rule.with_comment(comment("masquerade all clusterIP traffic")))
        }
        MasqueradedClients::Outside(pods) => {
            let not_from_pods = local_test(CmpOp::Ne, pods, table);
            let rule = table.rule([not_from_pods, to_cluster_ip, mark]);
            Some(rule.with_comment(comment("masquerade clusterIP traffic from outside cluster")))
        }
        MasqueradedClients::None => None,
    }
}

/// ```nft
/// meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random
/// ```
///
/// Masquerades marked packets and clears the mark, which is valid on this node only.
fn masquerade_marked(cx: &Context, table: &Table) -> Rule {
    let bit = cx.masquerade_mark.value();
    table.rule([
        mark().and(bit).is_not(0_u32),
        mark().set(&mark().xor(bit)),
        masquerade(NatFlags::FULLY_RANDOM),
    ])
}

/// ```nft
/// ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-endpoints masquerade fully-random
/// ```
///
/// Masquerades connections of an endpoint to itself. Without it the endpoint would drop
/// its own replies.
fn hairpin(table: &Table) -> Rule {
    table.rule([
        ct_status().is(CtStatus::DNAT),
        table.ips.client_and_key().in_set(&table.hairpin_endpoints),
        masquerade(NatFlags::FULLY_RANDOM),
    ])
}

#[cfg(test)]
mod tests {
    use vipline_service_model::{DetectLocal, Family};

    use super::*;
    use crate::plan::tests::{assert_documented, cx};

    #[test]
    fn rules_match_their_documentation() {
        let network = "10.0.0.0/8".parse().unwrap();
        let [all, source, interface, prefix] = [
            DetectLocal::NodeCidr,
            DetectLocal::ClusterCidr(vec![network]),
            DetectLocal::Interface("cni0".into()),
            DetectLocal::InterfacePrefix("veth".into()),
        ]
        .map(|detect_local| cx(Family::V4, detect_local));
        let table = Table::of(Family::V4);
        assert_eq!(masquerade_cluster_ips(&all, table), None);
        let mut all = all;
        all.masquerade_all = true;
        let marks = [&all, &source, &interface, &prefix]
            .map(|cx| masquerade_cluster_ips(cx, table).unwrap().to_string());
        let one = |rule: Rule| vec![rule.to_string()];
        assert_documented(
            include_str!("masquerading.rs"),
            &[
                ("masquerade_cluster_ips", marks.to_vec()),
                ("masquerade_marked", one(masquerade_marked(&all, table))),
                ("hairpin", one(hairpin(table))),
            ],
        );
    }

    #[test]
    fn a_network_of_all_addresses_disables_masquerading() {
        let everybody = DetectLocal::ClusterCidr(vec!["0.0.0.0/0".parse().unwrap()]);
        let cx = cx(Family::V4, everybody);
        assert_eq!(masquerade_cluster_ips(&cx, Table::of(Family::V4)), None);
    }
}
