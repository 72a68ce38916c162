//! Rules of a saved kernel.

#[cfg(feature = "nftables")]
use vipline_nftables::evaluate::Evaluator;
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

/// Returns the evaluator of tables of nf_tables, which include those of iptables-nft.
#[cfg(all(feature = "nftables", feature = "iptables"))]
pub(super) fn evaluator(state: &KernelState, ruleset: &Ruleset) -> Evaluator {
    super::saved_iptables::tables(state, ruleset).evaluator()
}

/// Returns the evaluator of tables of nf_tables.
#[cfg(all(feature = "nftables", not(feature = "iptables")))]
pub(super) fn evaluator(_state: &KernelState, ruleset: &Ruleset) -> Evaluator {
    Evaluator::new(ruleset)
}
