//! Rules from saves, objects and dumps, prepared for evaluation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vipline_iptables::matches::Match;
use vipline_iptables::nft::{self, SetNames};
use vipline_iptables::targets::Target;
use vipline_iptables::{
    Contents, Family, Object, Policy, Position, RestoreError, Rule, Ruleset, TableName, Tables,
    Variant,
};
use vipline_nftables as nftables;
use vipline_nftables::{Name, TableId};

use super::xtables::Xtables;
use crate::Evaluator;

/// Prefix of a table of the legacy variant whose name a table of nf_tables has.
pub(super) const LEGACY: &str = "legacy-";

/// The rules of all tables and families that a packet passes.
///
/// ```
/// use vipline_evaluate::iptables::Rules;
/// use vipline_iptables::{Family, Tables};
///
/// let v4 = Tables::parse("*filter\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n")?;
/// let v6 = Tables::parse("*filter\n-A INPUT -p ipv6-icmp -j ACCEPT\nCOMMIT\n")?;
/// let rules = Rules::new().with_save(&v4, Family::V4)?.with_save(&v6, Family::V6)?;
/// let evaluator = rules.evaluator();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rules {
    ruleset: nftables::Ruleset,
    sets: SetNames,
}

/// Chains by table and name: policy of a built-in chain, and rules as text.
type Chains = BTreeMap<(TableName, String), (Option<Policy>, Vec<String>)>;

impl Rules {
    /// Creates an empty ruleset, which accepts all packets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the rules of a dump, with all tables of nf_tables and of iptables-nft.
    ///
    /// `sets` has the IP sets of the network namespace. Match `set` and target `SET` of a
    /// set without a name are not supported.
    pub fn from_dump(dump: nftables::Ruleset, sets: SetNames) -> Self {
        Self {
            ruleset: dump,
            sets,
        }
    }

    /// Adds the tables of a save, or of a hand-written document for `iptables-restore`.
    ///
    /// A chain replaces the chain of the same name. Both variants have the same rules.
    /// Evaluation fails at a rule that this crate cannot parse.
    ///
    /// # Errors
    ///
    /// [`RestoreError`] if `iptables-restore` refuses the document.
    pub fn with_save(self, save: &Tables<'_>, family: Family) -> Result<Self, RestoreError> {
        let ruleset = Ruleset::from_save(save, family, Variant::Nft)?;
        Ok(self.with_ruleset(&ruleset))
    }

    /// Adds the tables of a save of the legacy variant besides those of nf_tables: packets
    /// pass both.
    ///
    /// If nf_tables has a table of the same name, the table gets prefix `legacy-`.
    ///
    /// # Errors
    ///
    /// As [`with_save`](Self::with_save).
    pub fn with_legacy_save(
        mut self,
        save: &Tables<'_>,
        family: Family,
    ) -> Result<Self, RestoreError> {
        let legacy = Self::from_dump(nftables::Ruleset::new(), self.sets.clone());
        let legacy = legacy.with_save(save, family)?;
        let objects = self.ruleset.objects();
        let taken: BTreeSet<TableId> = objects.map(|it| it.table().clone()).collect();
        let objects = legacy.ruleset.into_iter();
        self.ruleset
            .extend(objects.map(|object| renamed(object, &taken)));
        self.sets = legacy.sets;
        Ok(self)
    }

    /// Adds the tables of a ruleset. A chain replaces the chain of the same name.
    #[must_use]
    pub fn with_ruleset(mut self, ruleset: &Ruleset) -> Self {
        let mut chains = Chains::new();
        for name in ruleset.tables() {
            let Ok(table) = TableName::new(name) else {
                continue;
            };
            for chain in ruleset.chains(name) {
                let rules = chain.rules.iter().map(|it| it.rule.clone()).collect();
                chains.insert((table, chain.name.clone()), (chain.policy, rules));
            }
        }
        self.add(ruleset.family(), chains);
        self
    }

