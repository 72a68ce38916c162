//! What a kernel and who looks after it both know.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value with several owners, who hold it one at a time.
#[derive(Debug, Default)]
pub(super) struct Shared<T>(Arc<Mutex<T>>);

impl<T> Shared<T> {
    /// Waits until nobody else holds it.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
