//! Jumps from built-in chains to the chains of a mode.

use vipline_iptables::matches::{Conntrack, CtState};
use vipline_iptables::{Object, Position, Rule};
use vipline_service_model::Family;

use super::names;
use super::rules::entry;

/// A jump from a built-in chain.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend) struct Jump {
    table: &'static str,
    from: &'static str,
    to: &'static str,
    /// Whether the jump matches packets of new connections only.
    is_for_new: bool,
    comment: Option<&'static str>,
}

impl Jump {
    /// Creates a jump that matches all packets and has no comment.
    pub(in crate::backend) const fn new(
        table: &'static str,
        from: &'static str,
        to: &'static str,
    ) -> Self {
        Self {
            table,
            from,
            to,
            is_for_new: false,
            comment: None,
        }
    }

    /// Restricts the jump to packets of new connections.
    pub(in crate::backend) const fn of_new(mut self) -> Self {
        self.is_for_new = true;
        self
    }

    /// Sets the comment.
    pub(in crate::backend) const fn with_comment(mut self, comment: &'static str) -> Self {
        self.comment = Some(comment);
        self
    }

    fn rule(&self) -> Rule<'static> {
        let mut rule = Rule::new();
        if self.is_for_new {
            rule = rule.with_match(Conntrack::state(CtState::NEW));
        }
        if let Some(comment) = self.comment {
            rule = rule.with_comment(comment);
        }
        rule.with_jump(names::chain(self.to))
    }
}

/// Returns the jumps as rules at the head of their chains.
pub(in crate::backend) fn objects(
    jumps: &'static [Jump],
    family: Family,
) -> impl Iterator<Item = Object> {
    let object =
        move |jump: &Jump| entry(family, jump.table, jump.from, Position::Head, jump.rule());
    jumps.iter().map(object)
}

/// Returns the index of a jump by its table, chain and rule.
pub(in crate::backend) fn place(
    jumps: &[Jump],
    table: &str,
    from: &str,
    rule: &str,
) -> Option<usize> {
    jumps.iter().position(|jump| {
        (jump.table, jump.from) == (table, from) && jump.rule().to_string() == rule
    })
}
