//! Detection of nf_tables commits by other processes: by their number until a monitor is
//! open, then by its notifications.
//!
//! A sync writes only what changed, so it relies on the kernel still having what the last dump
//! showed. Before a monitor is open there is no notification of another program's commit. But
//! the kernel numbers the commits of a network namespace (the generation), and this process
//! counts its own. For example: at the dump the generation was 100 after 3 own commits, 97 by
//! others; now it is 105 after 8 own ones, again 97: nobody else has committed. At 106 it would
//! be 98, and the state must be dumped again.
//!
//! What must stay true: an own commit is counted exactly once, by whatever kernel of the engine
//! made it, so the families share one number. One that is not counted looks like a foreign one
//! and costs a dump after each sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vipline_nftables::{Generation, Monitor, Notification, TableId};

use crate::Drift;

/// Counts own commits to detect commits by other processes.
///
/// The kernel counts all commits in a network namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitCounter {
    /// Own commits, of all kernels that share the counter.
    ours: Arc<AtomicU32>,
    /// Commits by other processes at the last dump of this kernel. Not shared: each family
    /// dumps at its own time.
    others: Arc<AtomicU32>,
}

impl CommitCounter {
    /// Returns a counter for another kernel in the same network namespace.
    pub(crate) fn sibling(&self) -> Self {
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
    pub(crate) fn foreign_at(&self, generation: Generation) -> u32 {
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

/// Reads the monitor if it is open. Returns `None` if it is not.
///
/// A monitor that fails is closed; the result then reports lost notifications.
pub(crate) fn read(monitor: &mut Option<Monitor>) -> Option<Notification> {
    match monitor.as_mut()?.read() {
        Ok(notification) => Some(notification),
        // The reason does not matter: whatever was missed, only a dump tells.
        Err(_) => {
            *monitor = None;
            let mut notification = Notification::default();
            notification.is_incomplete = true;
            Some(notification)
        }
    }
}

/// Returns the changes of other processes to the watched tables, if there are any.
pub(crate) fn drift(
    notification: &Notification,
    is_watched: impl Fn(&TableId) -> bool,
) -> Option<Drift> {
    let mut drift = Drift::new(0, notification.is_incomplete);
    for commit in &notification.commits {
        let changes = commit.changes.iter();
        for (_, changes) in changes.filter(|(table, _)| is_watched(table)) {
            let process = commit.process.to_string();
            drift.add(Drift::new(changes.total(), false).with_process(process));
        }
    }
    (drift != Drift::default()).then_some(drift)
}
