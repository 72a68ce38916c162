//! Detection of nf_tables commits by other processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vipline_nftables::Generation;

/// Counts own commits to detect commits by other processes.
///
/// The kernel counts all commits in a network namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitCounter {
    /// Own commits, of all kernels that share the counter.
    ours: Arc<AtomicU32>,
    /// Commits by other processes at the last dump of this kernel.
    others: Arc<AtomicU32>,
}

impl CommitCounter {
    /// Returns a counter for another kernel in the same network namespace.
    pub(crate) fn of_another(&self) -> Self {
        Self {
            ours: Arc::clone(&self.ours),
            ..Self::default()
        }
    }

    /// Counts own commits.
    pub(crate) fn committed(&self, count: u32) {
        self.ours.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the number of commits by other processes up to a generation.
    ///
    /// Only differences of such numbers are meaningful, because the kernel does not count
    /// from the start of this process.
    pub(crate) fn others_at(&self, generation: Generation) -> u32 {
        generation.0.wrapping_sub(self.ours.load(Ordering::Relaxed))
    }

    /// Records the number of other commits at a dump.
    pub(crate) fn dumped(&self, others: u32) {
        self.others.store(others, Ordering::Relaxed);
    }

    /// Returns whether other processes have committed since the last dump.
    pub(crate) fn missed(&self, others: u32) -> bool {
        self.others.load(Ordering::Relaxed) != others
    }
}
