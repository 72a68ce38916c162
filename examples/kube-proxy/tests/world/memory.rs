//! Kernels in memory that note what they are sent.

use std::sync::{Arc, Mutex, MutexGuard};

use proxy_core::{Config, Engine, Family, Planner};
use vipline_reconcile::{Edit, Keyed, Memory, MemoryError, Rejection, Target};

/// A kernel in memory, with the edits of all commits since they were taken.
#[derive(Debug)]
pub(crate) struct Noted<T: Keyed> {
    pub(crate) memory: Memory<T>,
    pub(crate) edits: Vec<Edit<T>>,
}

/// A kernel in memory that an engine and a test share.
#[derive(Debug)]
pub(crate) struct Shared<T: Keyed>(Arc<Mutex<Noted<T>>>);

impl<T: Keyed> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Keyed> Default for Shared<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Noted {
            memory: Memory::new(),
            edits: Vec::new(),
        })))
    }
}

impl<T: Keyed> Shared<T> {
    pub(crate) fn get(&self) -> MutexGuard<'_, Noted<T>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<T: Keyed> Target for Shared<T> {
    type Object = T;
    type Error = MemoryError;

    fn dump(&mut self) -> Result<Vec<T>, MemoryError> {
        self.get().memory.dump()
    }

    fn commit(&mut self, edits: &[Edit<T>]) -> Result<Vec<Rejection>, MemoryError> {
        let mut noted = self.get();
        noted.edits.extend_from_slice(edits);
        noted.memory.commit(edits)
    }
}

/// Kernels of both families.
#[derive(Debug)]
pub(crate) struct Kernels<T: Keyed>([Shared<T>; 2]);

impl<T: Keyed> Default for Kernels<T> {
    fn default() -> Self {
        Self([Shared::default(), Shared::default()])
    }
}

impl<T: Keyed + Send + Sync + 'static> Kernels<T> {
    pub(crate) fn of(&self, family: Family) -> &Shared<T> {
        let [v4, v6] = &self.0;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// Starts an engine over the kernels, as they are.
    pub(crate) fn engine<P: Planner<Object = T> + 'static>(&self, config: Config) -> Engine {
        Engine::with_kernels::<P, _>(config, |family| self.of(family).clone())
    }

    /// Returns the objects that stay no longer than they are used, as text.
    pub(crate) fn held<P: Planner<Object = T>>(&self) -> String {
        let listing = |family| {
            let noted = self.of(family).get();
            let objects = noted
                .memory
                .objects()
                .filter(|object| !P::is_removal_delayed(object));
            P::listing(family, objects)
        };
        Family::ALL.into_iter().map(listing).collect()
    }
}
