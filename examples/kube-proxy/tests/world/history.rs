//! Random histories, and minimization of a history that violates a law.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use testworld::validation::Strictness;
use testworld::{Change, Cluster, Id, Proposal, Verb, generate};
use vipline_service_model::arbitrary::Dice;

/// Result of a law for a history. The error describes the violation.
pub(crate) type Verdict = Result<(), String>;

/// Maximum number of attempts to shorten a failing history.
const MAX_ATTEMPTS: usize = 300;

/// Returns a random history of up to `longest` changes. A quarter of the histories
/// begins with an older API server, which is then upgraded. One in `giants` changes
/// adds an object of maximal size.
pub(crate) fn history(seed: u64, longest: u8, giants: u8) -> Vec<Change> {
    let mut dice = Dice::from_seed(seed);
    let is_upgraded = dice.once_in(4);
    let mut cluster = Cluster::new(match is_upgraded {
        true => Strictness::Legacy,
        false => Strictness::Strict,
    });
    let length = 1 + dice.roll(longest);
    let mut changes = Vec::new();
    for step in 0..length {
        if step > length / 2 {
            cluster.set_strictness(Strictness::Strict);
        }
        changes.push(generate::step(&mut cluster, &mut dice));
        if dice.once_in(giants) {
            let giant = generate::giant(&cluster, &mut dice);
            changes.extend(cluster.admit(giant).ok().flatten());
        }
    }
    changes
}

/// Returns changes that delete every object, in a random order.
pub(crate) fn deletions(changes: &[Change], seed: u64) -> Vec<Change> {
    let mut cluster = Cluster::new(Strictness::Legacy);
    let last: BTreeMap<Id, &Change> = changes.iter().map(|each| (each.id(), each)).collect();
    let existing = last.into_values().filter(|each| each.verb != Verb::Deleted);
    let mut ids = Vec::new();
    for change in existing {
        cluster.store(change.kind, change.object.clone());
        ids.push(change.id());
    }
    let ids = shuffled(ids.iter().chain(&ids).cloned(), seed);
    let deletions = ids
        .into_iter()
        .map(|id| cluster.admit(Proposal::Delete(id)));
    deletions
        .filter_map(|deleted| deleted.ok().flatten())
        .collect()
}

/// Returns the values in a random order.
pub(crate) fn shuffled<T>(all: impl Iterator<Item = T>, seed: u64) -> Vec<T> {
    let mut dice = Dice::from_seed(seed);
    let mut shuffled = Vec::new();
    for each in all {
        let place = usize::from(dice.roll(u8::MAX)) % (shuffled.len() + 1);
        shuffled.insert(place, each);
    }
    shuffled
}

/// Checks a law for the histories of all seeds. Panics with a minimized history if a
/// history violates the law.
pub(crate) fn check(
    seeds: u64,
    history: impl Fn(u64) -> Vec<Change> + Sync,
    law: impl Fn(u64, &[Change]) -> Verdict + Sync,
) {
    let next = AtomicU64::new(0);
    let violation = Mutex::new(None);
    let work = || {
        while let seed @ 0.. = next.fetch_add(1, Ordering::Relaxed)
            && seed < seeds
            && violation.lock().unwrap().is_none()
        {
            let changes = history(seed);
            if let Err(reason) = apply_law(&law, seed, &changes) {
                violation
                    .lock()
                    .unwrap()
                    .get_or_insert((seed, reason, changes));
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    if let Some((seed, reason, changes)) = violation.into_inner().unwrap() {
        let (reason, changes) = minimize(&law, seed, reason, changes);
        let mut text = format!("seed {seed}: {reason}\n");
        for change in &changes {
            let line = change.line();
            let end = line
                .char_indices()
                .nth(4_000)
                .map_or(line.len(), |(at, _)| at);
            writeln!(text, "{}", &line[..end]).unwrap();
        }
        panic!("{text}");
    }
}

/// Applies a law. A panic is a violation.
fn apply_law(law: impl Fn(u64, &[Change]) -> Verdict, seed: u64, changes: &[Change]) -> Verdict {
    let verdict = panic::catch_unwind(AssertUnwindSafe(|| law(seed, changes)));
    verdict.unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| cause.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a text")))
    })
}

/// Removes changes while the law stays violated.
fn minimize(
    law: impl Fn(u64, &[Change]) -> Verdict,
    seed: u64,
    mut reason: String,
    mut changes: Vec<Change>,
) -> (String, Vec<Change>) {
    let mut place = 0;
    for _ in 0..MAX_ATTEMPTS {
        if place >= changes.len() {
            break;
        }
        let mut fewer = changes.clone();
        fewer.remove(place);
        match apply_law(&law, seed, &fewer) {
            Err(why) => (reason, changes) = (why, fewer),
            Ok(()) => place += 1,
        }
    }
    (reason, changes)
}
