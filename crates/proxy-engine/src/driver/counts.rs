//! Counts of installed objects and rules.

use vipline_reconcile::Edit;

use crate::{Planner, RuleCount};

/// Numbers of installed objects, and of installed rules by table.
///
/// Exact only while the kernel's state is known.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) objects: usize,
    pub(super) rules: Vec<RuleCount>,
}

impl Counts {
    /// Counts an added object.
    pub(super) fn add<P: Planner>(&mut self, object: &P::Object) {
        self.objects += 1;
        self.count_rules::<P>(object, |it, count| it.total += count);
    }

    fn remove<P: Planner>(&mut self, object: &P::Object) {
        self.objects -= 1;
        self.count_rules::<P>(object, |it, count| it.total -= count);
    }

    /// Counts a replaced object. Each side may be missing.
    pub(super) fn replace<P: Planner>(
        &mut self,
        before: Option<&P::Object>,
        after: Option<&P::Object>,
    ) {
        if let Some(object) = after {
            self.add::<P>(object);
        }
        if let Some(object) = before {
            self.remove::<P>(object);
        }
    }

    /// Counts the rules that the committed edits wrote.
    pub(super) fn set_written<'a, P: Planner>(
        &mut self,
        committed: impl Iterator<Item = &'a Edit<P::Object>>,
    ) where
        P::Object: 'a,
    {
        self.rules.iter_mut().for_each(|it| it.written = 0);
        for edit in committed.filter(|edit| !matches!(edit, Edit::Remove(_))) {
            self.count_rules::<P>(edit.object(), |it, count| it.written += count);
        }
    }

    /// Updates the count of an object's table, if the object has rules.
    fn count_rules<P: Planner>(
        &mut self,
        object: &P::Object,
        change: impl FnOnce(&mut RuleCount, usize),
    ) {
        let Some((table, count)) = P::rule_count(object) else {
            return;
        };
        let at = self.rules.iter().position(|each| each.table == table);
        let at = at.unwrap_or_else(|| {
            self.rules.push(RuleCount {
                table,
                total: 0,
                written: 0,
            });
            self.rules.len() - 1
        });
        change(&mut self.rules[at], count);
    }
}
