//! Requests in error messages.

use vipline_netlink::Errno;

use crate::wire::Query;
use crate::{Element, Error, RuleHandle};

/// Returns the operation and object of a request, for error messages.
fn describe(query: &Query<'_>) -> (&'static str, String) {
    match query {
        Query::Table(table) => ("list table", table.to_string()),
        Query::Chain(table, chain) => ("list chain", format!("{table} {chain}")),
        Query::Chains(family) => ("list chains", family.to_string()),
        Query::Rules(table) => ("list rules of table", table.to_string()),
        Query::RulesOf(table, chain) => ("list rules of chain", format!("{table} {chain}")),
        Query::Sets(table) => ("list sets of table", table.to_string()),
        Query::Element(element) => ("get element", element_text(element)),
        Query::ResetElement(element) => ("reset element", element_text(element)),
        Query::Rule(table, chain, RuleHandle(handle)) => {
            ("list rule", format!("{table} {chain} handle {handle}"))
        }
        Query::ResetRule(table, chain, RuleHandle(handle)) => {
            ("reset rule", format!("{table} {chain} handle {handle}"))
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

fn element_text(element: &Element) -> String {
    let (set, key) = (element.set(), element.key_text());
    format!("{} {} {{ {key} }}", set.table, set.name)
}

/// Returns whether the kernel may have rejected a request because it does not know the
/// type of the message.
pub(crate) fn may_be_unknown(error: &Error) -> bool {
    matches!(error.errno(), Some(Errno::INVAL | Errno::OPNOTSUPP))
}

/// Returns the error of a request that the kernel does not know.
pub(crate) fn too_old(query: &Query<'_>, since: &'static str) -> Error {
    let (operation, object) = describe(query);
    Error::KernelTooOld {
        operation,
        object: object.into(),
        since,
    }
}

/// Adds operation and object of a request to an error.
pub(crate) fn request_error(query: &Query<'_>, error: vipline_netlink::Error) -> Error {
    let (operation, object) = describe(query);
    Error::from_request(operation, object, error)
}
