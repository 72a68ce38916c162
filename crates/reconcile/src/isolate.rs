//! Search for the edits that a kernel of atomic batches refuses.

use std::collections::HashSet;

use crate::{Cause, Reason, Rejection};

/// How many refused batches a commit sends at most before it gives up on parts.
pub const REFUSALS: usize = 64;

/// How often a batch is sent again without what was named, before it is split.
const ROUNDS: usize = 8;

/// A kernel that applies a batch of edits as a whole or not at all.
///
/// Edits are known by their positions.
pub trait Atomic {
    /// Why an attempt failed that says nothing about single edits.
    type Error;

    /// Sends a batch.
    ///
    /// # Errors
    ///
    /// The kernel's state is unknown, or no part of the batch is to blame.
    fn attempt(&mut self, batch: &[usize]) -> Result<Attempt, Self::Error>;

    /// Returns the edits that make no sense without those `rejected`.
    ///
    /// They may include edits that are applied or rejected already.
    fn dependents(&self, rejected: &[usize]) -> Vec<usize>;

    /// Returns where to split a part of two or more edits: how many the first half has.
    ///
    /// With 0 the part cannot be split, and is rejected as a whole.
    fn split(&self, part: &[usize]) -> usize {
        part.len() / 2
    }
}

/// Result of sending a batch.
#[derive(Clone, Debug)]
pub enum Attempt {
    /// All of the batch is applied.
    Applied,
    /// The kernel refused the batch.
    Refused {
        /// Edits that are applied nevertheless, in parts that precede the refusal.
        applied: Vec<usize>,
        /// Edits that the kernel named; none if the kernel does not name them.
        named: Vec<(usize, Reason)>,
        /// Why the batch was refused.
        reason: Reason,
    },
}

/// Applies all edits of a batch except those that the kernel refuses.
///
/// Each refused batch is sent again without the edits that the kernel named
/// and without their [dependents](Atomic::dependents).
/// If the kernel names no edit, or names new ones again and again, the batch is
/// split: `bad` edits among `n` cost about `bad * log2(n)` attempts.
/// After `budget` refused batches a refused part is rejected as a whole, as
/// [`Cause::Untested`]; the budget is shared between calls.
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
    /// The parts that are still to be applied, the next one last.
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
            let Attempt::Refused {
                applied,
                mut named,
                reason,
            } = kernel.attempt(&part)?
            else {
                return Ok(());
            };
            leave_out(&mut part, applied);
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

    /// Rejects what was named and all that depends on it.
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
        leave_out(part, indexes.iter().copied());
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

fn leave_out(part: &mut Vec<usize>, indexes: impl IntoIterator<Item = usize>) {
    let indexes: HashSet<_> = indexes.into_iter().collect();
    if !indexes.is_empty() {
        part.retain(|index| !indexes.contains(index));
    }
}
