//! A kernel in memory, for tests.

use std::error::Error;
use std::fmt;

use crate::keep::Keep;
use crate::{Atomic, Attempt, Cause, Edit, Kernel, Keyed, REFUSALS, Reason, Rejection, isolate};

/// `ENOENT` and `EEXIST` of `asm-generic/errno-base.h`.
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;

/// A kernel in memory that refuses what a real one would refuse.
///
/// It counts dumps and commits, and fails when told to: a failing commit
/// leaves a prefix of its edits applied, the worst a kernel may do.
/// [`reject`](Self::reject) makes the kernel refuse single objects.
#[derive(Clone, Debug)]
pub struct Memory<T> {
    state: Keep<T>,
    failures: Vec<usize>,
    dumps: usize,
    commits: usize,
    atomicity: Atomicity,
    rejects: Vec<Reject<T>>,
    attempts: usize,
}

/// Treatment of the edits of a commit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Atomicity {
    /// It takes each edit for itself, as kernels of single messages do.
    #[default]
    Single,
    /// It applies all edits or none, and names the first edit that it refuses.
    NamesFirst,
    /// It applies all edits or none, and names all edits that it refuses.
    NamesAll,
    /// It applies all edits or none, and does not say which one it refuses.
    NamesNone,
}

/// An object that is rejected.
#[derive(Clone, Debug)]
struct Reject<T> {
    object: T,
    errno: i32,
    count: usize,
}

/// A commit that the kernel in memory refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// An object was added under a key that is taken.
    AlreadyExists,
    /// An object was changed or removed that is not there as the edit says.
    NotFound,
    /// The test asked for a failure.
    Told,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlreadyExists => "already exists",
            Self::NotFound => "not found",
            Self::Told => "failed as told",
        })
    }
}

impl Error for Refused {}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self {
            state: Keep::default(),
            failures: Vec::new(),
            dumps: 0,
            commits: 0,
            atomicity: Atomicity::default(),
            rejects: Vec::new(),
            attempts: 0,
        }
    }
}

impl<T: Keyed> Memory<T> {
    /// Returns an empty kernel.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the objects it holds, in no order.
    pub fn objects(&self) -> impl Iterator<Item = &T> {
        self.state.iter()
    }

    /// Returns how often it was dumped.
    pub fn dumps(&self) -> usize {
        self.dumps
    }

    /// Returns how often it was written to.
    pub fn commits(&self) -> usize {
        self.commits
    }

    /// Makes a coming commit fail after `applied` of its edits.
    ///
    /// Each call is good for one commit, the last call for the next commit.
    pub fn fail_after(&mut self, applied: usize) {
        self.failures.push(applied);
    }

    /// Sets what becomes of the edits of a commit.
    pub fn set_atomicity(&mut self, atomicity: Atomicity) {
        self.atomicity = atomicity;
    }

    /// Rejects all edits of objects with the key of this one, with an error number,
    /// until they are [accepted](Self::accept).
    ///
    /// `EEXIST` (17) and `ENOENT` (2) count as [`Cause::Conflict`].
    pub fn reject(&mut self, object: T, errno: i32) {
        self.accept(&object);
        let count = 0;
        self.rejects.push(Reject {
            object,
            errno,
            count,
        });
    }

    /// Rejects objects with the key of this one no longer.
    pub fn accept(&mut self, object: &T) {
        self.rejects.retain(|it| it.object.key() != object.key());
    }

    /// Returns how many edits of objects with the key of this one were rejected.
    pub fn rejections(&self, object: &T) -> usize {
        let rejects = self.rejects.iter();
        let of_object = rejects.filter(|it| it.object.key() == object.key());
        of_object.map(|it| it.count).sum()
    }

    /// Returns how many batches were sent, refused ones included.
    pub fn attempts(&self) -> usize {
        self.attempts
    }

    /// Changes the state behind everybody's back.
    pub fn interfere(&mut self, edit: Edit<T>) -> Result<(), Refused> {
        self.apply(&edit)
    }

    /// Returns why an edit is rejected, if it is, and counts that.
    fn judge(&mut self, edit: &Edit<T>) -> Option<Reason> {
        let mut rejects = self.rejects.iter_mut();
        let reject = rejects.find(|it| it.object.key() == edit.key())?;
        reject.count += 1;
        let reason = Reason::refused(Some(reject.errno), format_args!("errno {}", reject.errno));
        Some(match reject.errno {
            EEXIST | ENOENT => reason.with_cause(Cause::Conflict),
            _ => reason,
        })
    }

    fn apply(&mut self, edit: &Edit<T>) -> Result<(), Refused> {
        let held = self.state.get_like(edit.object());
        match edit {
            Edit::Add(_) if held.is_some() => return Err(Refused::AlreadyExists),
            Edit::Change { old, .. } | Edit::Remove(old) if !held.is_some_and(|t| t.same(old)) => {
                return Err(Refused::NotFound);
            }
            _ => {}
        }
        self.state.take_like(edit.object());
        if let Some(new) = edit.clone().into_sides().1 {
            self.state.put(new);
        }
        Ok(())
    }
}

impl<T: Keyed> Kernel for Memory<T> {
    type Object = T;
    type Error = Refused;

    fn dump(&mut self) -> Result<Vec<T>, Refused> {
        self.dumps += 1;
        Ok(self.state.iter().cloned().collect())
    }

    fn commit(&mut self, edits: &[Edit<T>]) -> Result<Vec<Rejection>, Refused> {
        self.commits += 1;
        let applied = self.failures.pop().unwrap_or(usize::MAX);
        if applied < usize::MAX {
            for edit in edits.iter().take(applied) {
                self.apply(edit)?;
            }
            return Err(Refused::Told);
        }
        let mut budget = REFUSALS;
        let all = (0..edits.len()).collect();
        isolate(
            &mut Sent {
                memory: self,
                edits,
            },
            all,
            &mut budget,
        )
    }
}

/// A commit that is being sent.
struct Sent<'a, T> {
    memory: &'a mut Memory<T>,
    edits: &'a [Edit<T>],
}

impl<T: Keyed> Atomic for Sent<'_, T> {
    type Error = Refused;

    fn attempt(&mut self, batch: &[usize]) -> Result<Attempt, Refused> {
        let memory = &mut *self.memory;
        memory.attempts += 1;
        let judged = batch
            .iter()
            .map(|&index| (index, memory.judge(&self.edits[index])));
        let (mut applied, mut named) = (Vec::new(), Vec::new());
        for (index, reason) in judged {
            match reason {
                Some(reason) => named.push((index, reason)),
                None => applied.push(index),
            }
        }
        let reason = named.first().map(|(_, reason)| reason.clone());
        if reason.is_some() && memory.atomicity != Atomicity::Single {
            applied.clear();
        }
        match memory.atomicity {
            Atomicity::NamesFirst => named.truncate(1),
            Atomicity::NamesNone => named.clear(),
            Atomicity::Single | Atomicity::NamesAll => {}
        }
        for &index in &applied {
            memory.apply(&self.edits[index])?;
        }
        Ok(match reason {
            None => Attempt::Applied,
            Some(reason) => Attempt::Refused {
                applied,
                named,
                reason,
            },
        })
    }

    fn dependents(&self, _: &[usize]) -> Vec<usize> {
        Vec::new()
    }
}
