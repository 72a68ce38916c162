//! Mapping of rejected lines of a document to edits.

use std::collections::{HashMap, HashSet};
use std::fmt;

use vipline_iptables::{Chain, Contents, Key, Object, SharedRule, jump_target};
use vipline_reconcile::{Attempt, Cause, Edit, Reason};

use crate::backend::iptables::plan::base::is_optional;
use crate::owned::is_of_service;

/// Error messages of the programs and their error numbers.
const ERRNOS: [(&str, i32); 9] = [
    ("No such file or directory", ENOENT),
    ("No chain/target/match by that name", ENOENT),
    ("does a matching rule exist in that chain", ENOENT),
    ("Argument list too long", 7),
    ("Cannot allocate memory", 12),
    ("Device or resource busy", 16),
    ("File exists", EEXIST),
    ("Invalid argument", 22),
    ("No space left on device", 28),
];

/// `ENOENT` and `EEXIST` of `asm-generic/errno-base.h`.
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;

/// Returns the reason of a rejection from the message of the program.
pub(super) fn reason(message: &str) -> Reason {
    let known = ERRNOS.iter().find(|(words, _)| message.contains(words));
    reason_of(known.map(|(_, errno)| *errno), message)
}

/// Returns the reason of a rejection from its error number, if known, and its message.
pub(super) fn reason_of(errno: Option<i32>, message: impl fmt::Display) -> Reason {
    let cause = match errno {
        Some(ENOENT | EEXIST) => Cause::Conflict,
        _ => Cause::Rejected,
    };
    Reason::rejected(errno, message).with_cause(cause)
}

/// Returns the edits of a batch whose objects are in committed sections.
pub(super) fn applied<'a>(
    edits: &'a [Edit<Object>],
    batch: &[usize],
    keys: impl Iterator<Item = Key<'a>>,
) -> Vec<usize> {
    let keys: HashSet<_> = keys.collect();
    let is_applied = |index: &&usize| {
        let edit = &edits[**index];
        // Flushing a chain also removes its entries.
        let of_chain = match edit {
            Edit::Remove(Object::SharedRule(entry)) => {
                keys.contains(&Key::Chain(&entry.table, &entry.chain))
            }
            _ => false,
        };
        of_chain || keys.contains(&edit.key())
    };
    batch.iter().filter(is_applied).copied().collect()
}

/// Finds the edits of a `batch` that a rejected line belongs to.
///
/// Returns `None` if the rules of all Services need the object. A line without an object,
/// such as `COMMIT`, names no edit.
pub(super) fn attempt(
    edits: &[Edit<Object>],
    batch: &[usize],
    applied: Vec<usize>,
    line: Option<&str>,
    reason: Reason,
) -> Option<Attempt> {
    let is_applied: HashSet<_> = applied.iter().copied().collect();
    let others = batch.iter().filter(|index| !is_applied.contains(index));
    let is_named = |index: &&usize| line.is_some_and(|line| is_about(line, &edits[**index]));
    let named = others
        .filter(is_named)
        .map(|&index| (index, reason.clone()));
    rejected(edits, applied, named.collect(), reason)
}

/// Returns a rejection of the `named` edits.
///
/// Returns `None` if the rules of all Services need one of their objects.
pub(super) fn rejected(
    edits: &[Edit<Object>],
    applied: Vec<usize>,
    named: Vec<(usize, Reason)>,
    reason: Reason,
) -> Option<Attempt> {
    let mut indexes = named.iter().map(|(index, _)| *index);
    indexes
        .all(|index| is_isolatable(&edits[index]))
        .then_some(Attempt::Rejected {
            applied,
            named,
            reason,
        })
}

