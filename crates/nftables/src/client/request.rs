//! Requests in error messages.

use std::fmt;

use vipline_netlink::Errno;

use crate::wire::Query;
use crate::{Element, Error, RuleHandle};

/// Returns the operation of a request, for error messages.
pub(crate) fn operation(query: &Query<'_>) -> &'static str {
    match query {
        Query::Table(_) => "list table",
        Query::Chain(..) => "list chain",
        Query::Chains(_) => "list chains",
        Query::Rules(_) => "list rules of table",
        Query::RulesOf(..) => "list rules of chain",
        Query::Sets(_) => "list sets of table",
        Query::Element(_) => "get element",
        Query::ResetElement(_) => "reset element",
        Query::Rule(..) => "list rule",
        Query::ResetRule(..) => "reset rule",
        Query::Tables => "list",
        Query::ResetRules(_, None) => "reset rules of table",
        Query::ResetRules(_, Some(_)) => "reset rules of chain",
        Query::ResetStateful(_) => "reset objects of table",
        Query::Stateful(_) => "list stateful objects of table",
        Query::Flowtables(_) => "list flowtables of table",
        Query::Elements(_) => "list set",
        Query::Generation => "get the generation of",
    }
}

/// The object of a request, for error messages.
///
/// A value instead of a text, because requests that succeed need no text.
pub(crate) struct Requested<'a>(pub(crate) &'a Query<'a>);

impl fmt::Display for Requested<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Query::Table(table)
            | Query::Rules(table)
            | Query::Sets(table)
            | Query::ResetRules(table, None)
            | Query::ResetStateful(table)
            | Query::Stateful(table)
            | Query::Flowtables(table) => write!(f, "{table}"),
            Query::Chain(table, chain)
            | Query::RulesOf(table, chain)
            | Query::ResetRules(table, Some(chain)) => write!(f, "{table} {chain}"),
            Query::Chains(family) => write!(f, "{family}"),
            Query::Element(element) | Query::ResetElement(element) => fmt_element(element, f),
            Query::Rule(table, chain, RuleHandle(handle))
            | Query::ResetRule(table, chain, RuleHandle(handle)) => {
                write!(f, "{table} {chain} handle {handle}")
            }
            Query::Tables => f.write_str("tables"),
            Query::Elements(set) => write!(f, "{} {}", set.table, set.name),
            Query::Generation => f.write_str("the ruleset"),
        }
    }
}

fn fmt_element(element: &Element, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (set, key) = (element.set(), element.key_text());
    write!(f, "{} {} {{ {key} }}", set.table, set.name)
}

/// Returns whether the kernel may have rejected a request because it does not know the
/// type of the message.
pub(crate) fn may_be_unknown(error: &Error) -> bool {
    matches!(error.errno(), Some(Errno::INVAL | Errno::OPNOTSUPP))
}

/// Returns the error of a request that the kernel does not know.
pub(crate) fn too_old(query: &Query<'_>, since: &'static str) -> Error {
    Error::KernelTooOld {
        operation: operation(query),
        object: Requested(query).to_string().into(),
        since,
    }
}
