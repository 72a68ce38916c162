//! Capacities of ipsets.
//!
//! `ipset create NAME … -exist` fails if the set exists with another `maxelem`.
//! Upstream creates all its sets this way at each sync.
//! So a set has the `maxelem` of upstream, and a larger one only while its
//! entries need it.

use std::collections::{BTreeMap, BTreeSet};

use vipline_ipset::{Name, Object, Set, Sets};
use vipline_reconcile::Edit;

use crate::backend::ipvs::plan::base::DEFAULT_MAXELEM;

/// `maxelem` of a set with more entries.
const LARGE: u32 = 1 << 20;

/// The installed sets with their entry counts.
#[derive(Debug, Default)]
pub(super) struct Capacities {
    sets: BTreeMap<Name, (Set, usize)>,
}

impl Capacities {
    /// Records dumped sets.
    ///
    /// A large set that must be large is returned with the planned capacity.
    pub(super) fn dumped(&mut self, sets: Sets) -> Sets {
        self.sets.clear();
        let mut planned = Sets::default();
        for mut listed in sets {
            let count = listed.entries.len();
            let name = listed.set.name.clone();
            self.sets.insert(name, (listed.set.clone(), count));
            if is_large(&listed.set) && !fits_default(count) {
                listed.set.maxelem = Some(DEFAULT_MAXELEM);
            }
            planned.insert(listed);
        }
        planned
    }

    /// Increases the capacity of sets that get more entries than the default capacity.
    ///
    /// All additions are counted before any removal, because they are committed first.
    pub(super) fn fit(&self, edits: &mut Vec<Edit<Object>>) {
        let mut counts: BTreeMap<Name, usize> = BTreeMap::new();
        for edit in &*edits {
            if let Edit::Add(Object::Entry(entry)) = edit {
                *counts.entry(entry.set.clone()).or_default() += 1;
            }
        }
        for (name, (_, count)) in &self.sets {
            *counts.entry(name.clone()).or_default() += count;
        }
        counts.retain(|_, count| !fits_default(*count));
        if counts.is_empty() {
            return;
        }
        let mut edited = BTreeSet::new();
        for edit in &mut *edits {
            if let Edit::Add(Object::Set(set))
            | Edit::Change {
                new: Object::Set(set),
                ..
            } = edit
                && counts.contains_key(&set.name)
            {
                set.maxelem = Some(LARGE);
                edited.insert(set.name.clone());
            }
        }
        edits.retain(|edit| !is_without_effect(edit));
        let small = self.sets.values().filter(|(set, _)| {
            counts.contains_key(&set.name) && !edited.contains(&set.name) && !is_large(set)
        });
        edits.extend(small.map(|(set, _)| enlarged(set)));
    }

    /// Records committed edits.
    pub(super) fn wrote(&mut self, edits: &[Edit<Object>]) {
        for edit in edits {
            match edit {
                Edit::Add(Object::Set(set)) => {
                    self.sets.insert(set.name.clone(), ((**set).clone(), 0));
                }
                Edit::Change {
                    new: Object::Set(set),
                    ..
                } => {
                    let count = self.sets.get(&set.name).map_or(0, |(_, count)| *count);
                    self.sets.insert(set.name.clone(), ((**set).clone(), count));
                }
                Edit::Remove(Object::Set(set)) => {
                    self.sets.remove(&set.name);
                }
                Edit::Add(Object::Entry(entry)) => {
                    if let Some((_, count)) = self.sets.get_mut(&entry.set) {
                        *count += 1;
                    }
                }
                Edit::Remove(Object::Entry(entry)) => {
                    if let Some((_, count)) = self.sets.get_mut(&entry.set) {
                        *count = count.saturating_sub(1);
                    }
                }
                _ => {}
            }
        }
    }
}

fn fits_default(count: usize) -> bool {
    count <= DEFAULT_MAXELEM as usize
}

fn is_large(set: &Set) -> bool {
    set.maxelem.is_some_and(|maxelem| maxelem >= LARGE)
}

fn is_without_effect(edit: &Edit<Object>) -> bool {
    matches!(
        edit,
        Edit::Change { old: Object::Set(old), new: Object::Set(new) } if old.is_equivalent(new)
    )
}

/// Returns the edit that replaces a set by a large one with the same entries.
fn enlarged(set: &Set) -> Edit<Object> {
    let new = set.clone().with_maxelem(LARGE);
    Edit::Change {
        old: set.clone().into(),
        new: new.into(),
    }
}

#[cfg(test)]
mod tests;