/// Returns whether a line of a document is part of an edit.
fn is_about(line: &str, edit: &Edit<Object>) -> bool {
    match edit.object() {
        Object::Chain(chain) => {
            // A rule of a shared chain is an entry.
            let is_rule = line.starts_with("-A ") || line.starts_with("-I ");
            let is_part = !is_rule || matches!(chain.contents, Contents::Rules(_));
            is_part && chain_of(line) == Some(chain.name.as_str()) && !line.starts_with("-D ")
        }
        Object::SharedRule(entry) => match edit {
            Edit::Remove(_) => is_line_of(line, "-D ", entry),
            _ => ["-A ", "-I "]
                .iter()
                .any(|word| is_line_of(line, word, entry)),
        },
    }
}

fn is_line_of(line: &str, word: &str, entry: &SharedRule) -> bool {
    let rest = line.strip_prefix(word);
    let rest = rest.and_then(|rest| rest.strip_prefix(entry.chain.as_str()));
    rest.and_then(|rest| rest.strip_prefix(' ')) == Some(&*entry.rule)
}

/// Returns the chain in a line: `:NAME …`, `-A NAME …`, `-X NAME`.
fn chain_of(line: &str) -> Option<&str> {
    let mut words = line.split(' ');
    let first = words.next()?;
    match first.strip_prefix(':') {
        Some(name) => Some(name),
        None if first.starts_with('-') => words.next(),
        None => None,
    }
}

/// Returns whether the rules of other Services work without an edit.
fn is_isolatable(edit: &Edit<Object>) -> bool {
    match edit {
        Edit::Remove(_) => true,
        Edit::Add(Object::Chain(chain))
        | Edit::Change {
            new: Object::Chain(chain),
            ..
        } => is_of_service(chain.name.as_str()) || is_optional(edit.object()),
        _ => true,
    }
}

/// Edits, grouped by the chains of Services that they affect.
#[derive(Debug)]
pub(super) struct Groups<'a> {
    edits: &'a [Edit<Object>],
    /// Group of each edit. A group contains all edits that are connected by jumps.
    groups: Vec<usize>,
    /// Index of the edit that creates, changes or removes each chain.
    chains: HashMap<&'a str, usize>,
}

impl<'a> Groups<'a> {
    /// Groups edits.
    pub(super) fn new(edits: &'a [Edit<Object>]) -> Self {
        let mut sets = Sets::default();
        let mut chains = HashMap::new();
        let mut groups = Vec::with_capacity(edits.len());
        for (index, edit) in edits.iter().enumerate() {
            let group = sets.add();
            if let Object::Chain(chain) = edit.object() {
                chains.insert(chain.name.as_str(), index);
            }
            for name in names_in(edit) {
                sets.join(group, name);
            }
            groups.push(group);
        }
        let groups = groups.into_iter().map(|group| sets.find(group)).collect();
        Self {
            edits,
            groups,
            chains,
        }
    }

    /// Returns the group of an edit.
    pub(super) fn of(&self, index: usize) -> usize {
        self.groups[index]
    }

    /// Returns the index at which to split sorted edits, near the middle.
    ///
    /// A group is never split, because its rules jump to its chains.
    pub(super) fn split(&self, part: &[usize]) -> usize {
        let is_end = |&at: &usize| self.of(part[at - 1]) != self.of(part[at]);
        let middle = part.len() / 2;
        let later = (middle.max(1)..part.len()).find(is_end);
        later
            .or_else(|| (1..middle).rev().find(is_end))
            .unwrap_or(0)
    }

    /// Sorts edits by group. Edits that the rules of all Services need come first.
    pub(super) fn sort(&self, indexes: &mut [usize]) {
        let is_of_service = |index: usize| match self.edits[index].object() {
            Object::Chain(chain) => is_of_service(chain.name.as_str()),
            Object::SharedRule(_) => true,
        };
        indexes.sort_by_key(|&index| (is_of_service(index), self.groups[index], index));
    }

