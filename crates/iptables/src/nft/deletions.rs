//! Rules to delete, found by their expressions.

use std::collections::HashMap;

use vipline_nftables as nftables;
use vipline_nftables::expr::{Counter, Expr};
use vipline_nftables::{InstalledRule, Name, RuleHandle, TableId};

/// Rules to delete from a chain, and the handles found.
#[derive(Debug)]
pub(super) struct Deletions {
    pub(super) table: TableId,
    pub(super) chain: Name,
    /// Indices of edits by encoded expressions.
    wanted: HashMap<Vec<u8>, Vec<usize>>,
    found: Vec<(usize, RuleHandle)>,
}

impl Deletions {
    pub(super) fn new(table: TableId, chain: Name) -> Self {
        Self {
            table,
            chain,
            wanted: HashMap::new(),
            found: Vec::new(),
        }
    }

    /// Adds a rule to delete, with the index of its edit, which can have several rules.
    pub(super) fn push(&mut self, edit: usize, rule: &nftables::Rule) {
        let wanted = self.wanted.entry(bytes(&rule.exprs));
        wanted.or_default().push(edit);
    }

    /// Returns the handles by index of the edit, and the edits whose rules do not exist, in
    /// order.
    pub(super) fn finish(self) -> (Vec<(usize, RuleHandle)>, Vec<usize>) {
        let mut missing: Vec<usize> = self.wanted.into_values().flatten().collect();
        missing.sort_unstable();
        missing.dedup();
        (self.found, missing)
    }

    /// Processes a rule of the chain, in order. Each rule is deleted once.
    pub(super) fn take(&mut self, installed: &InstalledRule<'_>) {
        if self.wanted.is_empty() {
            return;
        }
        let Ok(rule) = installed.decode() else { return };
        let key = bytes(&rule.exprs);
        let Some(edits) = self.wanted.get_mut(&key) else {
            return;
        };
        if let Some(edit) = edits.pop() {
            self.found.push((edit, installed.handle));
        }
        if edits.is_empty() {
            self.wanted.remove(&key);
        }
    }
}

/// Encodes expressions without counts, which change with each packet.
fn bytes(exprs: &[Expr]) -> Vec<u8> {
    let mut out = Vec::new();
    for expr in exprs {
        match expr {
            Expr::Counter(_) => Expr::from(Counter::default()).encode(&mut out),
            expr => expr.encode(&mut out),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, Rule, nft};

    #[test]
    fn counts_are_not_compared() {
        let rule = |text| nft::encode(&Rule::parse(text).unwrap(), Family::V4).unwrap();
        let mut counted = rule("-p tcp -j ACCEPT");
        for expr in &mut counted.exprs {
            if let Expr::Counter(counter) = expr {
                counter.packets = 7;
            }
        }
        assert_eq!(
            bytes(&counted.exprs),
            bytes(&rule("-p tcp -j ACCEPT").exprs)
        );
        assert_ne!(bytes(&counted.exprs), bytes(&rule("-p tcp -j DROP").exprs));
    }

    #[test]
    fn rules_that_are_not_found_are_missing() {
        let table = nft::table_id(Family::V4, crate::TableName::NAT);
        let mut deletions = Deletions::new(table, Name::new("A").unwrap());
        let rule = nft::encode(&Rule::parse("-j ACCEPT").unwrap(), Family::V4).unwrap();
        deletions.push(9, &rule);
        deletions.push(3, &rule);
        assert_eq!(deletions.finish(), (vec![], vec![3, 9]));
    }
}
