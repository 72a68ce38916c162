//! Who committed to nf_tables how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vipline_nftables::Generation;

/// Who committed how often: it tells whether somebody else did.
///
/// The kernel counts all commits in a network namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitCounter {
    /// Our commits, those of all kernels that share the commit_counter.
    ours: Arc<AtomicU32>,
    /// The commits of others, as of the last dump of this kernel.
    others: Arc<AtomicU32>,
}

impl CommitCounter {
    /// Returns the commit_counter of another kernel in the same network namespace.
    pub(crate) fn of_another(&self) -> Self {
        Self {
            ours: Arc::clone(&self.ours),
            ..Self::default()
        }
    }

    /// Counts commits of ours.
    pub(crate) fn committed(&self, count: u32) {
        self.ours.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns how many commits of others led to a state.
    ///
    /// Only the difference to another such number means something: others have
    /// made the first states.
    pub(crate) fn others_at(&self, generation: Generation) -> u32 {
        generation.0.wrapping_sub(self.ours.load(Ordering::Relaxed))
    }

    /// Notes the state that a dump will show.
    pub(crate) fn dumped(&self, others: u32) {
        self.others.store(others, Ordering::Relaxed);
    }

    /// Tells whether others have committed since the last dump.
    pub(crate) fn missed(&self, others: u32) -> bool {
        self.others.load(Ordering::Relaxed) != others
    }
}
