//! Installed chains of ours and the jumps to them.

use std::collections::{HashMap, HashSet};

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
    jumps: Vec<SharedRule>,
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

    /// Adds a jump of ours. Other jumps to our chains belong to other programs.
    fn add_jump(&mut self, table: TableName, chain: ChainName, rule: &str) {
        if !(self.layout.is_jump)(table.as_str(), chain.as_str(), rule) {
            return;
        }
        let entry = SharedRule {
            table,
            chain,
            position: Position::Head,
            occurrence: 0,
            rule: rule.into(),
        };
        let copies = self.jumps.iter().filter(|it| is_copy(it, &entry)).count();
        let occurrence = u32::try_from(copies).expect("the number of copies fits in 32 bits");
        self.jumps.push(SharedRule {
            occurrence,
            ..entry
        });
    }

    /// Returns our jumps. Those of a chain in which one exists twice count as further copies, so
    /// that the next commit deletes all of them and inserts each once, in their order.
    ///
    /// `kube-proxy` never adds a second one, because it asks first. Two programs that ask at the
    /// same time do, such as the kubelet of 1.23 with its jump to KUBE-FIREWALL, and so does
    /// whoever restores saved rules with `--noflush`. To delete one copy is not enough: a deletion
    /// finds the first one, and the other one may follow rules of other programs, which then
    /// decide before ours.
    fn jumps(jumps: Vec<SharedRule>) -> impl Iterator<Item = Object> {
        let copies = jumps.iter().filter(|it| it.occurrence > 0);
        let doubled: HashSet<_> = copies.map(|it| (it.table, it.chain)).collect();
        jumps.into_iter().map(move |mut jump| {
            jump.occurrence += u32::from(doubled.contains(&(jump.table, jump.chain)));
            Object::from(jump)
        })
    }

    /// Returns the installed objects.
    pub(in crate::backend) fn into_objects(self) -> Vec<Object> {
        let mut objects: Vec<_> = Self::jumps(self.jumps).collect();
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

/// Returns whether two jumps differ in their occurrence at most.
fn is_copy(one: &SharedRule, other: &SharedRule) -> bool {
    (one.table, one.chain, &one.rule) == (other.table, other.chain, &other.rule)
}

impl Found {
    fn into_objects(self, out: &mut Vec<Object>) {
        let Self {
            table, name, kind, ..
        } = self;
        if kind == Kind::Whole {
            let rules = self.rules.iter().collect();
            out.push(Chain::new(table, name).with_rules(rules).into());
            return;
        }
        // An unknown rule cannot be deleted. The next commit rewrites the whole chain.
        if self.is_unknown {
            return;
        }
        out.push(
            Chain::new(table, name)
                .with_contents(Contents::SharedRules)
                .into(),
        );
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
    fn jumps_beside_a_second_copy_are_further_copies() {
        let mut installed = Installed::new(Layout::IPTABLES);
        let comment = "-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";
        for (table, chain, rule) in [
            ("nat", "OUTPUT", comment),
            ("filter", "INPUT", "-j KUBE-FIREWALL"),
            ("filter", "INPUT", "-p tcp -m tcp --dport 22 -j ACCEPT"),
            (
                "filter",
                "INPUT",
                "-m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS",
            ),
            ("filter", "INPUT", "-j KUBE-FIREWALL"),
            ("filter", "INPUT", "-j KUBE-FIREWALL"),
            ("filter", "OUTPUT", "-j KUBE-FIREWALL"),
        ] {
            installed.add(names::table(table), chain, || Some(rule.to_owned()));
        }
        let found = installed.into_objects().into_iter().map(|object| {
            let Object::SharedRule(it) = object else {
                panic!("{object:?}");
            };
            let (_, target) = it.rule.rsplit_once(' ').unwrap();
            format!("{} {} {target} {}", it.table, it.chain, it.occurrence)
        });
        let expected = [
            "nat OUTPUT KUBE-SERVICES 0",
            "filter INPUT KUBE-FIREWALL 1",
            "filter INPUT KUBE-NODEPORTS 1",
            "filter INPUT KUBE-FIREWALL 2",
            "filter INPUT KUBE-FIREWALL 3",
            "filter OUTPUT KUBE-FIREWALL 0",
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn unknown_rules_of_other_programs_are_ignored() {
        assert_eq!(objects(&[("OUTPUT", None), ("DOCKER", None)]), []);
    }
}