    /// Returns the edits that depend on the `rejected` edits: all edits of their groups.
    ///
    /// For a rejected removal of a chain, these are only the removals of chains that its
    /// rules jump to.
    pub(super) fn dependents(&self, rejected: &[usize]) -> Vec<usize> {
        let (removals, others): (Vec<_>, Vec<_>) = rejected
            .iter()
            .partition(|&&index| matches!(self.edits[index], Edit::Remove(_)));
        let mut dependents = self.kept_targets(removals);
        dependents.extend(self.jumps_to_rejected_chains(&others));
        let groups: HashSet<_> = others.iter().map(|&index| self.of(index)).collect();
        let all = 0..self.edits.len();
        dependents.extend(all.filter(|&index| groups.contains(&self.of(index))));
        dependents
    }

    /// Returns the edits with jumps to chains that do not exist, because the kernel rejected
    /// them. Chains of Services are connected with their jumps by groups.
    fn jumps_to_rejected_chains(&self, rejected: &[usize]) -> Vec<usize> {
        let missing = rejected
            .iter()
            .filter_map(|&index| match &self.edits[index] {
                Edit::Add(Object::Chain(chain)) if !is_of_service(chain.name.as_str()) => {
                    Some((chain.table, chain.name.as_str()))
                }
                _ => None,
            });
        let missing: HashSet<_> = missing.collect();
        if missing.is_empty() {
            return Vec::new();
        }
        let jumps = (0..self.edits.len()).filter(|&index| {
            let object = self.edits[index].object();
            let table = match object {
                Object::Chain(chain) => chain.table,
                Object::SharedRule(entry) => entry.table,
            };
            targets(object).any(|target| missing.contains(&(table, target)))
        });
        jumps.collect()
    }

    /// Returns the removals of chains to which remaining chains jump.
    fn kept_targets(&self, mut staying: Vec<usize>) -> Vec<usize> {
        let mut kept = HashSet::new();
        while let Some(index) = staying.pop() {
            for target in targets(self.edits[index].object()) {
                let Some(&place) = self.chains.get(target) else {
                    continue;
                };
                if matches!(self.edits[place], Edit::Remove(_)) && kept.insert(place) {
                    staying.push(place);
                }
            }
        }
        kept.into_iter().collect()
    }
}

/// Returns the chains of Services that an edit creates, changes, removes or jumps to.
fn names_in(edit: &Edit<Object>) -> impl Iterator<Item = &str> {
    let (old, new) = match edit {
        Edit::Add(new) => (None, Some(new)),
        Edit::Change { old, new } => (Some(old), Some(new)),
        Edit::Remove(old) => (Some(old), None),
    };
    let objects = old.into_iter().chain(new);
    let names = objects.flat_map(|object| {
        let own = match object {
            Object::Chain(chain) => Some(chain.name.as_str()),
            Object::SharedRule(_) => None,
        };
        own.into_iter().chain(targets(object))
    });
    names.filter(|name| is_of_service(name))
}

/// Returns the chains that rules of an object jump to.
fn targets(object: &Object) -> impl Iterator<Item = &str> {
    let (chain, entry) = match object {
        Object::Chain(chain) => (Some(chain), None),
        Object::SharedRule(entry) => (None, Some(&*entry.rule)),
    };
    let rules = chain.into_iter().flat_map(Chain::rules).chain(entry);
    rules.filter_map(jump_target)
}

/// Disjoint sets of edits (union-find), some with names of chains.
#[derive(Debug, Default)]
struct Sets<'a> {
    parents: Vec<usize>,
    names: HashMap<&'a str, usize>,
}

impl<'a> Sets<'a> {
    /// Adds a set with one edit.
    fn add(&mut self) -> usize {
        self.parents.push(self.parents.len());
        self.parents.len() - 1
    }

    /// Merges a set with the set of a name.
    fn join(&mut self, set: usize, name: &'a str) {
        let named = *self.names.entry(name).or_insert(set);
        let (one, other) = (self.find(set), self.find(named));
        self.parents[one.max(other)] = one.min(other);
    }

    fn find(&mut self, mut set: usize) -> usize {
        while self.parents[set] != set {
            self.parents[set] = self.parents[self.parents[set]];
            set = self.parents[set];
        }
        set
    }
}

#[cfg(test)]
mod tests;
