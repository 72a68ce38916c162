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
    /// Tables go first, then tables come; then what is in the way goes: rules,
    /// elements, chains, sets; then come sets, chains, rules and elements.
    /// Within each of these, edits keep their order; elements of a set
    /// stand together.
    ///
    /// - The change of an element removes and adds it.
    /// - The change of a chain exchanges its rules, or all of it if packets
    ///   are to enter it elsewhere.
    /// - The change of a set exchanges it: all its elements and the rules that
    ///   use it have to be among the edits.
    /// - The change of a table's flags comes first; the kernel refuses new base
    ///   chains in the transaction that wakes a dormant table.
    /// - What is in a removed table goes with it; a table that is removed and
    ///   added is replaced.
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

    /// Tells whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Encodes the transaction as one batch for the kernel.
    ///
    /// Messages are numbered from `sequence` on.
    /// With a `generation` the kernel refuses the batch unless it is the
    /// number of its present one ([`wire::generation`](crate::wire::generation)).
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
            Object::Table(table) => self.add_tables.push(Step::AddTable(Table::clone(table))),
            Object::Set(set) => self.add_sets.push(Step::AddSet(set.clone())),
            Object::Element(element) => self.add_elements.push(element),
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
            (Object::Chain(old), Object::Chain(new)) if old.base == new.base => {
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
            Object::Chain(chain) => {
                // Its rules go first, for they may lead to chains that go, too.
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
        steps.extend(self.add_sets);
        steps.extend(self.add_chains);
        steps.extend(self.add_rules);
        steps.extend(self.add_elements.lists.into_iter().map(Step::AddElements));
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

/// How many sets are looked through before they are looked up.
const EARLY: usize = 8;

impl Groups {
    fn push(&mut self, element: &Element) {
        let set = element.set();
        let is_here = |list: &Vec<Element>| {
            list.first()
                .is_some_and(|first| first.set().is_same_set(set))
        };
        if !self.lists.get(self.last).is_some_and(is_here) {
            // Elements of a few sets take turns more often than not.
            let early = self.lists.iter().take(EARLY).position(is_here);
            self.last = early.unwrap_or_else(|| {
                let places = self.places.entry(set.place_hash()).or_default();
                let mut known = places.iter().copied();
                let known = known.find(|at| self.lists.get(*at).is_some_and(is_here));
                known.unwrap_or_else(|| {
                    places.push(self.lists.len());
                    self.lists.push(Vec::new());
                    self.lists.len() - 1
                })
            });
        }
        if let Some(list) = self.lists.get_mut(self.last) {
            list.push(element.clone());
        }
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
        Set::verdict_map(table(), name("m"), [Datatype::InetService.into()])
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
    fn what_is_added_comes_before_what_needs_it() {
        let rule = Rule::new(Family::Ip, [accept()]);
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
    fn what_is_removed_goes_after_what_needs_it() {
        let rule = Rule::new(Family::Ip, [accept()]);
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
    fn an_element_changes_by_going_and_coming_back() {
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
    fn a_chain_keeps_its_place_when_its_rules_change() {
        let [old, new] = [accept(), drop()].map(|verdict| Rule::new(Family::Ip, [verdict]));
        assert_script(
            &[Edit::Change {
                old: chain("c", &[old]).into(),
                new: chain("c", &[new]).into(),
            }],
            &["flush chain ip t c", "add rule ip t c drop"],
        );
    }

    #[test]
    fn a_chain_that_packets_enter_elsewhere_is_exchanged() {
        let base = |priority| BaseChain::new(ChainType::Nat, Hook::Output, priority);
        let rule = Rule::new(Family::Ip, [accept()]);
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
    fn what_is_in_a_removed_table_goes_with_it() {
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
    fn elements_of_a_set_stand_together() {
        let other = Set::set(table(), name("s"), [Datatype::InetService.into()]);
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
