//! Search for the edits that make a kernel reject an atomic batch.

use std::collections::HashSet;

use crate::{Cause, Reason, Rejection};

/// Recommended budget of [`isolate`]: rejected batches after which the search stops.
pub const MAX_REJECTED_BATCHES: usize = 64;

/// Number of attempts after which a batch is split although the kernel names edits.
const ROUNDS: usize = 8;

/// A kernel that applies batches of edits atomically.
///
/// An edit is identified by its position.
pub trait Atomic {
    /// Error of an attempt that cannot be attributed to single edits.
    type Error;

    /// Sends a batch.
    ///
    /// # Errors
    ///
    /// The state of the kernel is unknown, or no edit of the batch caused the error.
    fn attempt(&mut self, batch: &[usize]) -> Result<Attempt, Self::Error>;

    /// Returns the edits that depend on `rejected` edits.
    ///
    /// The result may include edits that are applied or rejected already.
    fn dependents(&self, rejected: &[usize]) -> Vec<usize>;

    /// Returns the position at which a part of two or more edits is split.
    ///
    /// The position must be less than the length of the part. At 0 the part is not split:
    /// it is sent again if the kernel named edits, and otherwise rejected as a whole.
    fn split(&self, part: &[usize]) -> usize {
        part.len() / 2
    }
}

/// Result of sending a batch.
///
/// Exhaustive: a batch is applied or rejected.
#[derive(Clone, Debug)]
pub enum Attempt {
    /// The batch was applied.
    Applied,
    /// The batch was rejected.
    Rejected {
        /// Edits that were applied before the rejection; empty if the kernel applies the
        /// batch as a whole.
        applied: Vec<usize>,
        /// Edits that the kernel named as rejected, with the reasons.
        named: Vec<(usize, Reason)>,
        /// Reason of the rejection.
        reason: Reason,
    },
}

/// Applies all edits of a batch except those that the kernel rejects.
///
/// Each rejected batch is sent again without the edits that the kernel named
/// and without their [dependents](Atomic::dependents).
/// The batch is split if the kernel names no edit, or still names edits in the eighth
/// attempt: `bad` edits among `n` cost about `bad * log2(n)` attempts.
///
/// Each rejected batch decrements `budget`, which several calls may share.
/// At 0, the edits of a rejected part that the kernel does not name are rejected with
/// [`Cause::Untested`].
///
/// # Errors
///
/// The first error of an attempt.
pub fn isolate<A: Atomic>(
    kernel: &mut A,
    batch: Vec<usize>,
    budget: &mut usize,
) -> Result<Vec<Rejection>, A::Error> {
    let mut search = Search {
        rejections: Vec::new(),
        parts: vec![batch],
    };
    while let Some(part) = search.parts.pop() {
        search.apply(kernel, part, budget)?;
    }
    Ok(search.rejections)
}

struct Search {
    rejections: Vec<Rejection>,
    /// Parts that are not applied yet, the next one last.
    parts: Vec<Vec<usize>>,
}

impl Search {
    fn apply<A: Atomic>(
        &mut self,
        kernel: &mut A,
        mut part: Vec<usize>,
        budget: &mut usize,
    ) -> Result<(), A::Error> {
        for round in 1.. {
            if part.is_empty() {
                return Ok(());
            }
            let Attempt::Rejected {
                applied,
                mut named,
                reason,
            } = kernel.attempt(&part)?
            else {
                return Ok(());
            };
            exclude(&mut part, applied);
            if let ([one], []) = (&*part, &*named) {
                named.push((*one, reason.clone()));
            }
            let is_named = !named.is_empty();
            self.reject(kernel, &mut part, named);
            if *budget == 0 {
                let untested = reason.with_cause(Cause::Untested);
                let indexes = std::mem::take(&mut part);
                self.reject_all(indexes, &untested);
                return Ok(());
            }
            *budget -= 1;
            if is_named && round < ROUNDS || part.len() < 2 {
                continue;
            }
            match kernel.split(&part) {
                0 if is_named => {}
                0 => {
                    self.reject_all(part, &reason);
                    return Ok(());
                }
                at => {
                    let latter = part.split_off(at);
                    self.parts.extend([latter, part]);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Rejects the named edits and all edits that depend on them.
    fn reject<A: Atomic>(
        &mut self,
        kernel: &A,
        part: &mut Vec<usize>,
        named: Vec<(usize, Reason)>,
    ) {
        let Some((_, first)) = named.first() else {
            return;
        };
        let reason = first.with_cause(Cause::Dependent);
        let indexes: Vec<_> = named.iter().map(|(index, _)| *index).collect();
        exclude(part, indexes.iter().copied());
        let named = named.into_iter();
        self.rejections
            .extend(named.map(|(index, reason)| Rejection { index, reason }));
        let dependents: HashSet<_> = kernel.dependents(&indexes).into_iter().collect();
        if dependents.is_empty() {
            return;
        }
        let waiting = std::iter::once(part).chain(&mut self.parts);
        let mut rejected = Vec::new();
        for part in waiting {
            part.retain(|index| {
                let depends = dependents.contains(index);
                rejected.extend(depends.then_some(*index));
                !depends
            });
        }
        self.reject_all(rejected, &reason);
    }

    fn reject_all(&mut self, indexes: Vec<usize>, reason: &Reason) {
        let rejections = indexes.into_iter().map(|index| Rejection {
            index,
            reason: reason.clone(),
        });
        self.rejections.extend(rejections);
    }
}

fn exclude(part: &mut Vec<usize>, indexes: impl IntoIterator<Item = usize>) {
    let indexes: HashSet<_> = indexes.into_iter().collect();
    if !indexes.is_empty() {
        part.retain(|index| !indexes.contains(index));
    }
}
