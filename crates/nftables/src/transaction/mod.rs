//! Transactions: ordered edits, applied atomically.

mod operation;

use std::collections::{HashMap, HashSet};

use vipline_reconcile::Edit;

use crate::{Chain, Element, Flowtable, Object, Set, StatefulObject, Table, TableId};

pub use operation::{Action, Operation, Subject};

/// Edits in an order that the kernel accepts.
///
/// The kernel applies a transaction atomically.
/// A transaction displays as a script that `nft -f` loads. The alternate form (`{:#}`)
/// names standard priorities.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    pub(crate) steps: Vec<Step>,
    /// Whether deletions of objects that do not exist succeed.
    pub(crate) destroys: bool,
}

/// One step of a transaction, encoded as one or more messages.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    AddTable(Table),
    DeleteTable(Table),
    AddStateful(StatefulObject),
    DeleteStateful(StatefulObject),
    AddFlowtable(Flowtable),
    DeleteFlowtable(Flowtable),
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
    /// Orders edits into a transaction.
    ///
    /// Order: delete tables, add tables; then remove rules, elements, chains, sets,
    /// stateful objects, flowtables; then add stateful objects, flowtables, sets, chains,
    /// rules and elements.
    /// Edits of the same kind keep their order; elements are grouped by set.
    ///
    /// - A changed element is deleted and added.
    /// - A changed chain gets its rules replaced. If its base (type, hook, priority,
    ///   policy or device) changed, the chain itself is replaced.
    /// - A changed set is deleted and added. The edits must include all its elements
    ///   and all rules that use the set.
    /// - A changed stateful object or flowtable is deleted and added. The edits must
    ///   include all rules and elements that use it.
    /// - Changed table flags are applied first. The kernel rejects new base chains in
    ///   the transaction that clears the flag `dormant`.
    /// - Objects of a removed table are not deleted individually. A table that is
    ///   both removed and added is replaced.
    pub fn from_edits<'a, E>(edits: E) -> Self
    where
        E: IntoIterator<Item = &'a Edit<Object>, IntoIter: Clone>,
    {
        let edits = edits.into_iter();
        let mut order = Order::default();
        let removed_tables: HashSet<&TableId> = edits
            .clone()
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

    /// Deletes the objects that exist: `destroy` of nft. Needs Linux 6.3
    /// ([`Client::has_destroy`](crate::Client::has_destroy)); [`Client::destroy`] works on
    /// older kernels, too.
    ///
    /// Of a table or a set, all content is deleted. Chains lose all their rules, not only
    /// those that the objects contain. The order of the objects does not matter.
    ///
    /// The kernel still rejects an object whose table does not exist, or an element whose
    /// set does not exist.
    ///
    /// [`Client::destroy`]: crate::Client::destroy
    pub fn destroy<'a>(objects: impl IntoIterator<Item = &'a Object>) -> Self {
        Self {
            destroys: true,
            ..Self::delete(objects)
        }
    }

    /// Deletes objects with all their content. Sets go before chains, because the elements of a
    /// map may refer to chains.
    pub(crate) fn delete<'a>(objects: impl IntoIterator<Item = &'a Object>) -> Self {
        let mut order = Order::default();
        for object in objects {
            if let Object::Chain(chain) = object {
                let chain = Chain::clone(chain);
                order.flush_chains.push(Step::FlushChain(chain.clone()));
                order.delete_chains.push(Step::DeleteChain(chain));
            } else {
                order.remove(object);
            }
        }
        let elements = order.delete_elements.lists.into_iter();
        let mut steps = order.flush_chains;
        steps.extend(elements.map(Step::DeleteElements));
        steps.extend(order.delete_sets);
        steps.extend(order.delete_chains);
        steps.extend(order.delete_objects);
        steps.extend(order.delete_tables);
        Self {
            steps,
            destroys: false,
        }
    }

    /// Returns what a step does.
    pub(crate) fn action(&self, step: &Step) -> Action {
        match step.action() {
            Action::Delete if self.destroys => Action::Destroy,
            action => action,
        }
    }

    /// Returns whether the transaction has no operations.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl Step {
    fn action(&self) -> Action {
        match self {
            Self::AddTable(_)
            | Self::AddSet(_)
            | Self::AddStateful(_)
            | Self::AddFlowtable(_)
            | Self::AddChain(_)
            | Self::AddRule(..)
            | Self::AddElements(_) => Action::Add,
            Self::DeleteTable(_)
            | Self::DeleteSet(_)
            | Self::DeleteStateful(_)
            | Self::DeleteFlowtable(_)
            | Self::DeleteChain(_)
            | Self::DeleteElements(_) => Action::Delete,
            Self::FlushChain(_) => Action::Flush,
        }
    }

    pub(crate) fn elements(&self) -> &[Element] {
        match self {
            Self::AddElements(elements) | Self::DeleteElements(elements) => elements,
            _ => &[],
        }
    }
}

