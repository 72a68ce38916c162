//! Rules and lists of iptables in a saved kernel.

use std::collections::HashMap;

use vipline_evaluate::{Evaluator, RecentLookup};
use vipline_iptables as iptables;
use vipline_iptables::{Jiffies, RecentEntry};
use vipline_nftables::Ruleset;

use crate::Error;
use crate::backend::evaluate::{RecentLists, is_listed};
use crate::evaluate::{KernelState, Source};

/// Part of the comment that replaces the rules of the legacy variant if they exist, or may
/// exist, and cannot be read. The reason follows.
pub(super) const NOT_EVALUATED: &str = " are not evaluated: ";

/// Precedes the reason why the time of the lists of match `recent` is unknown.
pub(super) const UNKNOWN_TIME: &str = "# ";

/// The rules of both variants of iptables.
pub(super) struct Variants {
    rules: vipline_evaluate::iptables::Rules,
    /// Why rules of the legacy variant are missing.
    unread: Vec<String>,
}

impl Variants {
    /// Wraps the rules of the nft variant.
    pub(super) fn new(nft: vipline_evaluate::iptables::Rules) -> Self {
        let unread = Vec::new();
        Self { rules: nft, unread }
    }

    /// Adds the rules of the legacy variant, or the comment that replaces them.
    pub(super) fn with_legacy(
        mut self,
        text: &str,
        family: iptables::Family,
    ) -> Result<Self, Error> {
        let comment = text.strip_prefix("# ");
        if let Some(comment) = comment.filter(|it| it.contains(NOT_EVALUATED)) {
            self.unread.push(comment.trim_end().to_owned());
            return Ok(self);
        }
        let save = iptables::Tables::parse(text).map_err(Error::custom_permanent)?;
        let rules = self.rules.with_legacy_save(&save, family);
        self.rules = rules.map_err(Error::custom_permanent)?;
        Ok(self)
    }

    /// Returns the evaluator of the rules, and the reasons why some are missing.
    pub(super) fn evaluator(self) -> (Evaluator, Vec<String>) {
        (self.rules.evaluator(), self.unread)
    }
}

/// Returns the evaluator of the rules of both variants of iptables, and the reasons why some
/// are missing.
pub(super) fn evaluator_of_variants(
    state: &KernelState,
    ruleset: &Ruleset,
) -> Result<(Evaluator, Vec<String>), Error> {
    let mut variants = Variants::new(tables(state, ruleset));
    for (family, source) in [
        (iptables::Family::V4, Source::IptablesSave),
        (iptables::Family::V6, Source::Ip6tablesSave),
    ] {
        variants = variants.with_legacy(state.text(source), family)?;
    }
    let (evaluator, unread) = variants.evaluator();
    Ok((evaluator.with_hooks(state.hooks()), unread))
}

/// Returns the tables of nf_tables with the names of IP sets.
pub(super) fn tables(state: &KernelState, ruleset: &Ruleset) -> vipline_evaluate::iptables::Rules {
    let names = state.text(Source::SetNames).lines().filter_map(|line| {
        let (index, name) = line.split_once(' ')?;
        Some((index.parse().ok()?, name.to_owned()))
    });
    vipline_evaluate::iptables::Rules::from_dump(ruleset.clone(), names.collect())
}

/// The saved lists of match `recent`.
pub(super) struct SavedLists {
    lists: HashMap<String, Vec<RecentEntry>>,
    time: Result<Jiffies, String>,
}

impl SavedLists {
    /// Parses the lists of a saved kernel.
    pub(super) fn parse(state: &KernelState) -> Result<Self, Error> {
        let mut lists: HashMap<String, Vec<RecentEntry>> = HashMap::new();
        for line in state.text(Source::XtRecent).lines() {
            let (name, entry) = line.split_once(' ').unwrap_or_default();
            let entries = RecentEntry::parse_list(entry).map_err(Error::custom_permanent)?;
            lists.entry(name.to_owned()).or_default().extend(entries);
        }
        let text = state.text(Source::Jiffies).trim_end();
        let time = match text.strip_prefix(UNKNOWN_TIME) {
            Some(reason) => Err(reason.to_owned()),
            None if lists.is_empty() => Err("there are no lists".to_owned()),
            None => Ok(text.parse().map_err(Error::custom_permanent)?),
        };
        Ok(Self { lists, time })
    }
}

impl RecentLists for SavedLists {
    fn has(&self, lookup: &RecentLookup<'_>) -> Result<bool, String> {
        match self.lists.get(lookup.name) {
            Some(entries) => is_listed(entries, lookup, &self.time),
            None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_the_legacy_variant_that_were_not_read_are_named() {
        let reason = format!("rules of iptables-legacy{NOT_EVALUATED}its programs are missing");
        let text = format!("# kube-proxy kernel state 1\niptables-save # {reason}\n# end\n");
        let state: KernelState = text.parse().unwrap();
        let (_, unread) = evaluator_of_variants(&state, &Ruleset::new()).unwrap();
        assert_eq!(unread, [reason]);
        // A program prints other comments.
        let text = "# kube-proxy kernel state 1\niptables-save # Generated\n# end\n";
        let state: KernelState = text.parse().unwrap();
        let (_, unread) = evaluator_of_variants(&state, &Ruleset::new()).unwrap();
        assert_eq!(unread, [""; 0]);
    }
}
