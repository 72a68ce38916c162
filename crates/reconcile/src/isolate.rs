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

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that rejects some edits.
    struct Kernel {
        bad: HashSet<usize>,
        /// Maximum number of edits that it names.
        names: usize,
        /// Position at which parts are split; in the middle if `None`.
        split: Option<usize>,
        attempts: usize,
    }

    impl Kernel {
        fn new(bad: impl IntoIterator<Item = usize>, names: usize) -> Self {
            let bad = bad.into_iter().collect();
            Self {
                bad,
                names,
                split: None,
                attempts: 0,
            }
        }

        /// Sends a batch of `count` edits. Returns the rejected edits in order.
        fn rejected(&mut self, count: usize) -> Vec<usize> {
            let Ok(rejections) = isolate(self, (0..count).collect(), &mut 1_000);
            let mut indexes: Vec<_> = rejections.iter().map(|it| it.index).collect();
            indexes.sort_unstable();
            indexes
        }
    }

    impl Atomic for Kernel {
        type Error = std::convert::Infallible;

        fn attempt(&mut self, batch: &[usize]) -> Result<Attempt, Self::Error> {
            self.attempts += 1;
            let bad = batch.iter().filter(|index| self.bad.contains(index));
            let mut bad = bad.copied().peekable();
            let reason = Reason::rejected(None, "bad");
            Ok(match bad.peek() {
                None => Attempt::Applied,
                Some(_) => Attempt::Rejected {
                    applied: Vec::new(),
                    named: bad
                        .take(self.names)
                        .map(|it| (it, reason.clone()))
                        .collect(),
                    reason,
                },
            })
        }

        fn dependents(&self, _rejected: &[usize]) -> Vec<usize> {
            Vec::new()
        }

        fn split(&self, part: &[usize]) -> usize {
            self.split.unwrap_or(part.len() / 2)
        }
    }

    #[test]
    fn an_unnamed_edit_costs_two_attempts_per_halving() {
        for bad in [0, 37, 63] {
            let mut kernel = Kernel::new([bad], 0);
            assert_eq!(kernel.rejected(64), [bad]);
            assert_eq!(kernel.attempts, 1 + 2 * 6, "{bad}");
        }
    }

    #[test]
    fn a_batch_is_split_in_the_middle_by_default() {
        struct Halves;
        impl Atomic for Halves {
            type Error = std::convert::Infallible;

            fn attempt(&mut self, _batch: &[usize]) -> Result<Attempt, Self::Error> {
                Ok(Attempt::Applied)
            }

            fn dependents(&self, _rejected: &[usize]) -> Vec<usize> {
                Vec::new()
            }
        }
        assert_eq!(Halves.split(&[3, 4, 5, 6, 7]), 2);
    }

    #[test]
    fn a_batch_is_sent_again_without_the_named_edits() {
        let mut kernel = Kernel::new([1, 3, 5], 1);
        assert_eq!(kernel.rejected(64), [1, 3, 5]);
        assert_eq!(kernel.attempts, 3 + 1);
    }

    #[test]
    fn a_batch_is_split_in_the_eighth_attempt() {
        let mut kernel = Kernel::new(0..8, 1);
        assert_eq!(kernel.rejected(64), Vec::from_iter(0..8));
        assert_eq!(kernel.attempts, ROUNDS + 2);

        let mut kernel = Kernel::new(0..7, 1);
        assert_eq!(kernel.rejected(64), Vec::from_iter(0..7));
        assert_eq!(kernel.attempts, ROUNDS);
    }

    #[test]
    fn a_part_that_cannot_be_split_is_sent_again_only_if_the_kernel_names_edits() {
        let mut kernel = Kernel::new(0..10, 1);
        kernel.split = Some(0);
        assert_eq!(kernel.rejected(64), Vec::from_iter(0..10));
        assert_eq!(kernel.attempts, 10 + 1);

        let mut kernel = Kernel::new([5], 0);
        kernel.split = Some(0);
        assert_eq!(kernel.rejected(64), Vec::from_iter(0..64));
        assert_eq!(kernel.attempts, 1);
    }

    #[test]
    fn dependents_in_parts_that_wait_are_rejected_too() {
        /// Rejects edit 0 without a name, and edit 6 depends on it.
        struct Chained;
        impl Atomic for Chained {
            type Error = std::convert::Infallible;

            fn attempt(&mut self, batch: &[usize]) -> Result<Attempt, Self::Error> {
                Ok(match batch.contains(&0) {
                    false => Attempt::Applied,
                    true => Attempt::Rejected {
                        applied: Vec::new(),
                        named: Vec::new(),
                        reason: Reason::rejected(None, "bad"),
                    },
                })
            }

            fn dependents(&self, _rejected: &[usize]) -> Vec<usize> {
                vec![6]
            }
        }
        let Ok(rejections) = isolate(&mut Chained, (0..8).collect(), &mut 100);
        let causes: Vec<_> = rejections
            .iter()
            .map(|it| (it.index, it.reason.cause))
            .collect();
        assert_eq!(causes, [(0, Cause::Rejected), (6, Cause::Dependent)]);
    }
}
