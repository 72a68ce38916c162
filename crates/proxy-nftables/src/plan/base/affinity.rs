//! Rules of session affinity that do not depend on Services.

use vipline_nftables::expression::{l4proto, priority};
use vipline_nftables::statement::{Statement, dnat, goto, jump};
use vipline_nftables::{Chain, Name, Rule, Set};

use crate::plan::affinity::{LOCAL, SHARDS, SLOTS, USUAL, is_token, reset, slots};
use crate::plan::names::{self, name};
use crate::plan::table::{LookupPath, Table};

/// Returns the chains that send clients to their recorded endpoints, and those that lead
/// translated connections to the recording chains.
pub(super) fn chains(table: &Table) -> Vec<Chain> {
    let of_paths = table.paths_with_own_sets().into_iter();
    let mut chains: Vec<_> = of_paths
        .map(|path| table.chain(chain_of(path), recorded_endpoint(table, path)))
        .collect();
    let ips = to_chain_of_learner(table, &table.ips, &table.of_learners);
    let nodeports = to_chain_of_learner(table, &table.nodeports, &table.of_nodeport_learners);
    chains.extend([
        table.chain(names::AFFINITY_LEARNING, learners(table)),
        table.chain(names::LEARNING, ips),
        table.chain(names::NODEPORT_LEARNING, nodeports),
    ]);
    chains
}

/// Returns the name of the chain that sends clients of a path to their recorded endpoints.
fn chain_of(path: &LookupPath) -> &'static str {
    match (path.is_short, path.is_of_nodeports()) {
        (false, false) => names::AFFINITY,
        (true, false) => names::SHORT_AFFINITY,
        (false, true) => names::NODEPORT_AFFINITY,
        (true, true) => names::SHORT_NODEPORT_AFFINITY,
    }
}

/// Returns the statements that send clients of a Service with session affinity to their
/// recorded endpoints: `meta priority set ip daddr . meta l4proto . th dport map @pool-ips
/// jump affinity`. Without a record the packet returns.
pub(super) fn to_recorded_endpoint(path: &LookupPath) -> [Statement; 2] {
    let chain: Name = name(chain_of(path));
    [path.to_number(&path.pools), jump(&chain)]
}

/// ```nft
/// meta priority & 0:3f vmap @recalls
/// meta priority & 3800:0 == 3800:0 dnat ip to ip daddr . meta l4proto . th dport . meta priority map @recorded
/// meta priority & 3800:0 == 3800:0 meta priority set ip daddr . meta l4proto . th dport map @pool-ips meta priority & 0:3f vmap @forgets
/// meta priority & 3800:0 == 800:0 meta priority set none dnat ip to ip daddr . meta l4proto . th dport map @single-backends
/// meta priority & 3800:0 == 1000:0 meta priority set none dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @backends-2
/// meta priority & 3800:0 == 1800:0 meta priority set none dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @backends-3
/// meta priority & 3800:0 == 2000:0 meta priority set none dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 4 map @backends-4
/// meta priority & 3800:0 == 2800:0 meta priority set none dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 5 map @backends-5
/// meta priority & 3800:0 == 3000:0 meta priority set none dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 6 map @backends-6
/// meta priority set none
/// meta priority set meta priority & 7fff:ffff
/// meta priority & 0:3f vmap @recalls
/// meta priority & 3800:0 == 3800:0 dnat ip to ip daddr . meta l4proto . th dport . meta priority map @short-recorded
/// meta priority & 3800:0 == 3800:0 meta priority set ip daddr . meta l4proto . th dport map @pool-ips meta priority set meta priority & 7fff:ffff meta priority & 0:3f vmap @forgets
/// meta priority set none
/// meta priority & 8000:0 == none jump mark-for-masquerade
/// meta priority & 0:3f vmap @recalls
/// meta priority & 3800:0 == 3800:0 dnat ip to meta l4proto . th dport . meta priority map @nodeport-recorded
/// meta priority & 3800:0 == 3800:0 meta priority set meta l4proto . th dport map @pool-nodeports meta priority & 0:3f vmap @forgets
/// meta priority set none
/// ```
///
/// Looks up the client in the map of its pool, and sends it to its endpoint. If the address
/// does not have this endpoint anymore, deletes the client. For a client without a record the
/// number of the address, still in the priority, tells the number of slots; if they are found directly, the client is
/// sent to one of them, otherwise it returns. The chain of `recalls` and that of `forgets` return.
///
/// The short circuit uses all endpoints, so it uses the clients of all endpoints. Node ports
/// are masqueraded unless their pool has the bit of local endpoints: with external policy
/// Cluster, as their load-balancing chains do.
fn recorded_endpoint(table: &Table, path: &LookupPath) -> Vec<Rule> {
    let shard = || priority().and(SHARDS - 1);
    let of_all = || {
        path.is_short
            .then(|| priority().set(&priority().and(!LOCAL)))
    };
    let masquerade = (path.is_of_nodeports() && !path.is_short).then(|| {
        let mark = jump(&name(names::MARK_FOR_MASQUERADE));
        vec![priority().and(LOCAL).is(0), mark]
    });
    let token = path.key_and(priority());
    let has_slots = |bits: u32| priority().and(SLOTS).is(bits);
    let recall = [
        vec![shard().vmap(&table.recalls)],
        // A client without a record would miss in a large set, whose memory is rarely in a cache.
        vec![is_token(), dnat(token.map(&path.recorded))],
        [is_token(), path.to_number(&path.pools)]
            .into_iter()
            .chain(of_all())
            .chain([shard().vmap(&table.forgets)])
            .collect(),
    ];
    let choose = (1..).zip(&path.direct).map(|(number, backends)| {
        let to_slot = path.to_slot(number, backends);
        vec![has_slots(slots(path, number)), reset(), to_slot]
    });
    let before = of_all().map(|statement| vec![statement]);
    let rules = before.into_iter().chain(masquerade).chain(recall);
    let rules = rules.chain(choose).chain([vec![reset()]]);
    rules.map(|statements| table.rule(statements)).collect()
}

