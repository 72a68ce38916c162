//! Rules and lists of iptables in a saved kernel.

use std::collections::HashMap;

use vipline_iptables as iptables;
use vipline_iptables::{Jiffies, RecentEntry};
use vipline_nftables::Ruleset;
use vipline_nftables::evaluate::{Evaluator, RecentLookup};

use crate::Error;
use crate::backend::evaluate::{RecentLists, is_listed};
use crate::evaluate::{KernelState, Source};

/// End of the comment that replaces the rules of the legacy variant if they exist and
/// cannot be read.
pub(super) const NOT_READ: &str = "are not evaluated: its programs are not installed";

/// Returns the evaluator of the rules of both variants of iptables.
pub(super) fn evaluator_of_variants(
    state: &KernelState,
    ruleset: &Ruleset,
) -> Result<Evaluator, Error> {
    let mut rules = tables(state, ruleset);
    for (family, source) in [
        (iptables::Family::V4, Source::IptablesSave),
        (iptables::Family::V6, Source::Ip6tablesSave),
    ] {
        rules = with_legacy(rules, state.text(source), family)?;
    }
    Ok(rules.evaluator().with_hooks(state.hooks()))
}

/// Adds the rules of the legacy variant.
pub(super) fn with_legacy(
    rules: iptables::evaluate::Rules,
    text: &str,
    family: iptables::Family,
) -> Result<iptables::evaluate::Rules, Error> {
    if let Some(reason) = text.strip_prefix("# ").filter(|_| text.contains(NOT_READ)) {
        return Err(Error::custom_permanent(reason.trim_end()));
    }
    let save = iptables::Tables::parse(text).map_err(Error::custom_permanent)?;
    let rules = rules.with_legacy_save(&save, family);
    rules.map_err(Error::custom_permanent)
}

/// Returns the tables of nf_tables with the names of IP sets.
pub(super) fn tables(state: &KernelState, ruleset: &Ruleset) -> iptables::evaluate::Rules {
    let names = state.text(Source::SetNames).lines().filter_map(|line| {
        let (index, name) = line.split_once(' ')?;
        Some((index.parse().ok()?, name.to_owned()))
    });
    iptables::evaluate::Rules::from_dump(ruleset.clone(), names.collect())
}

/// The saved lists of match `recent`.
pub(super) struct SavedLists {
    lists: HashMap<String, Vec<RecentEntry>>,
    time: Option<Jiffies>,
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
        let time = Jiffies::parse(state.text(Source::TimerList), state.text(Source::Uptime));
        Ok(Self { lists, time })
    }
}

impl RecentLists for SavedLists {
    fn has(&self, lookup: &RecentLookup<'_>) -> Option<bool> {
        match self.lists.get(lookup.name) {
            Some(entries) => is_listed(entries, lookup, self.time),
            None => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_the_legacy_variant_that_were_not_read_are_an_error() {
        let reason = format!("rules of iptables-legacy {NOT_READ}");
        let text = format!("# kube-proxy kernel state 1\niptables-save # {reason}\n# end\n");
        let state: KernelState = text.parse().unwrap();
        let error = evaluator_of_variants(&state, &Ruleset::new()).unwrap_err();
        assert_eq!(error.to_string(), reason);
        // A program prints other comments.
        let text = "# kube-proxy kernel state 1\niptables-save # Generated\n# end\n";
        let state: KernelState = text.parse().unwrap();
        assert!(evaluator_of_variants(&state, &Ruleset::new()).is_ok());
    }
}
