//! Own commits to nf_tables, as opposed to foreign ones.
//!
//! The rules are watched, so that a change by another program is repaired at once. But each of
//! our own syncs changes them, too: if its notifications were taken for drift, each sync would
//! cause a dump of all rules and another sync.
//!
//! A restore program of the nft variant commits by a socket of its own.
//! The kernel reports each commit with the generation it made, with the process
//! ID in the initial PID namespace, and with the port ID of the socket.
//! The process ID is useless to a program in another PID namespace.
//! The port ID is the process ID that the program itself sees, unless another
//! socket of the network namespace has that port ID already.
//!
//! So a run is recorded with the generations before and after it, and a commit in between is
//! ours if its port ID is that of the program, or if the run made exactly as many commits as
//! there were. For example: the program with process ID 7 ran from generation 10 to 13 and
//! makes two commits. Reported are 11 by port 7, 12 by port 99 and 13 by port 7: 12 is foreign.
//!
//! What must stay true: an own commit may be taken for a foreign one, because that costs one
//! dump. A foreign one must never be taken for ours: its change would stay in the kernel until
//! the next full comparison.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vipline_nftables::{Commit, CommitCounter, Generation};

/// Maximum number of recorded runs. Notifications about a run arrive before the next poll, and
/// one poll starts only a few programs. A run that is forgotten too early costs one dump.
const MAX_RECORDED_RUNS: usize = 64;

/// Commits of this process to nf_tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    pub(super) commit_counter: CommitCounter,
    pub(super) own: OwnCommits,
}

impl Trace {
    /// Returns the trace of another kernel in the same network namespace. The runs are shared: the
    /// kernel numbers the commits of both families together, and reports them together.
    pub(super) fn sibling(&self) -> Self {
        Self {
            commit_counter: self.commit_counter.sibling(),
            own: self.own.clone(),
        }
    }
}

/// A run of a restore program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Generation before the program started.
    pub(super) before: Generation,
    /// Generation after the program ended.
    pub(super) after: Generation,
    /// Process ID of the program, as we see it.
    pub(super) process: u32,
    /// Number of commits if the program succeeds: one for each section of the document.
    pub(super) commits: u32,
}

/// The last runs of restore programs, shared by all kernels of an engine.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnCommits(Arc<Mutex<VecDeque<Run>>>);

impl OwnCommits {
    /// Records a run that ended.
    pub(super) fn record(&self, run: Run) {
        let mut runs = self.runs();
        if runs.len() == MAX_RECORDED_RUNS {
            runs.pop_front();
        }
        runs.push_back(run);
    }

    /// Removes our own commits from those that the kernel reported.
    pub(super) fn remove_from(&self, commits: &mut Vec<Commit>) {
        // All first, because `Run::own` needs every commit of its time, also those of other runs.
        let mut own = BTreeSet::new();
        for run in self.runs().iter() {
            own.extend(run.own(commits));
        }
        commits.retain(|commit| !own.contains(&commit.generation.0));
    }

    fn runs(&self) -> MutexGuard<'_, VecDeque<Run>> {
        // Also after a panic of another thread the list is whole: under the lock it is only read,
        // or gets and loses entries.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run {
    /// Returns the reported generations that the run made.
    ///
    /// If the origin of a commit is unclear, it counts as foreign. The only consequence
    /// is an additional dump.
    fn own(&self, reported: &[Commit]) -> Vec<u32> {
        let meanwhile = reported.iter().filter(|commit| {
            // The generation is a counter of 32 bits that wraps.
            let later = commit.generation.0.wrapping_sub(self.before.0);
            (1..=self.length()).contains(&later)
        });
        let meanwhile: Vec<_> = meanwhile.collect();
        let by_port = meanwhile
            .iter()
            .filter(|commit| commit.port_id == self.process);
        let by_port: Vec<_> = by_port.map(|commit| commit.generation.0).collect();
        let has_commits =
            |count: usize| u32::try_from(count).is_ok_and(|count| count <= self.commits);
        match by_port.len() {
            // Another socket has the port ID. Without foreign commits all commits are
            // own.
            0 if self.length() == self.commits => {
                let all = meanwhile.iter().map(|commit| commit.generation.0);
                all.collect()
            }
            // Fewer than `self.commits` if the program failed in between.
            count if has_commits(count) => by_port,
            // A foreign program had the port ID before ours or after it.
            _ => Vec::new(),
        }
    }

