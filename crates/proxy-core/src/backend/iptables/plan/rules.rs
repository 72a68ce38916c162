//! Constructors of chains and rules.

use vipline_iptables::{Chain, ChainName, Contents, Object, Position, Rule, SharedRule};
use vipline_service_model::{Family, LocalTraffic};

use super::names;

/// Returns a chain with exactly these rules.
pub(in crate::backend) fn chain<'a>(
    family: Family,
    table: &str,
    name: ChainName,
    rules: impl IntoIterator<Item = Rule<'a>>,
) -> Object {
    let rules = rules.into_iter().map(|rule| rule.for_family(family));
    Chain::new(names::table(table), name)
        .with_rules(rules.collect())
        .into()
}

/// Returns a chain whose rules have several owners.
pub(in crate::backend) fn shared(table: &str, name: &str) -> Object {
    Chain::new(names::table(table), names::chain(name))
        .with_contents(Contents::SharedRules)
        .into()
}

/// Returns a rule of a chain whose rules have several owners.
pub(in crate::backend) fn entry(
    family: Family,
    table: &str,
    chain: &str,
    position: Position,
    rule: Rule<'_>,
) -> Object {
    Object::from(SharedRule {
        table: names::table(table),
        chain: names::chain(chain),
        position,
        occurrence: 0,
        rule: rule.for_family(family).to_string().into(),
    })
}

/// Restricts a rule to traffic of local pods.
pub(in crate::backend) fn from_pods<'a>(rule: Rule<'a>, local: &LocalTraffic) -> Rule<'a> {
    match local {
        LocalTraffic::Cidr(cidr) => rule.with_source(*cidr),
        LocalTraffic::Interface(name) => rule.with_in_interface(name.to_string()),
        LocalTraffic::InterfacePrefix(prefix) => rule.with_in_interface(format!("{prefix}+")),
    }
}

/// Restricts a rule to all traffic except that of local pods.
pub(in crate::backend) fn not_from_pods<'a>(rule: Rule<'a>, local: &LocalTraffic) -> Rule<'a> {
    match local {
        LocalTraffic::Cidr(cidr) => rule.with_not_source(*cidr),
        LocalTraffic::Interface(name) => rule.with_not_in_interface(name.to_string()),
        LocalTraffic::InterfacePrefix(prefix) => rule.with_not_in_interface(format!("{prefix}+")),
    }
}
