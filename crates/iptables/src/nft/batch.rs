//! Edits as one batch of nf_tables.
//!
//! A batch knows no text: it names rules to delete by handle, and the kernel reports a rejected
//! operation by its number. So a plan sorts the edits first, the client reads what the plan needs
//! to know ([`State`]), and only then the batch is filled, with a note of the [`Origin`] of each
//! operation. For example, chain A gets other rules, and a jump to it is deleted from FORWARD:
//!
//! ```text
//! batch                            origin                line of a restore document
//! 0  add table ip filter           Table                 *filter
//! 1  add chain ip filter A         Declare(0)            :A - [0:0]
//! 2  flush chain ip filter A       Declare(0)            :A - [0:0]
//! 3  delete rule handle 7          Delete(1)             -D FORWARD -j A
//! 4  add rule ip filter A accept   Rule(0, 0)            -A A -j ACCEPT
//! ```
//!
//! If the kernel rejects operation 4, the error is about edit 0 and shows `-A A -j ACCEPT`.
//!
//! What must stay true:
//!
//! - Each operation of the batch has exactly one origin, in the same order. One too few, and every
//!   error after it names another edit.
//! - The state and the batch belong to one generation, which the batch requires. Otherwise a handle
//!   could be that of a rule that another program has replaced.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use vipline_netlink::{Errno, Rejected};
use vipline_nftables as nftables;
use vipline_nftables::{BatchBuilder, Name, RuleHandle, RulePosition, Subject, TableId};
use vipline_reconcile::Edit;

use super::deletions::Deletions;
use super::error::{Error, Operation, not_encoded};
use super::sets::SetIndexes;
use super::{Unsupported, base_chains, encode_with, table_id};
use crate::{Chain, ChainName, Contents, Family, Object, Policy, Position, Rule, SharedRule};
use crate::{Counters, TableName};

/// The edits of a commit, grouped by table and operation.
///
/// The order is that of [`Restore`](crate::Restore): chains are created and flushed,
/// shared rules deleted, chains filled, shared rules added, and chains deleted.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    family: Family,
    edits: &'a [Edit<Object>],
    /// Tables in name order.
    tables: Vec<(TableName, TablePlan<'a>)>,
}