    /// Adds objects, such as those of a plan, in order. A chain replaces the chain of the same
    /// name. A rule at the head of a chain precedes the rules that were added before.
    #[must_use]
    pub fn with_objects<'o>(
        mut self,
        objects: impl IntoIterator<Item = &'o Object>,
        family: Family,
    ) -> Self {
        let mut chains = Chains::new();
        let mut heads: BTreeMap<(TableName, String), Vec<String>> = BTreeMap::new();
        for object in objects {
            match object {
                Object::Chain(chain) => {
                    let key = (chain.table, chain.name.as_str().to_owned());
                    let (policy, rules) = chains.entry(key).or_default();
                    *policy = chain.policy;
                    if let Contents::Rules(own) = &chain.contents {
                        rules.extend(own.iter().map(str::to_owned));
                    }
                }
                Object::SharedRule(shared) => {
                    let key = (shared.table, shared.chain.as_str().to_owned());
                    let text = shared.rule.to_string();
                    match shared.position {
                        Position::Head => heads.entry(key).or_default().push(text),
                        Position::Tail => chains.entry(key).or_default().1.push(text),
                    }
                }
            }
        }
        for (key, mut rules) in heads {
            rules.reverse();
            let (_, tail) = chains.entry(key).or_default();
            rules.append(tail);
            *tail = rules;
        }
        self.add(family, chains);
        self
    }

    /// Adds objects of nf_tables.
    #[must_use]
    pub fn with_nftables(mut self, objects: impl IntoIterator<Item = nftables::Object>) -> Self {
        self.ruleset.extend(objects);
        self
    }

    /// Creates an evaluator for packets of both families.
    pub fn evaluator(&self) -> Evaluator {
        let extensions = Xtables::new(self.sets.clone());
        Evaluator::new(&self.ruleset).with_extensions(Arc::new(extensions))
    }

    fn add(&mut self, family: Family, chains: Chains) {
        let mut sets = self.sets.clone();
        for ((table, name), (policy, texts)) in chains {
            let rules: Vec<Option<Rule<'_>>> =
                texts.iter().map(|text| Rule::parse(text).ok()).collect();
            rules
                .iter()
                .flatten()
                .for_each(|rule| name_sets(rule, &mut sets));
            let encoded = rules.iter().zip(&texts).map(|(rule, text)| match rule {
                Some(rule) => {
                    let rule = rule.clone().for_family(family);
                    nft::encode_partially(&rule, family, &sets)
                }
                None => nft::text_rule(text),
            });
            let Ok(chain_name) = Name::new(&name) else {
                continue;
            };
            let id = nft::table_id(family, table);
            let chain = nftables::Chain::new(id.clone(), chain_name).with_rules(encoded);
            let base = nft::base_chains(table).find(|(base, _)| base.as_str() == name);
            let chain = match base {
                Some((_, base)) => chain.with_base(match policy {
                    Some(Policy::Drop) => base.with_policy(nftables::Policy::Drop),
                    _ => base,
                }),
                None => chain,
            };
            let table = nftables::Table::new(id);
            self.ruleset.extend([table.into(), chain.into()]);
        }
        self.sets = sets;
    }
}

/// Renames the table of a chain of the legacy variant if the name is taken.
fn renamed(object: nftables::Object, taken: &BTreeSet<TableId>) -> nftables::Object {
    let free = |id: TableId| match Name::new(&format!("{LEGACY}{}", id.name)) {
        Ok(name) if taken.contains(&id) => TableId::new(id.family, name),
        _ => id,
    };
    match object {
        nftables::Object::Chain(mut chain) => {
            chain.table = free(chain.table);
            nftables::Object::Chain(chain)
        }
        nftables::Object::Table(table) => nftables::Table::new(free(table.id)).into(),
        other => other,
    }
}

/// Assigns indices to the IP sets that a rule names.
fn name_sets(rule: &Rule<'_>, sets: &mut SetNames) {
    for one in &rule.matches {
        if let Match::Set(set) = one {
            sets.assign(set.name.value());
        }
    }
    if let Some(Target::Set(set)) = &rule.target {
        let references = [&set.add, &set.del, &set.map].into_iter().flatten();
        references.for_each(|it| sets.assign(&it.name));
    }
}
