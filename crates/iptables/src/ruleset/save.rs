//! Rulesets as saves and objects.

use std::fmt;

use super::{ChainState, Ruleset};
use crate::ruleset::built_in;
use crate::{Chain, ChainName, Contents, InvalidName, Object, TableName};

impl Ruleset {
    /// Returns the save with counters of rules: `iptables-save --counters`.
    pub fn to_save_with_counters(&self) -> String {
        Save {
            ruleset: self,
            has_counters: true,
        }
        .to_string()
    }

    /// Returns all chains as objects with their complete rules.
    ///
    /// # Errors
    ///
    /// [`InvalidName`] for a chain that the programs of iptables accept and
    /// [`ChainName`] does not, such as one with a quote.
    pub fn objects(&self) -> Result<Vec<Object>, InvalidName> {
        let mut objects = Vec::new();
        for (table, state) in &self.tables {
            let table = TableName::new(table)?;
            for chain in &state.chains {
                let rules = chain.rules.iter().map(|rule| &rule.rule);
                let contents = Contents::Rules(rules.collect());
                let mut object =
                    Chain::new(table, ChainName::new(&chain.name)?).with_contents(contents);
                object.policy = chain.policy;
                objects.push(object.into());
            }
        }
        Ok(objects)
    }
}

/// Prints the save without counters of rules: `iptables-save`.
///
/// Tables come in the order in which packets traverse them.
impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let save = Save {
            ruleset: self,
            has_counters: false,
        };
        save.fmt(f)
    }
}

struct Save<'a> {
    ruleset: &'a Ruleset,
    has_counters: bool,
}

impl fmt::Display for Save<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in built_in::TABLES {
            let Some(table) = self.ruleset.tables.get(name) else {
                continue;
            };
            writeln!(f, "*{name}")?;
            for chain in &table.chains {
                match chain.policy {
                    Some(policy) => writeln!(f, ":{} {policy} {}", chain.name, chain.counters)?,
                    None => writeln!(f, ":{} - [0:0]", chain.name)?,
                }
            }
            for chain in &table.chains {
                self.rules(chain, f)?;
            }
            f.write_str("COMMIT\n")?;
        }
        Ok(())
    }
}

impl Save<'_> {
    fn rules(&self, chain: &ChainState, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in &chain.rules {
            if self.has_counters {
                write!(f, "{} ", rule.counters)?;
            }
            let blank = if rule.rule.is_empty() { "" } else { " " };
            writeln!(f, "-A {}{blank}{}", chain.name, rule.rule)?;
        }
        Ok(())
    }
}
