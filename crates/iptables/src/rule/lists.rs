//! Lists of addresses: `-s 10.0.0.1,10.0.0.2`.

use crate::options::Unsupported;
use crate::options::address::Network;
use crate::options::negatable::Negatable;
use crate::rule::Rule;

/// A condition on an address; `None` for all addresses.
pub(super) type Condition = Option<Negatable<Network>>;

/// Lists of addresses. An empty list is no list.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) sources: Vec<Condition>,
    pub(super) destinations: Vec<Condition>,
}

impl Lists {
    /// Returns a rule for each pair of addresses, sources first.
    pub(super) fn expand<'a>(&self, rule: &Rule<'a>) -> Vec<Rule<'a>> {
        let source = [rule.source];
        let destination = [rule.destination];
        let or = |list: &'_ [Condition], one: &'_ [Condition]| match list {
            [] => one.to_vec(),
            list => list.to_vec(),
        };
        let sources = or(&self.sources, &source);
        let destinations = or(&self.destinations, &destination);
        let pairs = sources.iter().flat_map(|source| {
            let with = move |destination: &Condition| (*source, *destination);
            destinations.iter().map(with)
        });
        let with = |(source, destination)| Rule {
            source,
            destination,
            ..rule.clone()
        };
        pairs.map(with).collect()
    }
}

/// Parses a network. A network of all addresses is no condition.
///
/// Negated, it is a condition, which the legacy variant saves.
pub(super) fn network(text: &str, negated: bool) -> Result<Condition, Unsupported> {
    match Network::parse(text) {
        Some(network) if network.is_all() && !negated => Ok(None),
        Some(network) => Ok(Some(Negatable::new(negated, network))),
        None if text == "0/0" && !negated => Ok(None),
        None => Err(Unsupported),
    }
}
