//! Terminating endpoints.
//!
//! An endpoint gets connections if it is ready. If no endpoint of a list is ready, those
//! that serve and terminate get the connections.

use super::candidate::Candidate;

/// Returns the endpoints of a list that get connections. `eligible` does not apply to
/// terminating endpoints.
pub(crate) fn usable<'a>(
    list: &[Candidate<'a>],
    eligible: impl Fn(&Candidate<'_>) -> bool,
) -> Vec<Candidate<'a>> {
    let all = || list.iter().copied();
    let ready: Vec<_> = all()
        .filter(|each| each.is_ready && eligible(each))
        .collect();
    match ready.is_empty() {
        true => all().filter(|each| each.is_leaving).collect(),
        false => ready,
    }
}

/// Returns whether any endpoint could get connections, here or on another node.
pub(crate) fn is_any_usable(all: &[Candidate<'_>]) -> bool {
    all.iter().any(|each| each.is_ready || each.is_leaving)
}
