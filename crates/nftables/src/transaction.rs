//! Transactions: edits in the order the kernel takes them, as one batch.

use std::collections::{HashMap, HashSet};

use vipline_reconcile::Edit;

use crate::{Batch, Chain, Element, Object, Set, Table, TableId};

/// Edits in the order the kernel takes them.
///
/// The kernel does all of a transaction or nothing.
/// Its text is a script that `nft -f` loads.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    pub(crate) steps: Vec<Step>,
}

/// Something the kernel is told in one message, or in a few.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    AddTable(Table),
    DeleteTable(Table),
    AddSet(Set),
    DeleteSet(Set),
    AddChain(Chain),
    FlushChain(Chain),
    DeleteChain(Chain),
    AddRule(Chain, usize),
    AddElements(Vec<Element>),
    DeleteElements(Vec<Element>),
}

impl Transaction {
    /// Returns the transaction that makes these edits.
    ///
    /// Tables come first, then what is in the way goes: rules, elements,
    /// chains, sets; then come sets, chains, rules and elements.
    /// Within each of these, edits keep their order; elements of a set
    /// stand together.
    ///
    /// - The change of an element removes and adds it.
    /// - The change of a chain exchanges its rules, or all of it if packets
    ///   are to enter it elsewhere.
    /// - The change of a set exchanges it: all its elements and the rules that
    ///   use it have to be among the edits.
    /// - What is in a removed table goes with it.
    pub fn from_edits(edits: &[Edit<Object>]) -> Self {
        let mut order = Order::default();
        let removed_tables: HashSet<&TableId> = edits
            .iter()
            .filter_map(|edit| match edit {
                Edit::Remove(Object::Table(table)) => Some(&table.id),
                _ => None,
            })
            .collect();
        for edit in edits {
            match edit {
                Edit::Add(object) => order.add(object),
                Edit::Change { old, new } => order.change(old, new),
                Edit::Remove(object @ Object::Table(_)) => order.remove(object),
                Edit::Remove(object) if removed_tables.contains(object.table()) => {}
                Edit::Remove(object) => order.remove(object),
            }
        }
        order.into_transaction()
    }

    /// Tells whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Encodes the transaction as one batch for the kernel.
    ///
    /// Messages are numbered from `sequence` on.
    /// With a `generation` the kernel refuses the batch unless it is the
    /// number of its present one ([`wire::generation`]).
    /// Only the last message before the end asks for an acknowledgement;
    /// refusals are reported anyway.
    pub fn encode(&self, sequence: u32, generation: Option<u32>) -> Batch<'_> {
        Batch::new(self, sequence, generation)
    }
}

impl Step {
    pub(crate) fn elements(&self) -> &[Element] {
        match self {
            Self::AddElements(elements) | Self::DeleteElements(elements) => elements,
            _ => &[],
        }
    }
}

/// Steps by kind, in the order the kinds have in a transaction.
#[derive(Default)]
struct Order {
    add_tables: Vec<Step>,
    flush_chains: Vec<Step>,
    delete_elements: Groups,
    delete_chains: Vec<Step>,
    delete_sets: Vec<Step>,
    delete_tables: Vec<Step>,
    add_sets: Vec<Step>,
    add_chains: Vec<Step>,
    add_rules: Vec<Step>,
    add_elements: Groups,
}

impl Order {
    fn add(&mut self, object: &Object) {
        match object {
            Object::Table(table) => self.add_tables.push(Step::AddTable(table.clone())),
            Object::Set(set) => self.add_sets.push(Step::AddSet(set.clone())),
            Object::Element(element) => self.add_elements.push(element),
            Object::Chain(chain) => {
                self.add_chains.push(Step::AddChain(chain.clone()));
                self.add_rules(chain);
            }
        }
    }

    fn add_rules(&mut self, chain: &Chain) {
        let rules = (0..chain.rules.len()).map(|at| Step::AddRule(chain.clone(), at));
        self.add_rules.extend(rules);
    }

    fn change(&mut self, old: &Object, new: &Object) {
        match (old, new) {
            (Object::Chain(old), Object::Chain(new)) if old.base == new.base => {
                self.flush_chains.push(Step::FlushChain(old.clone()));
                self.add_rules(new);
            }
            // Its properties are user data, which stays as it is.
            (Object::Table(_), Object::Table(_)) => {}
            (old, new) => {
                self.remove(old);
                self.add(new);
            }
        }
    }

    fn remove(&mut self, object: &Object) {
        match object {
            Object::Table(table) => self.delete_tables.push(Step::DeleteTable(table.clone())),
            Object::Set(set) => self.delete_sets.push(Step::DeleteSet(set.clone())),
            Object::Element(element) => self.delete_elements.push(element),
            Object::Chain(chain) => {
                // Its rules go first, for they may lead to chains that go, too.
                if !chain.rules.is_empty() {
                    self.flush_chains.push(Step::FlushChain(chain.clone()));
                }
                self.delete_chains.push(Step::DeleteChain(chain.clone()));
            }
        }
    }

    fn into_transaction(self) -> Transaction {
        let mut steps = self.add_tables;
        steps.extend(self.flush_chains);
        steps.extend(
            self.delete_elements
                .lists
                .into_iter()
                .map(Step::DeleteElements),
        );
        steps.extend(self.delete_chains);
        steps.extend(self.delete_sets);
        steps.extend(self.add_sets);
        steps.extend(self.add_chains);
        steps.extend(self.add_rules);
        steps.extend(self.add_elements.lists.into_iter().map(Step::AddElements));
        steps.extend(self.delete_tables);
        Transaction { steps }
    }
}

/// Elements by set, the sets in the order of their first elements.
#[derive(Default)]
struct Groups {
    lists: Vec<Vec<Element>>,
    places: HashMap<u64, Vec<usize>>,
    last: usize,
}

impl Groups {
    fn push(&mut self, element: &Element) {
        let set = element.set();
        let is_here = |list: &Vec<Element>| {
            list.first()
                .is_some_and(|first| first.set().is_same_set(set))
        };
        if !self.lists.get(self.last).is_some_and(is_here) {
            let places = self.places.entry(set.place_hash()).or_default();
            let known = places
                .iter()
                .copied()
                .find(|at| self.lists.get(*at).is_some_and(is_here));
            self.last = known.unwrap_or_else(|| {
                places.push(self.lists.len());
                self.lists.push(Vec::new());
                self.lists.len() - 1
            });
        }
        if let Some(list) = self.lists.get_mut(self.last) {
            list.push(element.clone());
        }
    }
}
