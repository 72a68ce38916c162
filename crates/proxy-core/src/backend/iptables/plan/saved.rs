//! Evaluation of a saved kernel: rules of both variants, and lists of match `recent`.

use super::names::SERVICES;
use crate::Error;
use crate::backend::evaluate;
use crate::backend::saved::{has_chain, ruleset};
use crate::backend::saved_iptables::{SavedLists, evaluator_of_variants};
use crate::evaluate::{KernelState, Rules, Source};

/// Returns the rules of a saved kernel, also those of other programs.
pub(in crate::backend::iptables) fn saved_rules(state: &KernelState) -> Result<Rules, Error> {
    let ruleset = ruleset(state)?;
    let (evaluator, unread) = evaluator_of_variants(state, &ruleset)?;
    let line = format!(":{SERVICES} ");
    let has_line = |source| state.text(source).lines().any(|it| it.starts_with(&line));
    let has_proxy = has_chain(&ruleset, |chain| chain.name.as_str() == SERVICES)
        || [Source::IptablesSave, Source::Ip6tablesSave]
            .into_iter()
            .any(has_line);
    let lists = SavedLists::parse(state)?;
    Ok(evaluate::rules(evaluator, &ruleset, lists, has_proxy).with_unread(unread))
}
