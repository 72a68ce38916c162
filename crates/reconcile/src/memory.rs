//! A kernel in memory, for tests.

use std::error::Error;
use std::fmt;

use crate::keep::Keep;
use crate::{Edit, Kernel, Keyed};

/// A kernel in memory that refuses what a real one would refuse.
///
/// It counts dumps and commits, and fails when told to: a failing commit
/// leaves a prefix of its edits applied, the worst a kernel may do.
#[derive(Clone, Debug)]
pub struct Memory<T> {
    state: Keep<T>,
    failures: Vec<usize>,
    dumps: usize,
    commits: usize,
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

    /// Changes the state behind everybody's back.
    pub fn interfere(&mut self, edit: Edit<T>) -> Result<(), Refused> {
        self.apply(&edit)
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

    fn commit(&mut self, edits: &[Edit<T>]) -> Result<(), Refused> {
        self.commits += 1;
        let applied = self.failures.pop().unwrap_or(usize::MAX);
        for (done, edit) in edits.iter().enumerate() {
            if done >= applied {
                return Err(Refused::Told);
            }
            self.apply(edit)?;
        }
        if applied == usize::MAX {
            Ok(())
        } else {
            Err(Refused::Told)
        }
    }
}
