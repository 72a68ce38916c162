//! Clients that stay with their endpoints.

use std::time::Duration;

use vipline_nftables::selector::{concat, ct_original_daddr, ct_original_saddr, daddr, th_dport};
use vipline_nftables::statement::{dnat, goto, update_map};
use vipline_nftables::{Chain, Object, Rule, Value, Verdict};
use vipline_service_model::Endpoint;

use super::{Front, element};
use crate::backend::nftables::base::affinity::{asked_for, has_ports};
use crate::backend::nftables::names;
use crate::backend::nftables::table::{Affinity, Way};

/// Adds what it takes to remember who was sent to which of the endpoints.
///
/// Several ways may lead from an address to endpoints, some of them the same.
pub(super) fn memory(
    way: &Way,
    front: &Front<'_>,
    endpoints: &[&[Endpoint]],
    out: &mut Vec<Object>,
) {
    let Some(seconds) = front.port.affinity else {
        return;
    };
    let mut endpoints = endpoints.concat();
    endpoints.sort_unstable();
    endpoints.dedup();
    if endpoints.is_empty() {
        return;
    }
    let endpoints = endpoints.iter();
    out.extend(endpoints.map(|endpoint| may_be_remembered(&way.affinity, front, endpoint)));
    out.push(learn(way, seconds).into());
    out.push(remember(&way.affinity, front, seconds));
}

/// ```nft
/// add element ip kube-proxy affinity-endpoints { 10.96.0.10 . tcp . 80 . 10.1.0.1 . 8080 }
/// ```
///
/// A stuck connection tries its endpoint again when that is gone: it must not
/// be remembered for that.
fn may_be_remembered(affinity: &Affinity, front: &Front<'_>, endpoint: &Endpoint) -> Object {
    let endpoint: [Value; 2] = [endpoint.addr.into(), endpoint.port.into()];
    element(&affinity.endpoints, &front.key_and(endpoint))
}

/// ```nft
/// add element ip kube-proxy affinity-ips { 10.96.0.10 . tcp . 80 : goto learn-10800 }
/// ```
///
/// Connections to the address are remembered for so long.
fn remember(affinity: &Affinity, front: &Front<'_>, seconds: u32) -> Object {
    let goto = Verdict::Goto(names::learn(affinity.word, seconds));
    let element = affinity.learners.element(&front.key);
    element
        .and_then(|it| it.with_verdict(goto))
        .expect("the verdict of an address fits the map")
        .into()
}

/// ```nft
/// dnat ip to ip saddr . ip daddr . meta l4proto . th dport map @affinity
/// goto lb-2
/// ```
///
/// The client is sent where it was before, or else as all others.
pub(super) fn sticky(way: &Way, slots: u32) -> Chain {
    let family = way.id.family;
    let rules = [
        dnat(way.client_and_key().map(&way.affinity.clients)),
        goto(&names::lb(way.word, slots, false)),
    ];
    Chain::new(way.id.clone(), names::lb(way.word, slots, true))
        .with_rules(rules.map(|rule| Rule::new(family, [rule])))
}

/// ```nft
/// meta l4proto { tcp, udp, sctp } ct original ip daddr . meta l4proto . ct original proto-dst . ip daddr . th dport @affinity-endpoints update @affinity { ct original ip saddr . ct original ip daddr . meta l4proto . ct original proto-dst timeout 3h : ip daddr . th dport }
/// meta l4proto { tcp, udp, sctp } meta l4proto . ct original proto-dst . ip daddr . th dport @affinity-nodeport-endpoints update @affinity-nodeports { ct original ip saddr . meta l4proto . ct original proto-dst timeout 3h : ip daddr . th dport }
/// ```
///
/// The time counts from the last connection, and the kernel keeps it.
fn learn(way: &Way, seconds: u32) -> Chain {
    let (family, affinity) = (way.id.family, &way.affinity);
    let vip = affinity.of_ips.then(|| ct_original_daddr(family));
    let endpoint = concat([daddr(family), th_dport()]);
    let client = [ct_original_saddr(family)].into_iter().chain(vip.clone());
    let remembered = update_map(
        &affinity.clients,
        &asked_for(client.collect()),
        Some(Duration::from_secs(seconds.into())),
        &endpoint,
    );
    let chosen = asked_for(vip.into_iter().collect());
    let chosen = concat([chosen, endpoint]).in_set(&affinity.endpoints);
    let rule = Rule::new(family, [has_ports(), chosen, remembered]);
    Chain::new(way.id.clone(), names::learn(affinity.word, seconds)).with_rules([rule])
}

#[cfg(test)]
mod tests {
    use vipline_service_model::{DetectLocal, Family, Route};

    use super::*;
    use crate::backend::nftables::table::Table;
    use crate::backend::nftables::tests::{assert_documented, commands, cx, planned, service_port};

    #[test]
    fn elements_and_rules_read_as_their_functions_say() {
        let mut port = service_port(Route::Cluster);
        port.affinity = Some(10_800);
        let planned = planned(&cx(Family::V4, DetectLocal::NodeCidr), &port);
        let table = Table::of(Family::V4);
        let rules = |chain: Chain| chain.rules.iter().map(Rule::to_string).collect::<Vec<_>>();
        let learned = [&table.ips, &table.nodeports].map(|way| rules(learn(way, 10_800)));
        let first = |set| commands(&planned, set).into_iter().take(1).collect();
        assert_documented(
            include_str!("affinity.rs"),
            &[
                ("may_be_remembered", first(names::AFFINITY_ENDPOINTS)),
                ("remember", commands(&planned, names::AFFINITY_IPS)),
                ("sticky", rules(sticky(&table.ips, 2))),
                ("learn", learned.concat()),
            ],
        );
        assert_eq!(commands(&planned, names::AFFINITY_ENDPOINTS).len(), 2);
        assert_eq!(commands(&planned, "slots-2").len(), 0);
    }
}
