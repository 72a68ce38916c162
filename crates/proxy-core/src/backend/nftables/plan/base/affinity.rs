//! Rules that record the endpoints of clients with session affinity.

use vipline_nftables::expr::CtKey;
use vipline_nftables::expression::{Expression, concat, ct_original, ct_original_daddr, l4proto};
use vipline_nftables::statement::Statement;
use vipline_nftables::{Chain, Rule, Value};
use vipline_service_model::Protocol;

use crate::backend::nftables::plan::names;
use crate::backend::nftables::plan::table::Table;

/// Returns the chain that sends translated connections to the recording chains.
pub(super) fn chains(table: &Table) -> Vec<Chain> {
    vec![table.chain(names::AFFINITY_LEARNING, learners(table))]
}

/// ```nft
/// meta l4proto @sticky-protocols meta l4proto { tcp, udp, sctp } ct original ip daddr . meta l4proto . ct original proto-dst vmap @sticky-ips
/// meta l4proto @sticky-nodeport-protocols meta l4proto { tcp, udp, sctp } meta l4proto . ct original proto-dst vmap @sticky-nodeports
/// ```
///
/// Looks up the original destination and goes to the chain that records the client's
/// endpoint. The small sets of protocols skip lookups that find nothing.
fn learners(table: &Table) -> [Rule; 2] {
    let vip = [ct_original_daddr(table.family())];
    [
        table.rule([
            l4proto().in_set(&table.sticky_protocols),
            has_ports(),
            original_destination(vip.into()).vmap(&table.ips.learners),
        ]),
        table.rule([
            l4proto().in_set(&table.sticky_nodeport_protocols),
            has_ports(),
            original_destination(Vec::new()).vmap(&table.nodeports.learners),
        ]),
    ]
}

/// Returns the original destination after the fields `first`: `… . meta l4proto . ct
/// original proto-dst`.
fn original_destination(first: Vec<Expression>) -> Expression {
    let port = [l4proto(), ct_original(CtKey::ProtoDst)];
    concat(first.into_iter().chain(port))
}

/// Returns the protocol match that nft requires before `proto-dst`.
fn has_ports() -> Statement {
    let protocols = Protocol::ALL.map(|it| [Value::from(it.number())]);
    l4proto()
        .is_one_of(protocols)
        .expect("the values have the type of the field")
}

#[cfg(test)]
mod tests {
    use vipline_service_model::Family;

    use super::*;
    use crate::backend::nftables::plan::tests::assert_documented;

    #[test]
    fn rules_match_their_documentation() {
        let rules = learners(Table::of(Family::V4));
        let text = rules.iter().map(Rule::to_string).collect();
        assert_documented(include_str!("affinity.rs"), &[("learners", text)]);
    }
}