/// Steps by kind. [`into_transaction`](Self::into_transaction) orders the kinds.
#[derive(Default)]
struct Order {
    add_tables: Vec<Step>,
    flush_chains: Vec<Step>,
    delete_elements: Groups,
    delete_chains: Vec<Step>,
    delete_sets: Vec<Step>,
    delete_objects: Vec<Step>,
    delete_tables: Vec<Step>,
    add_objects: Vec<Step>,
    add_sets: Vec<Step>,
    add_chains: Vec<Step>,
    add_rules: Vec<Step>,
    add_elements: Groups,
}

impl Order {
    fn add(&mut self, object: &Object) {
        match object {
            Object::Table(table) => self.add_tables.push(Step::AddTable(Table::clone(table))),
            Object::Set(set) => self.add_sets.push(Step::AddSet(set.clone())),
            Object::Element(element) => self.add_elements.push(element),
            Object::Stateful(object) => {
                let object = StatefulObject::clone(object);
                self.add_objects.push(Step::AddStateful(object));
            }
            Object::Flowtable(flowtable) => {
                let flowtable = Flowtable::clone(flowtable);
                self.add_objects.push(Step::AddFlowtable(flowtable));
            }
            Object::Chain(chain) => {
                self.add_chains.push(Step::AddChain(Chain::clone(chain)));
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
            (Object::Chain(old), Object::Chain(new)) if old.has_equivalent_base(new) => {
                self.flush_chains.push(Step::FlushChain(Chain::clone(old)));
                self.add_rules(new);
            }
            (Object::Table(_), Object::Table(_)) => self.add(new),
            (old, new) => {
                self.remove(old);
                self.add(new);
            }
        }
    }

    fn remove(&mut self, object: &Object) {
        match object {
            Object::Table(table) => self
                .delete_tables
                .push(Step::DeleteTable(Table::clone(table))),
            Object::Set(set) => self.delete_sets.push(Step::DeleteSet(set.clone())),
            Object::Element(element) => self.delete_elements.push(element),
            Object::Stateful(object) => {
                let object = StatefulObject::clone(object);
                self.delete_objects.push(Step::DeleteStateful(object));
            }
            Object::Flowtable(flowtable) => {
                let flowtable = Flowtable::clone(flowtable);
                self.delete_objects.push(Step::DeleteFlowtable(flowtable));
            }
            Object::Chain(chain) => {
                // The rules go first: they may refer to chains that are deleted, too.
                if !chain.rules.is_empty() {
                    self.flush_chains
                        .push(Step::FlushChain(Chain::clone(chain)));
                }
                self.delete_chains
                    .push(Step::DeleteChain(Chain::clone(chain)));
            }
        }
    }

    fn into_transaction(self) -> Transaction {
        let mut steps = self.delete_tables;
        steps.extend(self.add_tables);
        steps.extend(self.flush_chains);
        steps.extend(
            self.delete_elements
                .lists
                .into_iter()
                .map(Step::DeleteElements),
        );
        steps.extend(self.delete_chains);
        steps.extend(self.delete_sets);
        steps.extend(self.delete_objects);
        steps.extend(self.add_objects);
        steps.extend(self.add_sets);
        steps.extend(self.add_chains);
        steps.extend(self.add_rules);
        steps.extend(self.add_elements.lists.into_iter().map(Step::AddElements));
        Transaction {
            steps,
            destroys: false,
        }
    }
}

/// Elements grouped by set, in order of the first element of each set.
#[derive(Default)]
struct Groups {
    lists: Vec<Vec<Element>>,
    /// Indices in `lists` by hash of the set.
    indices: HashMap<u64, Vec<usize>>,
    last: usize,
}

/// Number of groups to search linearly before the hash lookup.
const LINEAR_SEARCH: usize = 8;

impl Groups {
    fn push(&mut self, element: &Element) {
        let set = element.set();
        if !self.is_group_of(self.last, set) {
            let found = self.find(set);
            self.last = found.unwrap_or_else(|| self.add_group(set));
        }
        if let Some(list) = self.lists.get_mut(self.last) {
            list.push(element.clone());
        }
    }

    fn is_group_of(&self, index: usize, set: &Set) -> bool {
        let first = self.lists.get(index).and_then(|list| list.first());
        first.is_some_and(|first| first.set().is_same_set(set))
    }

    fn find(&self, set: &Set) -> Option<usize> {
        // Fast path: edits mostly alternate between a few sets.
        let mut early = 0..self.lists.len().min(LINEAR_SEARCH);
        early
            .find(|index| self.is_group_of(*index, set))
            .or_else(|| {
                let mut indices = self.indices.get(&set.id_hash())?.iter().copied();
                indices.find(|index| self.is_group_of(*index, set))
            })
    }

