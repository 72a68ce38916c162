//! Rules of shared chains, to rewrite a chain instead of deleting many of its rules.
//!
//! A rule of a shared chain is deleted by its text, which is cheap for one rule and not for
//! hundreds: `-D` compares the rule with all rules before it. In a KUBE-SERVICES with 17,000
//! rules, a restore with 512 deletions from its end took this much processor time (iptables
//! 1.8.9, Linux 6.18), and one with all 16,489 rules that stay took much less:
//!
//! | | 512 × `-D` | `:KUBE-SERVICES`, and `-A` of the rest |
//! |---|---|---|
//! | `iptables-nft-restore` | 11.7 s | 0.3 s |
//! | `iptables-legacy-restore` | 1.6 s | 0.15 s |
//!
//! The nft variant converts both rules from netlink attributes to compare them, 1.3 µs per
//! rule; the legacy variant compares bytes, 0.2 µs per rule. Over netlink the chain is dumped to
//! find the handles, 80 ms, and for each handle the kernel walks the rules of the chain: strace
//! saw 0.3 s in the `sendmsg` of a batch with 512 deletions, and half of it when half of the
//! rules were gone.
//! A rewrite costs 20 µs per rule that stays, and nothing per rule that goes.
//!
//! A restore of one section, and a transaction, flush and fill the chain at once, so no packet
//! sees it empty.
//!
//! Given up: deletion by number is fast, but removes another rule if somebody else inserts one
//! between our dump and the restore. Deletions in the order of the chain are fast only at its
//! head.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use vipline_iptables::{Chain, ChainName, Contents, Object, Position, SharedRule, TableName};
use vipline_reconcile::Edit;

/// Minimum number of deletions from a chain at which it is rewritten. One deletion from the
/// end of a chain costs the nft variant as much as a rewrite, because it reads the whole chain
/// first; the legacy variant breaks even at about 30 from the end, and later from the middle.
const MIN_DELETIONS: usize = 32;

/// The installed rules of all shared chains of ours, as far as they are known: after a dump
/// until a commit fails.
#[derive(Debug, Default)]
pub(super) struct SharedChains {
    chains: HashMap<Place, HashSet<Installed>>,
}

/// Table and name of a chain.
type Place = (TableName, ChainName);

/// A rule with its position, and the number of equal rules before it.
type Installed = (Position, u32, Arc<str>);

impl SharedChains {
    /// Replaces the rules by those of a dump.
    pub(super) fn dumped(&mut self, objects: &[Object]) {
        self.forget();
        self.add(objects.iter());
    }

    /// Forgets all rules, because the state of the kernel is unknown.
    pub(super) fn forget(&mut self) {
        self.chains.clear();
    }

    /// Applies committed edits.
    pub(super) fn committed<'a>(&mut self, edits: impl Iterator<Item = &'a Edit<Object>> + Clone) {
        // Removals first, as in a restore: a rule that is deleted and added is there afterwards.
        let removed = edits.clone().filter_map(|edit| match edit {
            Edit::Remove(object) => Some(object),
            _ => None,
        });
        for object in removed {
            match object {
                Object::Chain(chain) => drop(self.chains.remove(&(chain.table, chain.name))),
                Object::SharedRule(rule) => {
                    if let Some(rules) = self.chains.get_mut(&(rule.table, rule.chain)) {
                        rules.remove(&installed(rule));
                    }
                }
            }
        }
        self.add(edits.filter_map(|edit| match edit {
            Edit::Add(new) | Edit::Change { new, .. } => Some(new),
            Edit::Remove(_) => None,
        }));
    }

    /// Adds chains, which are empty, and then rules.
    fn add<'a>(&mut self, objects: impl Iterator<Item = &'a Object> + Clone) {
        for object in objects.clone() {
            let Object::Chain(chain) = object else {
                continue;
            };
            let place = (chain.table, chain.name);
            match chain.contents {
                Contents::SharedRules => drop(self.chains.insert(place, HashSet::new())),
                // Written as a whole by its own edits, never rule by rule.
                _ => drop(self.chains.remove(&place)),
            }
        }
        for object in objects {
            // Built-in chains are not ours, and never rewritten.
            if let Object::SharedRule(rule) = object
                && let Some(rules) = self.chains.get_mut(&(rule.table, rule.chain))
            {
                rules.insert(installed(rule));
            }
        }
    }

    /// Returns the chains from which edits delete so many rules that they are rewritten, with
    /// all rules that they have after the edits.
    pub(super) fn to_rewrite(&self, edits: &[Edit<Object>]) -> Vec<Chain> {
        let mut deletions: HashMap<Place, usize> = HashMap::new();
        for edit in edits {
            if let Edit::Remove(Object::SharedRule(rule)) = edit {
                *deletions.entry((rule.table, rule.chain)).or_default() += 1;
            }
        }
        deletions.retain(|_, count| *count >= MIN_DELETIONS);
        if deletions.is_empty() {
            return Vec::new();
        }
        // Such a chain is flushed anyway.
        for edit in edits {
            if let Object::Chain(chain) = edit.object() {
                deletions.remove(&(chain.table, chain.name));
            }
        }
        let mut chains: Vec<_> = deletions.into_keys().collect();
        // In an order that does not depend on a hash, so that two syncs write the same document.
        chains.sort_unstable();
        let chains = chains.into_iter();
        chains
            .filter_map(|place| self.after(place, edits))
            .collect()
    }

    /// Returns a chain with the rules that it has after the edits. `None`: its rules are not
    /// known.
    fn after(&self, place: Place, edits: &[Edit<Object>]) -> Option<Chain> {
        let mut rules: BTreeSet<&Installed> = self.chains.get(&place)?.iter().collect();
        let mut added = Vec::new();
        for edit in edits {
            match edit {
                Edit::Remove(Object::SharedRule(rule)) if place_of(rule) == place => {
                    rules.remove(&installed(rule));
                }
                Edit::Add(Object::SharedRule(rule)) if place_of(rule) == place => {
                    added.push(installed(rule));
                }
                // Edits of other chains. A shared rule never changes: its key has all of it.
                _ => {}
            }
        }
        // After all removals, for the same reason as in `committed`.
        rules.extend(&added);
        // In order: those at the head first.
        let rules = rules.into_iter().map(|(_, _, rule)| rule).collect();
        let (table, name) = place;
        Some(Chain::new(table, name).with_rules(rules))
    }
}

