//! In-memory kernels that record commits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use proxy_core::{Config, Engine, Family, Planner};
use vipline_reconcile::{Edit, Keyed, Memory, MemoryError, Rejection, Target};

/// An in-memory kernel, with the edits of all commits since the last reset.
#[derive(Debug)]
pub(crate) struct Recorded<T: Keyed> {
    pub(crate) memory: Memory<T>,
    pub(crate) edits: Vec<Edit<T>>,
}

/// An in-memory kernel that an engine and a test share.
#[derive(Debug)]
pub(crate) struct SharedKernel<T: Keyed>(Arc<Mutex<Recorded<T>>>);

impl<T: Keyed> Clone for SharedKernel<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Keyed> Default for SharedKernel<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Recorded {
            memory: Memory::new(),
            edits: Vec::new(),
        })))
    }
}

impl<T: Keyed> SharedKernel<T> {
    pub(crate) fn get(&self) -> MutexGuard<'_, Recorded<T>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<T: Keyed> Target for SharedKernel<T> {
    type Object = T;
    type Error = MemoryError;

    fn dump(&mut self) -> Result<Vec<T>, MemoryError> {
        self.get().memory.dump()
    }

    fn commit(&mut self, edits: &[Edit<T>]) -> Result<Vec<Rejection>, MemoryError> {
        let mut kernel = self.get();
        kernel.edits.extend_from_slice(edits);
        kernel.memory.commit(edits)
    }
}

/// A planner with the settings of a configuration.
pub(crate) trait ModePlanner: Planner + for<'a> From<&'a Config> {}

impl<P: Planner + for<'a> From<&'a Config>> ModePlanner for P {}

/// In-memory kernels of both families.
#[derive(Debug)]
pub(crate) struct Kernels<T: Keyed>([SharedKernel<T>; 2]);

impl<T: Keyed> Default for Kernels<T> {
    fn default() -> Self {
        Self([SharedKernel::default(), SharedKernel::default()])
    }
}

impl<T: Keyed + Send + Sync + 'static> Kernels<T> {
    pub(crate) fn of(&self, family: Family) -> &SharedKernel<T> {
        let [v4, v6] = &self.0;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// Creates an engine over the kernels in their current state.
    pub(crate) fn engine<P: ModePlanner<Object = T>>(&self, config: Config) -> Engine {
        let planner = P::from(&config);
        Engine::with_kernels(config.engine, planner, |family| self.of(family).clone())
    }

    /// Returns the objects whose removal is not delayed.
    pub(crate) fn installed<P: Planner<Object = T>>(&self) -> Installed<T> {
        Installed(Family::ALL.map(|family| {
            let kernel = self.of(family).get();
            let objects = kernel.memory.objects();
            let counts = |object: &&T| !P::is_removal_delayed(object);
            objects.filter(counts).cloned().collect()
        }))
    }
}

/// The objects of both families at one time.
#[derive(Clone, Debug)]
pub(crate) struct Installed<T>(pub(crate) [Vec<T>; 2]);

impl<T: Keyed> Installed<T> {
    /// Returns the state as text.
    pub(crate) fn text<P: Planner<Object = T>>(&self) -> String {
        let families = Family::ALL.into_iter().zip(&self.0);
        families
            .map(|(family, objects)| P::listing(family, objects.iter()))
            .collect()
    }
}

impl<T: Keyed + PartialEq> PartialEq for Installed<T> {
    /// Compares objects, which takes less time than printing them.
    fn eq(&self, other: &Self) -> bool {
        let mut pairs = self.0.iter().zip(&other.0);
        pairs.all(|(one, other)| are_equal(one, other))
    }
}

/// Returns whether two states have the same objects, regardless of their order.
fn are_equal<'a, T: Keyed + PartialEq>(one: &'a [T], other: &'a [T]) -> bool {
    let other: HashMap<_, &T> = other.iter().map(|each| (each.key(), each)).collect();
    one.len() == other.len() && one.iter().all(|each| other.get(&each.key()) == Some(&each))
}