    /// Returns the number of commits during the run, including foreign ones.
    fn length(&self) -> u32 {
        self.after.0.wrapping_sub(self.before.0)
    }
}

#[cfg(test)]
mod tests {
    use vipline_netlink::attr::{put_be32, put_str};
    use vipline_netlink::message::Message;
    use vipline_nftables::{Family, Name, Notifications, TableId};

    use super::*;

    /// Returns a commit to table `ip nat` as the kernel reports it to a program in
    /// a PID namespace: no process ID is one that the program knows.
    fn commit(generation: u32, port_id: u32) -> Commit {
        let nat = TableId::new(Family::Ip, Name::new("nat").unwrap());
        let mut notices = Notifications::new(&[nat]);
        let (mut change, mut end) = (vec![2, 0, 0, 0], vec![0; 4]);
        put_str(&mut change, 1, "nat");
        put_be32(&mut end, 1, generation);
        put_be32(&mut end, 2, 1_000_000);
        let mut take = |ty, payload: &[u8]| {
            let message = Message {
                ty,
                flags: 0,
                seq: 0,
                port_id,
                payload,
            };
            notices.push(message).unwrap()
        };
        assert!(take(10 << 8, &change).is_none());
        take(10 << 8 | 15, &end).expect("the commit ends")
    }

    fn run(before: u32, after: u32, process: u32, commits: u32) -> Run {
        Run {
            before: Generation(before),
            after: Generation(after),
            process,
            commits,
        }
    }

    /// Returns the foreign generations among `(generation, port ID)` pairs.
    fn foreign(runs: &[Run], reported: &[(u32, u32)]) -> Vec<u32> {
        let own = OwnCommits::default();
        runs.iter().for_each(|run| own.record(*run));
        let commits = reported
            .iter()
            .map(|(generation, port)| commit(*generation, *port));
        let mut commits: Vec<_> = commits.collect();
        own.remove_from(&mut commits);
        commits.iter().map(|commit| commit.generation.0).collect()
    }

    #[test]
    fn commits_by_the_port_of_a_run_are_own_only_during_the_run() {
        let runs = [run(10, 12, 7, 2), run(20, 21, 8, 1)];
        let reported = [(10, 7), (11, 7), (12, 7), (13, 7), (21, 8), (22, 8)];
        assert_eq!(foreign(&runs, &reported), [10, 13, 22]);
    }

    #[test]
    fn a_foreign_commit_during_a_run_is_kept() {
        let runs = [run(10, 13, 7, 2)];
        assert_eq!(foreign(&runs, &[(11, 7), (12, 99), (13, 7)]), [12]);
    }

    #[test]
    fn commits_by_another_port_are_own_if_there_is_no_foreign_one() {
        let other = u32::MAX - 5000;
        let reported = [(11, other), (12, other)];
        assert_eq!(foreign(&[run(10, 12, 7, 2)], &reported), [0; 0]);
        let reported = [(11, other), (12, 99), (13, other)];
        assert_eq!(foreign(&[run(10, 13, 7, 2)], &reported), [11, 12, 13]);
        // The foreign commit was not reported because it left our chains alone.
        let reported = [(11, other), (13, other)];
        assert_eq!(foreign(&[run(10, 13, 7, 2)], &reported), [11, 13]);
    }

    #[test]
    fn a_port_with_more_commits_than_a_run_makes_has_a_foreign_owner_too() {
        assert_eq!(foreign(&[run(10, 12, 7, 1)], &[(11, 7), (12, 7)]), [11, 12]);
    }

    #[test]
    fn a_run_that_failed_early_owns_what_it_committed() {
        let runs = [run(10, 11, 7, 3), run(11, 11, 8, 3)];
        assert_eq!(foreign(&runs, &[(11, 7), (12, 8)]), [12]);
    }

    #[test]
    fn generations_wrap() {
        let runs = [run(u32::MAX, 1, 7, 2)];
        assert_eq!(foreign(&runs, &[(0, 7), (1, 7), (2, 7)]), [2]);
    }

    #[test]
    fn the_oldest_run_is_forgotten() {
        let runs: Vec<_> = (0..=64)
            .map(|number| run(number, number + 1, 7, 1))
            .collect();
        assert_eq!(foreign(&runs, &[(1, 7), (2, 7), (65, 7)]), [1]);
    }
}
