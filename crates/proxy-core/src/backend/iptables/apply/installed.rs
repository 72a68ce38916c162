//! Parser of installed chains from the output of `iptables-save`.

use std::collections::HashMap;

use vipline_iptables::targets::Target;
use vipline_iptables::{
    Chain, ChainName, Contents, Line, Object, Position, Rule, SharedRule, TableName,
};
use vipline_service_model::Family;

use crate::backend::iptables::plan::layout::Layout;
use crate::backend::iptables::plan::names::{self, Kind, NAT};
use crate::backend::iptables::plan::rules::iptables_family;

/// Our chains and the jumps to them, collected line by line.
#[derive(Debug)]
pub(in crate::backend) struct Installed {
    family: Family,
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
}

impl Installed {
    pub(in crate::backend) fn new(family: Family, layout: Layout) -> Self {
        Self {
            family,
            layout,
            chains: Vec::new(),
            places: HashMap::new(),
            jumps: Vec::new(),
        }
    }

    /// Parses a line of a table. Ignores lines that cannot be parsed.
    pub(in crate::backend) fn take<E>(&mut self, table: TableName, line: &str) -> Result<(), E> {
        match Line::parse(line) {
            Ok(Line::Chain(chain)) => self.declare(table, chain.name()),
            Ok(Line::Rule(rule)) => self.add(table, rule.chain(), rule.spec()),
            _ => {}
        }
        Ok(())
    }

    fn declare(&mut self, table: TableName, name: &str) {
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
            });
        }
    }

    fn add(&mut self, table: TableName, chain: &str, spec: &str) {
        let Ok(name) = ChainName::new(chain) else {
            return;
        };
        if let Some(&place) = self.places.get(&(table, name)) {
            let rule = self.normalized(spec);
            self.chains[place].rules.push(rule);
        } else if (self.layout.kind)(table.as_str(), chain) == Kind::System {
            self.add_jump(table, name, spec);
        }
    }

    /// Adds a jump of ours, once. Other jumps to our chains belong to other programs.
    fn add_jump(&mut self, table: TableName, chain: ChainName, spec: &str) {
        if !spec.contains("KUBE-") {
            return;
        }
        let rule = self.normalized(spec);
        let entry = Object::from(SharedRule {
            table,
            chain,
            position: Position::Head,
            occurrence: 0,
            rule: rule.as_str().into(),
        });
        let place = (self.layout.place_of_jump)(table.as_str(), chain.as_str(), &rule);
        let is_ours = place.is_some();
        if is_ours && !self.jumps.contains(&entry) {
            self.jumps.push(entry);
        }
    }

    /// Converts a rule to our own notation.
    fn normalized(&self, spec: &str) -> String {
        match Rule::parse(spec) {
            Ok(rule) => rule.for_family(iptables_family(self.family)).to_string(),
            Err(_) => spec.to_owned(),
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