/// The edits of one table with their indices.
#[derive(Debug, Default)]
struct TablePlan<'a> {
    /// Chains to create or flush, and to fill.
    declared: Vec<(usize, &'a Chain)>,
    removed: Vec<(usize, &'a Chain)>,
    added: Vec<(usize, &'a SharedRule)>,
    deleted: Vec<(usize, &'a SharedRule)>,
    /// Chains that are created, and so are empty.
    made: HashSet<ChainName>,
    /// Chains that are flushed, and so lack rules to delete.
    flushed: HashSet<ChainName>,
}

/// The state of the kernel that a batch depends on.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Built-in chains that exist.
    pub(super) built_in: HashSet<(TableName, Name)>,
    /// Handles of rules to delete, by index of the edit.
    handles: HashMap<usize, Vec<RuleHandle>>,
}

/// Origin of an operation of a batch. Small, because a batch may have millions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// Index of the table in [`Plan::tables`].
    table: u32,
    part: Part,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Table,
    /// Index of a built-in chain that a shared rule needs.
    BuiltIn(u32),
    /// Index of an edit: creates or flushes its chain.
    Declare(u32),
    /// Index of an edit, and of the rule in its chain.
    Rule(u32, u32),
    /// Index of an edit: inserts its rule.
    Insert(u32),
    /// Index of an edit: appends its rule.
    Append(u32),
    /// Index of an edit: deletes its rule.
    Delete(u32),
    /// Index of an edit: deletes its chain.
    RemoveChain(u32),
}

impl<'a> Plan<'a> {
    pub(super) fn new(edits: &'a [Edit<Object>], family: Family) -> Self {
        let mut tables: BTreeMap<TableName, TablePlan<'a>> = BTreeMap::new();
        for (index, edit) in edits.iter().enumerate() {
            let table = match edit.object() {
                Object::Chain(chain) => chain.table,
                Object::SharedRule(rule) => rule.table,
            };
            tables.entry(table).or_default().add(index, edit);
        }
        Self {
            family,
            edits,
            tables: tables.into_iter().collect(),
        }
    }

    /// Returns whether a rule names an IP set, so that the sets must be read.
    ///
    /// A search in the text, because the rules are parsed later. A comment with these words
    /// only costs a dump of the names of sets.
    pub(super) fn uses_sets(&self) -> bool {
        let names_set = |rule: &str| rule.contains("-m set ") || rule.contains("-j SET ");
        self.edits.iter().any(|edit| match edit.object() {
            Object::Chain(chain) => chain.rules().any(names_set),
            Object::SharedRule(rule) => names_set(&rule.rule),
        })
    }

    /// Returns the built-in chains to which the edits add shared rules.
    pub(super) fn built_in(&self) -> impl Iterator<Item = (TableName, Name)> {
        self.tables.iter().flat_map(|(table, plan)| {
            let used = plan.chains_with_additions();
            let chains = base_chains(*table).map(|(name, _)| name);
            let chains = chains.filter(move |name| used.contains(name.as_str()));
            chains.map(|name| (*table, name))
        })
    }

    /// Returns the chains with rules to delete.
    pub(super) fn chains_with_deletions(&self, sets: &SetIndexes) -> Result<Vec<Deletions>, Error> {
        let mut chains: BTreeMap<(u32, ChainName), Deletions> = BTreeMap::new();
        for ((table, plan), number_of_table) in self.tables.iter().zip(0..) {
            for (index, rule) in plan.deletions() {
                let origin = Origin {
                    table: number_of_table,
                    part: Part::Delete(number(index)),
                };
                let encoded = self.encode(&rule.rule, sets, origin)?;
                let chain = chains.entry((number_of_table, rule.chain));
                let id = || table_id(self.family, *table);
                let chain = chain.or_insert_with(|| Deletions::new(id(), chain_name(rule.chain)));
                encoded.iter().for_each(|rule| chain.push(index, rule));
            }
        }
        Ok(chains.into_values().collect())
    }

    /// Adds the handles that a dump of a chain found.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] with `ENOENT` if a rule to delete does not exist.
    pub(super) fn found(&self, deletions: Deletions, state: &mut State) -> Result<(), Error> {
        let table = self.tables.iter().zip(0..).find_map(|((name, _), number)| {
            (name.as_str() == deletions.table.name.as_str()).then_some(number)
        });
        // Always found: the deletions are those of a table of this plan.
        let table = table.unwrap_or_default();
        let (found, missing) = deletions.finish();
        for (index, handle) in found {
            state.handles.entry(index).or_default().push(handle);
        }
        if missing.is_empty() {
            return Ok(());
        }
        // The error that a restore program would cause, so that callers treat both alike.
        let rejected = missing.into_iter().map(|index| {
            let part = Part::Delete(number(index));
            let operation = self.operation(Origin { table, part });
            Rejected::new(operation, Errno::NOENT)
        });
        Err(Error::from_rejected(rejected.collect()))
    }

    /// Appends the operations to a batch, and returns their origins.
    pub(super) fn fill(
        &self,
        state: &State,
        sets: &SetIndexes,
        batch: &mut BatchBuilder,
    ) -> Result<Vec<Origin>, Error> {
        let mut origins = Vec::new();
        for ((table, plan), number_of_table) in self.tables.iter().zip(0..) {
            let mut filler = Filler {
                plan: self,
                table: *table,
                number_of_table,
                id: table_id(self.family, *table),
                state,
                sets,
                batch: &mut *batch,
                origins: &mut origins,
            };
            filler.fill(plan)?;
        }
        Ok(origins)
    }

    /// Encodes the rules of a text: one for each pair of listed addresses.
    fn encode(
        &self,
        text: &str,
        sets: &SetIndexes,
        origin: Origin,
    ) -> Result<Vec<nftables::Rule>, Error> {
        let rules = Rule::parse_all(text).map_err(Unsupported::new);
        let encode = |rule: &Rule<'_>| encode_with(rule, self.family, sets);
        let encoded = rules.and_then(|rules| rules.iter().map(encode).collect());
        encoded.map_err(|source| not_encoded(self.operation(origin), source))
    }

    /// Converts the error of a commit: adds the edits of rejected operations.
    pub(super) fn name(&self, origins: &[Origin], error: nftables::Error) -> Error {
        error.map(|operation| match operation.subject {
            Subject::Index(index) => match origins.get(index) {
                Some(origin) => self.operation(*origin),
                None => Operation::whole(),
            },
            // The begin or the end of the batch.
            _ => Operation::whole(),
        })
    }

    /// Returns the operation of an origin as a line of a restore document.
    fn operation(&self, Origin { table, part }: Origin) -> Operation {
        let place = |index| usize::try_from(index).unwrap_or(usize::MAX);
        // Always found, like the rules and lines below: origins name parts of this plan. Where one
        // is not, the error still comes, with a text that lacks it.
        let Some((table, _)) = self.tables.get(place(table)) else {
            return Operation::whole();
        };
        let (edit, line) = match part {
            Part::Table => (None, format!("*{table}")),
            Part::BuiltIn(index) => {
                let (name, _) = base_chains(*table).nth(place(index)).unzip();
                let name = name.as_ref().map_or("", Name::as_str);
                (
                    None,
                    format!(":{name} {} {}", Policy::Accept, Counters::default()),
                )
            }
            Part::Declare(edit) => (Some(edit), self.line(edit, declaration)),
            Part::RemoveChain(edit) => (
                Some(edit),
                self.line(edit, |chain| format!("-X {}", chain.name)),
            ),
            Part::Rule(edit, index) => {
                let rule = |chain: &Chain| {
                    let rule = chain.rules().nth(place(index)).unwrap_or_default();
                    format!("-A {} {rule}", chain.name)
                };
                (Some(edit), self.line(edit, rule))
            }
            Part::Insert(edit) => (Some(edit), self.shared_line("-I", edit)),
            Part::Append(edit) => (Some(edit), self.shared_line("-A", edit)),
            Part::Delete(edit) => (Some(edit), self.shared_line("-D", edit)),
        };
        Operation {
            edit: edit.map(place),
            table: Some(*table),
            line: line.into(),
        }
    }

    fn edit(&self, index: u32) -> Option<&'a Edit<Object>> {
        self.edits.get(usize::try_from(index).ok()?)
    }

    fn line(&self, edit: u32, line: impl FnOnce(&Chain) -> String) -> String {
        match self.edit(edit).map(Edit::object) {
            Some(Object::Chain(chain)) => line(chain),
            _ => String::new(),
        }
    }

    fn shared_line(&self, command: &str, edit: u32) -> String {
        match self.edit(edit).map(Edit::object) {
            Some(Object::SharedRule(rule)) => format!("{command} {} {}", rule.chain, rule.rule),
            _ => String::new(),
        }
    }
}

