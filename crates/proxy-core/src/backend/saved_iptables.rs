//! Rules and lists of iptables in a saved kernel.

use std::collections::HashMap;

use vipline_iptables as iptables;
use vipline_iptables::{Jiffies, RecentEntry};
use vipline_nftables::Ruleset;
use vipline_nftables::evaluate::{Evaluator, RecentLookup};

use crate::Error;
use crate::backend::evaluate::{RecentLists, is_listed};
use crate::evaluate::{KernelState, Source};

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
        let save = iptables::Tables::parse(state.text(source));
        let save = save.map_err(Error::custom_permanent)?;
        rules = rules
            .with_save(&save, family)
            .map_err(Error::custom_permanent)?;
    }
    Ok(rules.evaluator())
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
