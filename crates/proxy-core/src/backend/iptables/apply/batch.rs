//! The edits of a commit that are sent at once.

use std::borrow::Cow;

use vipline_iptables::{Chain, Contents, Key, Object};
use vipline_reconcile::Edit;

use super::rejections;

/// Edits of a commit that are sent at once.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    /// All edits of the commit.
    pub(super) all: &'a [Edit<Object>],
    /// Indices of the edits of this batch.
    pub(super) selected: &'a [usize],
    /// The edits as they are sent. After those of `origins`, one for each rewritten chain.
    sent: Cow<'a, [Edit<Object>]>,
    /// Indices of the sent edits.
    origins: Cow<'a, [usize]>,
    /// Chains that are written as a whole instead of edits of their rules.
    rewritten: &'a [Chain],
}

impl<'a> Batch<'a> {
    /// Selects edits by their indices.
    pub(super) fn new(all: &'a [Edit<Object>], selected: &'a [usize]) -> Self {
        let is_all = selected.iter().copied().eq(0..all.len());
        let edits = || selected.iter().map(|&index| all[index].clone());
        Self {
            all,
            selected,
            sent: match is_all {
                true => Cow::Borrowed(all),
                false => Cow::Owned(edits().collect()),
            },
            origins: Cow::Borrowed(selected),
            rewritten: &[],
        }
    }

    /// Selects edits by their indices, and replaces those of single rules of `rewritten` chains
    /// by one edit of the whole chain.
    pub(super) fn rewriting(
        all: &'a [Edit<Object>],
        selected: &'a [usize],
        rewritten: &'a [Chain],
    ) -> Self {
        if rewritten.is_empty() {
            return Self::new(all, selected);
        }
        let is_sent = |index: &usize| !is_rule_of(rewritten, &all[*index]);
        let origins: Vec<_> = selected.iter().copied().filter(is_sent).collect();
        let sent = origins.iter().map(|&index| all[index].clone());
        let chains = rewritten.iter().map(|new| Edit::Change {
            old: Chain::new(new.table, new.name)
                .with_contents(Contents::SharedRules)
                .into(),
            new: new.clone().into(),
        });
        Self {
            all,
            selected,
            sent: sent.chain(chains).collect(),
            origins: Cow::Owned(origins),
            rewritten,
        }
    }

    /// Returns the edits to send.
    pub(super) fn edits(&self) -> &[Edit<Object>] {
        &self.sent
    }

    /// Returns the index of an edit by its place among the sent ones. `None`: it rewrites a
    /// chain.
    pub(super) fn origin(&self, place: usize) -> Option<usize> {
        self.origins.get(place).copied()
    }

    /// Returns the indices of the edits that are applied if the objects with these keys were
    /// written.
    pub(super) fn applied(&self, keys: impl Iterator<Item = Key<'a>>) -> Vec<usize> {
        let mut keys: Vec<_> = keys.collect();
        let written = self.rewritten.iter().filter(|chain| {
            let key = Key::Chain(&chain.table, &chain.name);
            keys.contains(&key)
        });
        let written: Vec<_> = written.cloned().collect();
        let selected = self.selected.iter().map(|&index| &self.all[index]);
        let rules = selected.filter(|edit| is_rule_of(&written, edit));
        keys.extend(rules.map(Edit::key));
        rejections::applied(self.all, self.selected, keys.into_iter())
    }
}

/// Returns whether an edit adds a rule to one of these chains or deletes one.
fn is_rule_of(chains: &[Chain], edit: &Edit<Object>) -> bool {
    match edit.object() {
        Object::SharedRule(rule) => chains
            .iter()
            .any(|chain| (chain.table, chain.name) == (rule.table, rule.chain)),
        Object::Chain(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use vipline_iptables::{Position, SharedRule};

    use super::*;
    use crate::backend::iptables::plan::names::{self, FILTER, NAT};

    fn rule(table: &str, number: usize) -> Object {
        Object::from(SharedRule {
            table: names::table(table),
            chain: names::chain(names::SERVICES),
            position: Position::Head,
            occurrence: 0,
            rule: format!("-d 10.96.0.{number}/32 -j RETURN").into(),
        })
    }

    #[test]
    fn the_rules_of_a_rewritten_chain_are_applied_with_the_chain() {
        let nat = names::table(NAT);
        let svc = names::chain("KUBE-SVC-AAAAAAAAAAAAAAAA");
        let all = [
            Edit::Remove(rule(NAT, 1)),
            Edit::Add(
                Chain::new(nat, svc)
                    .with_rules([""; 0].into_iter().collect())
                    .into(),
            ),
            Edit::Add(rule(NAT, 2)),
            Edit::Add(rule(FILTER, 3)),
        ];
        let services = names::chain(names::SERVICES);
        let whole = Chain::new(nat, services).with_rules(["-j RETURN"].into_iter().collect());
        let rewritten = [whole.clone()];
        let batch = Batch::rewriting(&all, &[0, 1, 2, 3], &rewritten);
        assert_eq!(batch.edits().len(), 3);
        assert_eq!(batch.edits()[2].object(), &Object::from(whole));
        assert_eq!(
            [0, 1, 2].map(|at| batch.origin(at)),
            [Some(1), Some(3), None]
        );
        let made = Key::Chain(&nat, &svc);
        assert_eq!(batch.applied([made].into_iter()), [1]);
        let written = Key::Chain(&nat, &services);
        assert_eq!(batch.applied([made, written].into_iter()), [0, 1, 2]);
    }
}
