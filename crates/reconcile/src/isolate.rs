//! Search for the edits that make a kernel reject an atomic batch.
//!
//! nf_tables and `iptables-restore` apply a batch as a whole or not at all. One Service whose
//! rule the kernel refuses would then keep the rules of ten thousand others out of the kernel,
//! so the bad edits must be found and left out, with few attempts: each one makes the kernel
//! check the whole batch again.
//!
//! Two ways to find them are combined:
//!
//! - The kernel *names* edits, for example by the offset of a message in its reply. The batch
//!   is sent again without them. That is one attempt, however many edits it named.
//! - The kernel names none (`iptables-restore` of the legacy variant says "line 7: failed" at
//!   COMMIT for every error). Then the batch is halved, and each half is sent by itself.
//!
//! For example: 64 edits, of which 37 is bad and not named. Attempts: 0..64 is rejected, 0..32
//! is applied, 32..64 is rejected, 32..48 is rejected, 32..40 ... down to 37 alone: 13
//! attempts, and 63 edits are applied.
//!
//! The parts are applied in the order of the batch, because later edits may need earlier ones:
//! a rule refers to a chain that an earlier edit creates. That is also why a bad edit takes
//! its dependents with it. They would be rejected one by one, each at the cost of a search,
//! and with a reason that misleads: "no such chain" instead of what is wrong with the chain.

use std::collections::HashSet;

use crate::{Cause, Reason, Rejection};

/// Recommended budget of [`isolate`]: rejected batches after which the search stops.
///
/// An unnamed bad edit among 4,096 costs 13 of them, one for each halving and one for the edit
/// itself, so this finds at least four in such a batch. If there are more, the rest is left
/// untested until its retry, and the commit ends. A caller whose attempts are slow, for example
/// because each one runs a program, passes a smaller budget.
pub const MAX_REJECTED_BATCHES: usize = 64;

/// Number of attempts in which the kernel may name edits before the batch is split all the same.
///
/// nf_tables names every bad edit at once, and the second attempt succeeds. `iptables-restore`
/// stops at the first bad line, so it names one in each attempt. If there are still bad edits
/// after eight attempts, there may be hundreds, and one attempt for each costs more than
/// halving: a half that has none of them is applied at once.
const MAX_ROUNDS_WITH_NAMES: usize = 8;

/// A kernel that applies batches of edits atomically.
///
/// An edit is identified by its position.
pub trait Atomic {
    /// Error of an attempt that cannot be attributed to single edits.
    type Error;

    /// Sends a batch, and says whether it was applied.
    ///
    /// # Errors
    ///
    /// The state of the kernel is unknown, or no edit of the batch caused the error.
    fn attempt(&mut self, batch: &[usize]) -> Result<Attempt, Self::Error>;

    /// Finds the edits that cannot be applied without the `rejected` ones, such as the rules of a
    /// chain.
    ///
    /// The result may include edits that are applied or rejected already: of these, nothing is
    /// changed. So an implementation may search all edits of the commit, and need not know which
    /// of them still wait.
    fn dependents(&self, rejected: &[usize]) -> Vec<usize>;

    /// Chooses the position at which a part of two or more edits is split. Default: the middle.
    ///
    /// The position must be less than the length of the part. 0 means that the part cannot be
    /// split, because its edits need each other, as a chain and the rules that jump to it do.
    /// Such a part is sent again if the kernel named edits. Otherwise it is rejected as a whole:
    /// no smaller batch could tell which of its edits is bad.
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
        /// Reason of the rejection as a whole, for edits that the kernel did not name: the only
        /// one of a batch, those of a part that cannot be split, and those that stay untested.
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
/// Each rejected batch decrements `budget`. If a commit is sent in several batches, as a large
/// one of nf_tables is, the calls for them share one budget, so that it bounds the whole commit.
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
            // A target may have applied a beginning before the rejection: iptables has a COMMIT
            // for each table. Edits that are sent twice would fail, as "exists".
            exclude(&mut part, applied);
            // A batch of one edit needs no name: the reason can only be about this edit.
            if let ([one], []) = (&*part, &*named) {
                named.push((*one, reason.clone()));
            }
            let is_named = !named.is_empty();
            self.reject(kernel, &mut part, named);
            // Checked after the named edits were rejected, so that they get their own reasons and
            // only the others count as untested. An untested edit is retried like a rejected
            // one: its turn comes, and other changes are not delayed until then.
            if *budget == 0 {
                let untested = reason.with_cause(Cause::Untested);
                let indexes = std::mem::take(&mut part);
                self.reject_all(indexes, &untested);
                return Ok(());
            }
            *budget -= 1;
            // One edit that is left is sent once more: it may be good, and was rejected with
            // the ones that the kernel named. An empty part ends at the top of the loop.
            if is_named && round < MAX_ROUNDS_WITH_NAMES || part.len() < 2 {
                continue;
            }
            match kernel.split(&part) {
                // Indivisible, for example a chain with its rules. Each attempt names at least
                // one more edit, so this ends.
                0 if is_named => {}
                0 => {
                    self.reject_all(part, &reason);
                    return Ok(());
                }
                at => {
                    let latter = part.split_off(at);
                    // The last one is next: the former half comes first, as later edits may
                    // depend on it.
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
        // `dependents` does not say which of the named edits a dependent needs, so the first one
        // gives its reason to all of them.
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
        // Dependents may stand in parts that wait since an earlier split.
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
            let mut indexes: Vec<_> = rejections.iter().map(|rejection| rejection.index).collect();
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
                        .map(|index| (index, reason.clone()))
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
        assert_eq!(kernel.attempts, MAX_ROUNDS_WITH_NAMES + 2);

        let mut kernel = Kernel::new(0..7, 1);
        assert_eq!(kernel.rejected(64), Vec::from_iter(0..7));
        assert_eq!(kernel.attempts, MAX_ROUNDS_WITH_NAMES);
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
                Ok(if batch.contains(&0) {
                    Attempt::Rejected {
                        applied: Vec::new(),
                        named: Vec::new(),
                        reason: Reason::rejected(None, "bad"),
                    }
                } else {
                    Attempt::Applied
                })
            }

            fn dependents(&self, _rejected: &[usize]) -> Vec<usize> {
                vec![6]
            }
        }
        let Ok(rejections) = isolate(&mut Chained, (0..8).collect(), &mut 100);
        let causes: Vec<_> = rejections
            .iter()
            .map(|rejection| (rejection.index, rejection.reason.cause))
            .collect();
        assert_eq!(causes, [(0, Cause::Rejected), (6, Cause::Dependent)]);
    }
}