fn place_of(rule: &SharedRule) -> Place {
    (rule.table, rule.chain)
}

fn installed(rule: &SharedRule) -> Installed {
    (rule.position, rule.occurrence, Arc::clone(&rule.rule))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::iptables::plan::names::{self, NAT};
    use crate::backend::iptables::plan::rules::shared;

    fn rule(chain: &str, position: Position, text: &str) -> Object {
        Object::from(SharedRule {
            table: names::table(NAT),
            chain: names::chain(chain),
            position,
            occurrence: 0,
            rule: text.into(),
        })
    }

    fn service(number: usize) -> Object {
        let text = format!("-d 10.96.0.{number}/32 -j KUBE-SVC-A");
        rule(names::SERVICES, Position::Head, &text)
    }

    /// Returns a chain of 100 Services and a last rule, and `count` deletions from it.
    fn stage(count: usize) -> (SharedChains, Vec<Edit<Object>>) {
        let mut objects: Vec<_> = (100..200).map(service).collect();
        objects.push(rule(names::SERVICES, Position::Tail, "-j KUBE-NODEPORTS"));
        objects.push(rule(names::PREROUTING, Position::Head, "-j KUBE-SERVICES"));
        objects.push(shared(NAT, names::SERVICES));
        let mut chains = SharedChains::default();
        chains.dumped(&objects);
        let edits = (100..100 + count).map(|number| Edit::Remove(service(number)));
        (chains, edits.collect())
    }

    #[test]
    fn a_chain_that_loses_many_rules_is_rewritten_with_the_others() {
        let (chains, mut edits) = stage(98);
        edits.push(Edit::Add(service(200)));
        edits.push(Edit::Add(rule("KUBE-NODEPORTS", Position::Head, "-j A")));
        let rewritten = chains.to_rewrite(&edits);
        assert_eq!(rewritten.len(), 1);
        assert_eq!(
            rewritten[0].rules().collect::<Vec<_>>(),
            [
                "-d 10.96.0.198/32 -j KUBE-SVC-A",
                "-d 10.96.0.199/32 -j KUBE-SVC-A",
                "-d 10.96.0.200/32 -j KUBE-SVC-A",
                "-j KUBE-NODEPORTS",
            ]
        );
    }

    #[test]
    fn a_chain_that_loses_few_rules_is_not_rewritten() {
        let (chains, edits) = stage(MIN_DELETIONS);
        assert_eq!(chains.to_rewrite(&edits).len(), 1);
        assert!(chains.to_rewrite(&edits[1..]).is_empty());
    }

    #[test]
    fn a_chain_that_is_unknown_or_written_anyway_is_not_rewritten() {
        let (mut chains, mut edits) = stage(50);
        edits.push(Edit::Remove(shared(NAT, names::SERVICES)));
        assert!(chains.to_rewrite(&edits).is_empty());
        edits.pop();
        assert_eq!(chains.to_rewrite(&edits).len(), 1);
        chains.forget();
        assert!(chains.to_rewrite(&edits).is_empty());
    }

    #[test]
    fn built_in_chains_are_never_rewritten() {
        let jump = |number: usize| {
            let text = format!("-d 10.96.0.{number}/32 -j KUBE-SERVICES");
            rule(names::PREROUTING, Position::Head, &text)
        };
        let mut chains = SharedChains::default();
        let jumps: Vec<_> = (0..100).map(jump).collect();
        chains.dumped(&jumps);
        let edits: Vec<_> = jumps.into_iter().map(Edit::Remove).collect();
        assert!(chains.to_rewrite(&edits).is_empty());
    }

    #[test]
    fn committed_edits_change_what_a_rewrite_keeps() {
        let (mut chains, edits) = stage(50);
        let more = [Edit::Add(service(200)), Edit::Remove(service(199))];
        chains.committed(more.iter());
        let rewritten = chains.to_rewrite(&edits);
        let rules: Vec<_> = rewritten[0].rules().collect();
        assert_eq!(rules.len(), 51);
        assert!(rules.contains(&"-d 10.96.0.200/32 -j KUBE-SVC-A"));
        assert!(!rules.contains(&"-d 10.96.0.199/32 -j KUBE-SVC-A"));
        // A chain that is created again is empty.
        let made = [Edit::Add(shared(NAT, names::SERVICES))];
        chains.committed(made.iter());
        assert!(chains.to_rewrite(&edits)[0].rules().next().is_none());
    }
}