/// ```nft
/// meta l4proto @sticky-protocols meta l4proto { tcp, udp, sctp } meta priority set ct original ip daddr . meta l4proto . ct original proto-dst map @pool-ips goto learning
/// meta l4proto @sticky-nodeport-protocols meta l4proto { tcp, udp, sctp } meta priority set meta l4proto . ct original proto-dst map @pool-nodeports goto nodeport-learning
/// ```
///
/// Selects connections to Services with session affinity by their original destination. The
/// small sets of protocols skip lookups that find nothing. Other connections to Services pay
/// for one lookup, in a map whose memory is still in a cache, because it was used before the
/// translation.
fn learners(table: &Table) -> [Rule; 2] {
    let rule = |protocols: &Set, path: &LookupPath, chain: &'static str| {
        let first = [l4proto().in_set(protocols)].into_iter();
        let to_pool = path.to_number_of_original(&path.pools);
        table.rule(first.chain(to_pool).chain([goto(&name(chain))]))
    };
    [
        rule(&table.sticky_protocols, &table.ips, names::LEARNING),
        rule(
            &table.sticky_nodeport_protocols,
            &table.nodeports,
            names::NODEPORT_LEARNING,
        ),
    ]
}

/// ```nft
/// meta priority & 4000:3f vmap @usual-learners
/// meta l4proto { tcp, udp, sctp } meta priority set ct original ip daddr . meta l4proto . ct original proto-dst map @learner-ips meta priority vmap @learners
/// meta priority set none
/// meta priority & 4000:3f vmap @usual-learners
/// meta l4proto { tcp, udp, sctp } meta priority set meta l4proto . ct original proto-dst map @learner-nodeports meta priority vmap @nodeport-learners
/// meta priority set none
/// ```
///
/// Goes to the chain that records clients for the timeout of the Service. The chain resets the
/// priority. It is missing if the kernel rejected it, such as one without `jhash`
/// (CONFIG_NFT_HASH).
fn to_chain_of_learner(table: &Table, path: &LookupPath, chains: &Set) -> [Rule; 3] {
    let usual = priority().and(USUAL | (SHARDS - 1));
    let to_number = path.to_number_of_original(&path.learners).into_iter();
    let statements = to_number.chain([priority().vmap(chains)]);
    [
        table.rule([usual.vmap(&table.usual_learners)]),
        table.rule(statements),
        table.rule([reset()]),
    ]
}

#[cfg(test)]
mod tests {
    use vipline_service_model::Family;

    use super::*;
    use crate::plan::tests::assert_documented;

    #[test]
    fn rules_match_their_documentation() {
        let table = Table::of(Family::V4);
        let text = |rules: &[Rule]| -> Vec<String> { rules.iter().map(Rule::to_string).collect() };
        let of_paths = [&table.ips, &table.short_ips, &table.nodeports];
        let recorded = of_paths.map(|path| text(&recorded_endpoint(table, path)));
        let to_chains = [
            text(&to_chain_of_learner(table, &table.ips, &table.of_learners)),
            text(&to_chain_of_learner(
                table,
                &table.nodeports,
                &table.of_nodeport_learners,
            )),
        ];
        assert_documented(
            include_str!("affinity.rs"),
            &[
                ("recorded_endpoint", recorded.concat()),
                ("learners", text(&learners(table))),
                ("to_chain_of_learner", to_chains.concat()),
            ],
        );
    }
}
