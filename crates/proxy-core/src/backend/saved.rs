//! Rules of a saved kernel.

#[cfg(feature = "nftables")]
use vipline_evaluate::Evaluator;
use vipline_nftables::{Chain, Object, Ruleset};

use crate::Error;
use crate::evaluate::KernelState;

/// Returns the saved tables of nf_tables.
pub(super) fn ruleset(state: &KernelState) -> Result<Ruleset, Error> {
    state.ruleset().map_err(Error::custom_permanent)
}

/// Returns whether a ruleset has a chain.
pub(super) fn has_chain(ruleset: &Ruleset, is_it: impl Fn(&Chain) -> bool) -> bool {
    let mut objects = ruleset.objects();
    objects.any(|object| matches!(&object, Object::Chain(chain) if is_it(chain)))
}

/// Returns the evaluator of tables of nf_tables and of both variants of iptables, and the
/// reasons why some rules are missing.
#[cfg(all(feature = "nftables", feature = "iptables"))]
pub(super) fn evaluator(
    state: &KernelState,
    ruleset: &Ruleset,
) -> Result<(Evaluator, Vec<String>), Error> {
    super::saved_iptables::evaluator_of_variants(state, ruleset)
}

/// Returns the evaluator of tables of nf_tables.
#[cfg(all(feature = "nftables", not(feature = "iptables")))]
pub(super) fn evaluator(
    state: &KernelState,
    ruleset: &Ruleset,
) -> Result<(Evaluator, Vec<String>), Error> {
    let evaluator = Evaluator::new(ruleset).with_hooks(state.hooks());
    Ok((evaluator, Vec::new()))
}
