//! Installed chains of ours and the jumps to them.

use std::collections::HashMap;

use vipline_iptables::targets::Target;
use vipline_iptables::{Chain, ChainName, Contents, Object, Position, Rule, SharedRule, TableName};

use crate::backend::iptables::plan::layout::Layout;
use crate::backend::iptables::plan::names::{self, Kind, NAT};

/// Our chains and the jumps to them, collected one by one.
#[derive(Debug)]
pub(in crate::backend) struct Installed {
    layout: Layout,
    chains: Vec<Found>,
    /// Index of each chain in `chains`.
    places: HashMap<(TableName, ChainName), usize>,
    jumps: Vec<Object>,
}

/// A chain of ours.
#[derive(Debug)]
struct Found {
    table: TableName,
    name: ChainName,
    kind: Kind,
    /// Rules in our own notation.
    rules: Vec<String>,
    /// Whether a rule is unknown.
    is_unknown: bool,
}

/// Stands for an unknown rule. Equals no planned rule.
const UNKNOWN: &str = "-j ?";

impl Installed {
    pub(in crate::backend) fn new(layout: Layout) -> Self {
        Self {
            layout,
            chains: Vec::new(),
            places: HashMap::new(),
            jumps: Vec::new(),
        }
    }

    /// Adds a chain if it is one of ours.
    pub(in crate::backend) fn declare(&mut self, table: TableName, name: &str) {
        let kind = (self.layout.kind)(table.as_str(), name);
        let Ok(name) = ChainName::new(name) else {
            return;
        };
        if matches!(kind, Kind::Whole | Kind::Shared) {
            self.places.insert((table, name), self.chains.len());
            self.chains.push(Found {
                table,
                name,
                kind,
                rules: Vec::new(),
                is_unknown: false,
            });
        }
    }

    /// Adds a rule of one of our chains, or a jump of ours. `rule` returns the rule in our
    /// own notation, or `None` if the rule is unknown.
    pub(in crate::backend) fn add(
        &mut self,
        table: TableName,
        chain: &str,
        rule: impl FnOnce() -> Option<String>,
    ) {
        let Ok(name) = ChainName::new(chain) else {
            return;
        };
        if let Some(&place) = self.places.get(&(table, name)) {
            let found = &mut self.chains[place];
            let rule = rule();
            found.is_unknown |= rule.is_none();
            found.rules.push(rule.unwrap_or_else(|| UNKNOWN.into()));
        } else if (self.layout.kind)(table.as_str(), chain) == Kind::System
            && let Some(rule) = rule()
        {
            self.add_jump(table, name, &rule);
        }
    }

    /// Adds a jump of ours, once. Other jumps to our chains belong to other programs.
    fn add_jump(&mut self, table: TableName, chain: ChainName, rule: &str) {
        let entry = Object::from(SharedRule {
            table,
            chain,
            position: Position::Head,
            occurrence: 0,
            rule: rule.into(),
        });
        let is_ours = (self.layout.is_jump)(table.as_str(), chain.as_str(), rule);
        if is_ours && !self.jumps.contains(&entry) {
            self.jumps.push(entry);
        }
    }

    /// Returns the installed objects.
    pub(in crate::backend) fn into_objects(self) -> Vec<Object> {
        let mut objects = self.jumps;
        for found in self.chains {
            found.into_objects(&mut objects);
        }
        objects
    }

    /// Returns the installed objects without shared chains, so that the next commit
    /// rewrites those chains regardless of their rules.
    pub(super) fn into_whole_chains(mut self) -> Vec<Object> {
        self.chains.retain(|found| found.kind == Kind::Whole);
        self.into_objects()
    }
}

impl Found {
    fn into_objects(self, out: &mut Vec<Object>) {
        let Self {
            table, name, kind, ..
        } = self;
        if kind == Kind::Whole {
            let rules = self.rules.iter().collect();
            out.push(Chain::new(table, name, rules).into());
            return;
        }
        // An unknown rule cannot be deleted. The next commit rewrites the whole chain.
        if self.is_unknown {
            return;
        }
        out.push(Chain::with(table, name, Contents::SharedRules).into());
        let last = self.rules.iter().rev();
        let tails = last.take_while(|rule| is_tail(table, name, rule)).count();
        let first_tail = self.rules.len() - tails;
        let mut copies: HashMap<String, u32> = HashMap::new();
        for (place, rule) in self.rules.into_iter().enumerate() {
            let position = match place < first_tail && !follows_its_counter(table, name, &rule) {
                true => Position::Head,
                false => Position::Tail,
            };
            let shared = rule.as_str().into();
            let seen = copies.entry(rule).or_default();
            out.push(Object::from(SharedRule {
                table,
                chain: name,
                position,
                occurrence: *seen,
                rule: shared,
            }));
            *seen += 1;
        }
    }
}

/// Returns whether a rule must follow the rule that counts its packets.
fn follows_its_counter(table: TableName, chain: ChainName, rule: &str) -> bool {
    (table.as_str(), chain.as_str()) == (NAT, names::NODEPORTS) && !rule.contains(" --nfacct-name ")
}

/// Returns whether a rule belongs to the end of its chain.
fn is_tail(table: TableName, chain: ChainName, rule: &str) -> bool {
    let goes_to_node_ports = || {
        let target = Rule::parse(rule).ok().and_then(|rule| rule.target);
        target == Some(Target::Jump(names::chain(names::NODEPORTS)))
    };
    (table.as_str(), chain.as_str()) == (NAT, names::SERVICES) && goes_to_node_ports()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use vipline_iptables::Keyed as _;

    use super::*;

    /// Returns the chains and rules that a table with these rules contains.
    fn objects(rules: &[(&str, Option<&str>)]) -> Vec<Object> {
        let mut installed = Installed::new(Layout::IPTABLES);
        let nat = names::table(NAT);
        let chains: BTreeSet<_> = rules.iter().map(|(chain, _)| chain).collect();
        for chain in chains {
            installed.declare(nat, chain);
        }
        for (chain, rule) in rules {
            installed.add(nat, chain, || rule.map(str::to_owned));
        }
        installed.into_objects()
    }

    #[test]
    fn a_chain_with_an_unknown_rule_differs_from_each_plan() {
        let planned = objects(&[(names::MARK_MASQ, Some("-j MARK --set-xmark 0x4000/0x4000"))]);
        let found = objects(&[(names::MARK_MASQ, None)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].key(), planned[0].key());
        assert!(!found[0].is_equivalent(&planned[0]));
    }

    #[test]
    fn a_shared_chain_with_an_unknown_rule_is_rewritten() {
        let known = ("KUBE-SERVICES", Some("-d 10.96.0.1/32 -j KUBE-SVC-A"));
        assert_eq!(objects(&[known]).len(), 2);
        assert_eq!(objects(&[known, ("KUBE-SERVICES", None)]), []);
    }

    #[test]
    fn unknown_rules_of_other_programs_are_ignored() {
        assert_eq!(objects(&[("OUTPUT", None), ("DOCKER", None)]), []);
    }
}