impl<'a> TablePlan<'a> {
    fn add(&mut self, index: usize, edit: &'a Edit<Object>) {
        match edit {
            Edit::Add(Object::Chain(chain)) => {
                self.made.insert(chain.name);
                self.declare(index, chain);
            }
            Edit::Change {
                new: Object::Chain(chain),
                ..
            } => self.declare(index, chain),
            Edit::Remove(Object::Chain(chain)) => {
                self.flushed.insert(chain.name);
                self.removed.push((index, chain));
            }
            Edit::Add(Object::SharedRule(rule)) => self.added.push((index, rule)),
            Edit::Remove(Object::SharedRule(rule)) => self.deleted.push((index, rule)),
            // The key of a shared rule has all of it, so there is nothing to change.
            Edit::Change {
                new: Object::SharedRule(_),
                ..
            } => {}
        }
    }

    fn declare(&mut self, index: usize, chain: &'a Chain) {
        self.flushed.insert(chain.name);
        self.declared.push((index, chain));
    }

    /// Returns the rules to delete from chains that are not flushed.
    fn deletions(&self) -> impl Iterator<Item = (usize, &'a SharedRule)> {
        let deleted = self.deleted.iter().copied();
        deleted.filter(|(_, rule)| !self.flushed.contains(&rule.chain))
    }

    /// Returns the chains to which shared rules are added.
    fn chains_with_additions(&self) -> BTreeSet<&'a str> {
        let chains = self.added.iter().map(|(_, rule)| rule.chain.as_str());
        chains.collect()
    }
}

/// Appends the operations of one table.
struct Filler<'f, 'a> {
    plan: &'f Plan<'a>,
    table: TableName,
    number_of_table: u32,
    id: TableId,
    state: &'f State,
    sets: &'f SetIndexes,
    batch: &'f mut BatchBuilder,
    origins: &'f mut Vec<Origin>,
}

