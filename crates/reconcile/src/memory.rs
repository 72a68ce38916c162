//! An in-memory kernel for tests.

use std::error::Error;
use std::fmt;

use crate::keyed_map::KeyedMap;
use crate::{
    Atomic, Attempt, Cause, Edit, Keyed, MAX_REJECTED_BATCHES, Reason, Rejection, Target, isolate,
};

/// `ENOENT` and `EEXIST` of `asm-generic/errno-base.h`.
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;

/// An in-memory kernel for tests that rejects edits as a real kernel does.
///
/// The kernel counts dumps and commits.
/// [`fail_after`](Self::fail_after) injects a failure that leaves a prefix of the
/// edits applied; [`reject`](Self::reject) makes the kernel reject single objects.
#[derive(Clone, Debug)]
pub struct Memory<T> {
    state: KeyedMap<T>,
    failures: Vec<usize>,
    dumps: usize,
    commits: usize,
    atomicity: Atomicity,
    rejects: Vec<Reject<T>>,
    attempts: usize,
}

/// Atomicity of a commit, and the edits that its rejection names.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Atomicity {
    /// Each edit is applied or rejected separately, like single netlink messages.
    #[default]
    Single,
    /// Commits are atomic; a rejection names the first rejected edit.
    NamesFirst,
    /// Commits are atomic; a rejection names all rejected edits.
    NamesAll,
    /// Commits are atomic; a rejection names no edit.
    NamesNone,
}

/// An object whose edits are rejected.
#[derive(Clone, Debug)]
struct Reject<T> {
    object: T,
    errno: i32,
    count: usize,
}

/// An error of [`Memory`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MemoryError {
    /// The key of an added object is in use.
    AlreadyExists,
    /// The object to change or remove is missing or differs from the edit.
    NotFound,
    /// [`Memory::fail_after`] requested the failure.
    Injected,
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlreadyExists => "already exists",
            Self::NotFound => "not found",
            Self::Injected => "injected failure",
        })
    }
}

impl Error for MemoryError {}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self {
            state: KeyedMap::default(),
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
    /// Creates an empty kernel.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns all objects in an unspecified order.
    pub fn objects(&self) -> impl Iterator<Item = &T> {
        self.state.iter()
    }

    /// Returns the object with the key of `object`.
    pub fn get(&self, object: &T) -> Option<&T> {
        self.state.get(object)
    }

    /// Returns the number of dumps.
    pub fn dumps(&self) -> usize {
        self.dumps
    }

    /// Returns the number of commits.
    pub fn commits(&self) -> usize {
        self.commits
    }

    /// Makes one commit fail after the first `applied` of its edits.
    ///
    /// Each call adds a failure. The next commit uses the most recently added one.
    pub fn fail_after(&mut self, applied: usize) {
        self.failures.push(applied);
    }

    /// Sets the atomicity of commits.
    pub fn set_atomicity(&mut self, atomicity: Atomicity) {
        self.atomicity = atomicity;
    }

    /// Rejects all edits of objects with the key of `object`, with the error number
    /// `errno`, until a call of [`accept`](Self::accept).
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

    /// Stops rejecting objects with the key of `object`.
    pub fn accept(&mut self, object: &T) {
        self.rejects.retain(|it| it.object.key() != object.key());
    }

    /// Returns the number of rejected edits of objects with the key of `object`.
    pub fn rejections(&self, object: &T) -> usize {
        let rejects = self.rejects.iter();
        let of_object = rejects.filter(|it| it.object.key() == object.key());
        of_object.map(|it| it.count).sum()
    }

    /// Returns the number of batches sent, including rejected ones.
    pub fn attempts(&self) -> usize {
        self.attempts
    }

    /// Applies an edit as another program would do.
    ///
    /// # Errors
    ///
    /// - [`MemoryError::AlreadyExists`]: an object with the key of the added object
    ///   exists.
    /// - [`MemoryError::NotFound`]: the object to change or remove is missing or differs
    ///   from the edit.
    pub fn edit_externally(&mut self, edit: Edit<T>) -> Result<(), MemoryError> {
        self.apply(&edit)
    }

    /// Returns the reason why an edit must be rejected, if so, and counts the rejection.
    fn check(&mut self, edit: &Edit<T>) -> Option<Reason> {
        let mut rejects = self.rejects.iter_mut();
        let reject = rejects.find(|it| it.object.key() == edit.key())?;
        reject.count += 1;
        let reason = Reason::rejected(Some(reject.errno), format_args!("errno {}", reject.errno));
        Some(match reject.errno {
            EEXIST | ENOENT => reason.with_cause(Cause::Conflict),
            _ => reason,
        })
    }

    fn apply(&mut self, edit: &Edit<T>) -> Result<(), MemoryError> {
        let installed = self.state.get(edit.object());
        match edit {
            Edit::Add(_) if installed.is_some() => return Err(MemoryError::AlreadyExists),
            Edit::Change { old, .. } | Edit::Remove(old)
                if !installed.is_some_and(|object| object.is_equivalent(old)) =>
            {
                return Err(MemoryError::NotFound);
            }
            _ => {}
        }
        self.state.remove(edit.object());
        if let Some(new) = edit.clone().into_old_and_new().1 {
            self.state.insert(new);
        }
        Ok(())
    }
}

impl<T: Keyed> Target for Memory<T> {
    type Object = T;
    type Error = MemoryError;

    fn dump(&mut self) -> Result<Vec<T>, MemoryError> {
        self.dumps += 1;
        Ok(self.state.iter().cloned().collect())
    }

    fn commit(&mut self, edits: &[Edit<T>]) -> Result<Vec<Rejection>, MemoryError> {
        self.commits += 1;
        let applied = self.failures.pop().unwrap_or(usize::MAX);
        if applied < usize::MAX {
            for edit in edits.iter().take(applied) {
                self.apply(edit)?;
            }
            return Err(MemoryError::Injected);
        }
        let mut budget = MAX_REJECTED_BATCHES;
        let all = (0..edits.len()).collect();
        isolate(
            &mut Commit {
                memory: self,
                edits,
            },
            all,
            &mut budget,
        )
    }
}

/// A commit in progress.
struct Commit<'a, T> {
    memory: &'a mut Memory<T>,
    edits: &'a [Edit<T>],
}

impl<T: Keyed> Atomic for Commit<'_, T> {
    type Error = MemoryError;

    fn attempt(&mut self, batch: &[usize]) -> Result<Attempt, MemoryError> {
        let memory = &mut *self.memory;
        memory.attempts += 1;
        let checked = batch
            .iter()
            .map(|&index| (index, memory.check(&self.edits[index])));
        let (mut applied, mut named) = (Vec::new(), Vec::new());
        for (index, reason) in checked {
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
            Some(reason) => Attempt::Rejected {
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
