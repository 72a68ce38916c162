//! Rules of session affinity that do not depend on Services.

use vipline_nftables::expression::{l4proto, priority};
use vipline_nftables::statement::{Statement, dnat, goto, jump, return_};
use vipline_nftables::{Chain, Name, Rule, Set};

use crate::backend::nftables::plan::affinity::{LOCAL, SHARDS, reset};
use crate::backend::nftables::plan::names::{self, name};
use crate::backend::nftables::plan::table::{LookupPath, Table};

/// Returns the chains that send clients to their recorded endpoints, and those that lead
/// translated connections to the recording chains.
pub(super) fn chains(table: &Table) -> Vec<Chain> {
    let of_paths = table.paths_with_own_sets().into_iter();
    let mut chains: Vec<_> = of_paths
        .map(|path| table.chain(chain_of(path), recorded_endpoint(table, path)))
        .collect();
    let ips = to_chain_of_learner(&table.ips, &table.of_learners);
    let nodeports = to_chain_of_learner(&table.nodeports, &table.of_nodeport_learners);
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
/// meta priority none return
/// dnat ip to ip daddr . meta l4proto . th dport . meta priority map @recorded
/// meta priority set ip daddr . meta l4proto . th dport map @pool-ips meta priority & 0:3f vmap @forgets
/// meta priority set meta priority & 7fff:ffff
/// meta priority & 0:3f vmap @recalls
/// meta priority none return
/// dnat ip to ip daddr . meta l4proto . th dport . meta priority map @short-recorded
/// meta priority set ip daddr . meta l4proto . th dport map @pool-ips meta priority set meta priority & 7fff:ffff meta priority & 0:3f vmap @forgets
/// meta priority & 8000:0 == none jump mark-for-masquerade
/// meta priority & 0:3f vmap @recalls
/// meta priority none return
/// dnat ip to meta l4proto . th dport . meta priority map @nodeport-recorded
/// meta priority set meta l4proto . th dport map @pool-nodeports meta priority & 0:3f vmap @forgets
/// ```
///
/// Looks up the client in the map of its pool, and sends it to its endpoint. If the address
/// does not have this endpoint anymore, deletes the client and returns. The chain of
/// `recalls` and that of `forgets` return.
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
        vec![priority().and(LOCAL).is(0_u32), mark]
    });
    let token = path.key_and(priority());
    let rules = [
        vec![shard().vmap(&table.recalls)],
        vec![priority().is(0_u32), return_()],
        vec![dnat(token.map(&path.recorded))],
        [path.to_number(&path.pools)]
            .into_iter()
            .chain(of_all())
            .chain([shard().vmap(&table.forgets)])
            .collect(),
    ];
    let before = of_all().map(|statement| vec![statement]);
    let rules = before.into_iter().chain(masquerade).chain(rules);
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
/// meta l4proto { tcp, udp, sctp } meta priority set ct original ip daddr . meta l4proto . ct original proto-dst map @learner-ips meta priority vmap @learners
/// meta priority set none
/// meta l4proto { tcp, udp, sctp } meta priority set meta l4proto . ct original proto-dst map @learner-nodeports meta priority vmap @nodeport-learners
/// meta priority set none
/// ```
///
/// Goes to the chain that records clients for the timeout of the Service. The chain resets the
/// priority. It is missing if the kernel rejected it, such as one without `jhash`
/// (CONFIG_NFT_HASH).
fn to_chain_of_learner(path: &LookupPath, chains: &Set) -> [Rule; 2] {
    let to_number = path.to_number_of_original(&path.learners).into_iter();
    let statements = to_number.chain([priority().vmap(chains)]);
    let rule = |statements: Vec<Statement>| Rule::new(path.id.family, statements);
    [rule(statements.collect()), rule(vec![reset()])]
}

#[cfg(test)]
mod tests {
    use vipline_service_model::Family;

    use super::*;
    use crate::backend::nftables::plan::tests::assert_documented;

    #[test]
    fn rules_match_their_documentation() {
        let table = Table::of(Family::V4);
        let text = |rules: &[Rule]| -> Vec<String> { rules.iter().map(Rule::to_string).collect() };
        let of_paths = [&table.ips, &table.short_ips, &table.nodeports];
        let recorded = of_paths.map(|path| text(&recorded_endpoint(table, path)));
        let to_chains = [
            text(&to_chain_of_learner(&table.ips, &table.of_learners)),
            text(&to_chain_of_learner(
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
