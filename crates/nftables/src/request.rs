//! Requests in error messages.

use crate::Error;
use crate::wire::Query;

/// Returns the operation and object of a request, for error messages.
fn describe(query: &Query<'_>) -> (&'static str, String) {
    match query {
        Query::Table(table) => ("list table", table.to_string()),
        Query::Chain(table, chain) => ("list chain", format!("{table} {chain}")),
        Query::Chains(family) => ("list chains", family.to_string()),
        Query::Rules(table) => ("list rules of table", table.to_string()),
        Query::RulesOf(table, chain) => ("list rules of chain", format!("{table} {chain}")),
        Query::Sets(table) => ("list sets of table", table.to_string()),
        Query::Element(element) => {
            let (set, key) = (element.set(), element.key_text());
            let object = format!("{} {} {{ {key} }}", set.table, set.name);
            ("get element", object)
        }
        Query::Tables => ("list", "tables".to_owned()),
        Query::ResetRules(table, None) => ("reset rules of table", table.to_string()),
        Query::ResetRules(table, Some(chain)) => {
            ("reset rules of chain", format!("{table} {chain}"))
        }
        Query::ResetStateful(table) => ("reset objects of table", table.to_string()),
        Query::Stateful(table) => ("list stateful objects of table", table.to_string()),
        Query::Flowtables(table) => ("list flowtables of table", table.to_string()),
        Query::Elements(set) => ("list set", format!("{} {}", set.table, set.name)),
        Query::Generation => ("get the generation of", "the ruleset".to_owned()),
    }
}

/// Adds operation and object of a request to an error.
pub(crate) fn request_error(query: &Query<'_>, error: vipline_netlink::Error) -> Error {
    let (operation, object) = describe(query);
    Error::from_request(operation, object, error)
}