impl Filler<'_, '_> {
    fn fill(&mut self, plan: &TablePlan<'_>) -> Result<(), Error> {
        // Without effect if the table exists.
        self.origin(Part::Table);
        self.batch.add_table(&self.id);
        self.built_in(plan);
        // Chains to remove, too: without their rules, which may jump to each other, they can be
        // deleted in any order. One that is gone already is made for a moment, so that its removal
        // does not fail.
        for (index, chain) in plan.declared.iter().chain(&plan.removed) {
            self.declare(*index, chain);
        }
        // Several handles of one edit: a rule with two addresses is two rules of the kernel.
        for (index, rule) in plan.deletions() {
            for handle in self.state.handles.get(&index).into_iter().flatten() {
                self.origin(Part::Delete(number(index)));
                let chain = chain_name(rule.chain);
                self.batch.delete_rule(&self.id, &chain, *handle);
            }
        }
        for (index, chain) in &plan.declared {
            // Shared rules are edits of their own, and other rules of the chain are not ours.
            if matches!(chain.contents, Contents::Rules(_)) {
                self.rules(*index, chain)?;
            }
        }
        let is_head = |rule: &SharedRule| rule.position == Position::Head;
        let heads = plan.added.iter().filter(|(_, rule)| is_head(rule));
        let tails = plan.added.iter().filter(|(_, rule)| !is_head(rule));
        for (index, rule) in heads.chain(tails) {
            // A new chain has no rules to be before, and inserted rules would stand in reverse
            // order.
            let inserts = is_head(rule) && !plan.made.contains(&rule.chain);
            self.add(*index, rule, inserts)?;
        }
        for (index, chain) in &plan.removed {
            // A built-in chain is flushed but not deleted.
            if chain.policy.is_none() {
                self.origin(Part::RemoveChain(number(*index)));
                self.batch.delete_chain(&self.id, &chain_name(chain.name));
            }
        }
        Ok(())
    }

    fn origin(&mut self, part: Part) {
        let table = self.number_of_table;
        self.origins.push(Origin { table, part });
    }

    /// Creates missing built-in chains that get shared rules.
    fn built_in(&mut self, plan: &TablePlan<'_>) {
        let used = plan.chains_with_additions();
        for ((name, mut base), index) in base_chains(self.table).zip(0..) {
            let is_missing = || !self.state.built_in.contains(&(self.table, name.clone()));
            if used.contains(name.as_str()) && is_missing() {
                // iptables-nft counts packets of a policy only if a document declares it.
                base.counter = None;
                self.origin(Part::BuiltIn(index));
                let chain = nftables::Chain::new(self.id.clone(), name).with_base(base);
                self.batch.add_chain(&chain);
            }
        }
    }

    /// Creates a chain, or sets the policy of a built-in chain, and flushes it.
    fn declare(&mut self, index: usize, chain: &Chain) {
        let name = chain_name(chain.name);
        self.origin(Part::Declare(number(index)));
        let base = base_chains(self.table).find(|(built_in, _)| *built_in == name);
        match (chain.policy, base) {
            // With the counter of `base_chains`, unlike in `built_in`: here the document declares
            // the chain.
            (Some(policy), Some((_, base))) => {
                let policy = match policy {
                    Policy::Accept => nftables::Policy::Accept,
                    Policy::Drop => nftables::Policy::Drop,
                };
                let base = base.with_policy(policy);
                let chain = nftables::Chain::new(self.id.clone(), name.clone()).with_base(base);
                self.batch.add_chain(&chain);
            }
            _ => self.batch.add_regular_chain(&self.id, &name),
        }
        self.origin(Part::Declare(number(index)));
        self.batch.flush_chain(&self.id, &name);
    }

    fn rules(&mut self, index: usize, chain: &Chain) -> Result<(), Error> {
        let name = chain_name(chain.name);
        for (place, rule) in chain.rules().enumerate() {
            let part = Part::Rule(number(index), number(place));
            self.rule(&name, part, rule, RulePosition::Tail)?;
        }
        Ok(())
    }

    fn add(&mut self, index: usize, rule: &SharedRule, inserts: bool) -> Result<(), Error> {
        let (part, position) = if inserts {
            (Part::Insert(number(index)), RulePosition::Head)
        } else {
            (Part::Append(number(index)), RulePosition::Tail)
        };
        self.rule(&chain_name(rule.chain), part, &rule.rule, position)
    }

    fn rule(
        &mut self,
        chain: &Name,
        part: Part,
        text: &str,
        position: RulePosition,
    ) -> Result<(), Error> {
        let table = self.number_of_table;
        for rule in self.plan.encode(text, self.sets, Origin { table, part })? {
            self.origin(part);
            self.batch.add_rule(&self.id, chain, position, &rule);
        }
        Ok(())
    }
}

/// Returns the declaration of a chain in a restore document.
fn declaration(chain: &Chain) -> String {
    let counters = Counters::default();
    match chain.policy {
        Some(policy) => format!(":{} {policy} {counters}", chain.name),
        None => format!(":{} - {counters}", chain.name),
    }
}

fn chain_name(chain: ChainName) -> Name {
    Name::new(chain.as_str()).expect("a chain name of iptables is one of nf_tables")
}

/// Returns an index as stored in [`Part`]. There are fewer than `u32::MAX`: that many edits need
/// more memory than a batch can have.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