    fn add_group(&mut self, set: &Set) -> usize {
        let index = self.lists.len();
        self.indices.entry(set.id_hash()).or_default().push(index);
        self.lists.push(Vec::new());
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{accept, drop};
    use crate::{BaseChain, ChainType, Datatype, Family, Hook, Name, Rule, Verdict};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn table() -> TableId {
        TableId::new(Family::Ip, name("t"))
    }

    fn map() -> Set {
        Set::verdict_map(table(), name("m"), [Datatype::InetService])
    }

    fn element(port: u16, verdict: Verdict) -> Object {
        let element = map().element(&[port.into()]).unwrap();
        element.with_verdict(verdict).unwrap().into()
    }

    fn chain(text: &str, rules: &[Rule]) -> Chain {
        Chain::new(table(), name(text)).with_rules(rules.iter().cloned())
    }

    #[track_caller]
    fn assert_script(edits: &[Edit<Object>], script: &[&str]) {
        let text = Transaction::from_edits(edits).to_string();
        assert_eq!(text.lines().collect::<Vec<_>>(), script);
    }

    #[test]
    fn objects_are_added_before_objects_that_refer_to_them() {
        let rule = Rule::new(Family::Ip, [accept()]).unwrap();
        assert_script(
            &[
                Edit::Add(element(80, Verdict::Goto(name("c")))),
                Edit::Add(chain("c", &[rule]).into()),
                Edit::Add(map().into()),
                Edit::Add(Table::new(table()).into()),
            ],
            &[
                "add table ip t",
                "add map ip t m { type inet_service : verdict; }",
                "add chain ip t c",
                "add rule ip t c accept",
                "add element ip t m { 80 : goto c }",
            ],
        );
    }

    #[test]
    fn objects_are_deleted_after_objects_that_refer_to_them() {
        let rule = Rule::new(Family::Ip, [accept()]).unwrap();
        assert_script(
            &[
                Edit::Remove(map().into()),
                Edit::Remove(chain("c", &[rule]).into()),
                Edit::Remove(element(80, Verdict::Goto(name("c")))),
            ],
            &[
                "flush chain ip t c",
                "delete element ip t m { 80 }",
                "delete chain ip t c",
                "delete map ip t m",
            ],
        );
    }

    #[test]
    fn a_changed_element_is_deleted_and_added() {
        assert_script(
            &[Edit::Change {
                old: element(80, Verdict::Drop),
                new: element(80, Verdict::Accept),
            }],
            &[
                "delete element ip t m { 80 }",
                "add element ip t m { 80 : accept }",
            ],
        );
    }

    #[test]
    fn a_chain_with_changed_rules_is_flushed_and_refilled() {
        let [old, new] =
            [accept(), drop()].map(|verdict| Rule::new(Family::Ip, [verdict]).unwrap());
        assert_script(
            &[Edit::Change {
                old: chain("c", &[old]).into(),
                new: chain("c", &[new]).into(),
            }],
            &["flush chain ip t c", "add rule ip t c drop"],
        );
    }

    #[test]
    fn a_chain_with_a_changed_hook_is_replaced() {
        let base = |priority| BaseChain::new(ChainType::Nat, Hook::Output, priority);
        let rule = Rule::new(Family::Ip, [accept()]).unwrap();
        let at = |priority| chain("c", std::slice::from_ref(&rule)).with_base(base(priority));
        assert_script(
            &[Edit::Change {
                old: at(0).into(),
                new: at(-100).into(),
            }],
            &[
                "flush chain ip t c",
                "delete chain ip t c",
                "add chain ip t c { type nat hook output priority -100; policy accept; }",
                "add rule ip t c accept",
            ],
        );
    }

    #[test]
    fn objects_of_a_removed_table_are_not_deleted_individually() {
        assert_script(
            &[
                Edit::Remove(map().into()),
                Edit::Remove(element(80, Verdict::Drop)),
                Edit::Remove(Table::new(table()).into()),
            ],
            &["delete table ip t"],
        );
    }

    #[test]
    fn a_table_that_is_removed_and_added_is_replaced() {
        assert_script(
            &[
                Edit::Add(map().into()),
                Edit::Add(Table::new(table()).into()),
                Edit::Remove(Table::new(table()).into()),
            ],
            &[
                "delete table ip t",
                "add table ip t",
                "add map ip t m { type inet_service : verdict; }",
            ],
        );
    }

    #[test]
    fn elements_are_grouped_by_set() {
        let other = Set::new(table(), name("s"), [Datatype::InetService]);
        let port = Object::from(other.element(&[7_u16.into()]).unwrap());
        assert_script(
            &[
                Edit::Add(element(80, Verdict::Drop)),
                Edit::Add(port),
                Edit::Add(element(81, Verdict::Drop)),
            ],
            &[
                "add element ip t m {",
                "\t80 : drop,",
                "\t81 : drop,",
                "}",
                "add element ip t s { 7 }",
            ],
        );
    }
}
