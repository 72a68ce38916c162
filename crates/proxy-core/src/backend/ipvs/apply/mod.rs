//! IO of mode ipvs: the kernel of a family with its state, the watch, the preparation of
//! the node and the removal of objects.

pub(super) mod kernel;

pub(super) mod watch;

pub(super) mod cleanup;

pub(super) mod installed_rules;

pub(super) mod saved;

pub(super) mod prepare;

mod capacity;

pub(super) mod drain;

mod installed;

mod links;

mod rejections;

mod schedulers;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// State that a kernel and its watch share, behind a mutex.
#[derive(Debug, Default)]
pub(super) struct Shared<T>(Arc<Mutex<T>>);

impl<T> Shared<T> {
    /// Locks the mutex.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
