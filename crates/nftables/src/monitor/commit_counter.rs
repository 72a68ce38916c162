//! Detection of commits by other processes while no monitor is open.
//!
//! A program that writes only what changed relies on the kernel still having what its last dump
//! showed. Before a monitor is open there is no notification of another program's commit. But
//! the kernel numbers the commits of a network namespace (the generation), and this process
//! counts its own. For example: at the dump the generation was 100 after 3 own commits, 97 by
//! others; now it is 105 after 8 own ones, again 97: nobody else has committed. At 106 it would
//! be 98, and the state must be dumped again.
//!
//! What must stay true: an own commit is counted exactly once, by whatever client of the
//! program made it, so all of them share one number. One that is not counted looks like a foreign one
//! and costs a dump.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Generation;

/// Counts own commits to detect commits by other processes, which the kernel counts as well.
///
/// ```no_run
/// use vipline_nftables::{Client, CommitCounter, Family, Monitor, Name, TableId, Transaction};
///
/// let table = TableId::new(Family::Inet, Name::new("firewall")?);
/// let counter = CommitCounter::default();
/// let mut client = Client::open()?;
/// let generation = client.generation()?;
/// let ruleset = client.dump(&[table.clone()])?;
/// counter.dumped(counter.foreign_at(generation));
/// client.commit(&Transaction::default())?;
/// counter.committed(1);
/// // From now on the monitor reports changes. Was there one since the dump?
/// let monitor = Monitor::open(&[table], &[client.port_id()])?;
/// if counter.missed(counter.foreign_at(client.generation()?)) {
///     println!("another program committed: dump again");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CommitCounter {
    /// Own commits, of all siblings.
    ours: Arc<AtomicU32>,
    /// Commits by other processes at the last dump of this sibling. Not shared: each
    /// client dumps at its own time.
    others: Arc<AtomicU32>,
}

impl CommitCounter {
    /// Returns a counter for another client in the same network namespace. Own commits of both
    /// are counted together.
    #[must_use]
    pub fn sibling(&self) -> Self {
        Self {
            ours: Arc::clone(&self.ours),
            ..Self::default()
        }
    }

    /// Counts own commits.
    pub fn committed(&self, count: u32) {
        self.ours.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the number of commits by other processes up to a generation.
    ///
    /// Only differences of such numbers are meaningful, because the kernel does not count
    /// from the start of this process.
    pub fn foreign_at(&self, generation: Generation) -> u32 {
        generation.0.wrapping_sub(self.ours.load(Ordering::Relaxed))
    }

    /// Records the number of other commits at a dump.
    pub fn dumped(&self, others: u32) {
        self.others.store(others, Ordering::Relaxed);
    }

    /// Returns whether other processes have committed since the last dump.
    pub fn missed(&self, others: u32) -> bool {
        self.others.load(Ordering::Relaxed) != others
    }
}
