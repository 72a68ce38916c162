//! Tables as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::client::Client;
use super::error::Error;
use super::saved::{Saved, SavedChain, SavedRule};
use crate::ruleset::built_in;
use crate::{Counters, Policy, TableName};

/// The lines of a table.
#[derive(Debug, Default)]
struct Lines {
    /// Declarations and rules by position and name of the chain.
    chains: BTreeMap<(usize, String), (String, Vec<String>)>,
    /// Rules without a form of iptables, as comments.
    others: Vec<String>,
}

impl Client {
    /// Saves tables with the counters of their rules: `iptables-nft-save --counters`.
    ///
    /// All tables are from one generation of the ruleset. Rules that this crate cannot
    /// decode become comments with their chain and handle.
    ///
    /// # Errors
    ///
    /// The same as [`dump`](Self::dump).
    pub fn save(&mut self, tables: &[TableName]) -> Result<String, Error> {
        let start = BTreeMap::<TableName, Lines>::new;
        let (mut saved, _) = self.dump(tables, start, |lines, saved| match saved {
            Saved::Chain(chain) => lines.entry(chain.table).or_default().chain(chain),
            Saved::Rule(rule) => lines.entry(rule.table).or_default().rule(rule),
        })?;
        let mut text = String::new();
        for table in tables {
            if let Some(mut lines) = saved.remove(table) {
                lines.add_built_in(*table);
                lines.write(*table, &mut text);
            }
        }
        Ok(text)
    }
}

impl Lines {
    fn chain(&mut self, chain: SavedChain<'_>) {
        let line = match chain.policy {
            Some(policy) => format!(":{} {policy} {}", chain.name, chain.counters),
            None => format!(":{} - {}", chain.name, Counters::default()),
        };
        let key = key(chain.table, chain.name);
        self.chains.insert(key, (line, Vec::new()));
    }

    /// Adds the built-in chains that do not exist, which have policy ACCEPT.
    fn add_built_in(&mut self, table: TableName) {
        for name in built_in::chains(table.as_str()) {
            let line = format!(":{name} {} {}", Policy::Accept, Counters::default());
            let lines = self.chains.entry(key(table, name));
            lines.or_insert((line, Vec::new()));
        }
    }

    fn rule(&mut self, rule: SavedRule<'_>) {
        let chain = rule.chain;
        let Some(decoded) = rule.rule() else {
            let line = format!(
                "# chain {chain}: rule with handle {} is unknown",
                rule.handle.0
            );
            self.others.push(line);
            return;
        };
        let counters = rule.counters().unwrap_or_default();
        let line = format!("{counters} -A {chain} {decoded}");
        if let Some((_, rules)) = self.chains.get_mut(&key(rule.table, chain)) {
            rules.push(line.trim_end().to_owned());
        }
    }

    fn write(&self, table: TableName, out: &mut String) {
        let declared = self.chains.values().map(|(line, _)| line);
        let rules = self.chains.values().flat_map(|(_, rules)| rules);
        let lines = declared.chain(rules).chain(&self.others);
        let lines: String = lines.map(|line| format!("{line}\n")).collect();
        let written = write!(out, "*{table}\n{lines}COMMIT\n");
        written.expect("writing to a string cannot fail");
    }
}

/// Returns the position of a chain: built-in chains in the order of the hooks, then
/// user-defined chains by name.
fn key(table: TableName, name: &str) -> (usize, String) {
    let names = built_in::chains(table.as_str());
    let place = names.iter().position(|known| *known == name);
    (place.unwrap_or(names.len()), name.to_owned())
}
