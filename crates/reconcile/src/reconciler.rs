//! Brings a kernel to the wanted state.

use crate::{Edit, Kernel, Pending, diff};

/// A kernel, and what is known of its state.
///
/// While the state is known, a reconciliation commits the edits [gathered](Self::pending)
/// since the last one.
/// After a failure, or when told to [`forget`](Self::forget), the state is
/// unknown: the next reconciliation dumps it and commits the difference.
#[derive(Clone, Debug)]
pub struct Reconciler<K: Kernel> {
    kernel: K,
    /// The edits not committed yet; `None` when the kernel's state is unknown.
    pending: Option<Pending<K::Object>>,
}

/// What a reconciliation did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// How many edits were committed; with none the kernel was not written to.
    pub edits: usize,
    /// Whether the kernel's state had to be dumped.
    pub dumped: bool,
    /// Whether the commit replaced a state that somebody else made.
    pub took_over: bool,
}

/// What leads a kernel to the wanted state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step<T> {
    /// What is to be committed.
    pub edits: Vec<Edit<T>>,
    /// Whether the kernel's state had to be dumped.
    pub dumped: bool,
}

impl<K: Kernel> Reconciler<K> {
    /// Takes a kernel whose state is unknown.
    pub fn new(kernel: K) -> Self {
        Self {
            kernel,
            pending: None,
        }
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Returns the kernel to be changed; who changes its state says [`forget`](Self::forget).
    pub fn kernel_mut(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// Tells whether the kernel's state is known.
    pub fn is_known(&self) -> bool {
        self.pending.is_some()
    }

    /// Tells whether there is nothing to commit and the kernel's state is known.
    pub fn is_settled(&self) -> bool {
        self.pending.as_ref().is_some_and(Pending::is_empty)
    }

    /// Returns where edits for the next reconciliation are gathered.
    ///
    /// `None` while the kernel's state is unknown: the difference to the
    /// desired state will hold them.
    pub fn pending(&mut self) -> Option<&mut Pending<K::Object>> {
        self.pending.as_mut()
    }

    /// Declares the kernel's state unknown.
    pub fn forget(&mut self) {
        self.pending = None;
    }

    /// Returns the edits between the kernel and the `desired` state; changes nothing.
    pub fn difference<'a>(
        &mut self,
        desired: impl IntoIterator<Item = &'a K::Object>,
    ) -> Result<Vec<Edit<K::Object>>, K::Error>
    where
        K::Object: 'a,
    {
        Ok(diff(self.kernel.dump()?, desired))
    }

    /// Makes the kernel equal to the `desired` state.
    ///
    /// `desired` is read only when the kernel's state is unknown; the edits
    /// given since the last success lead to it otherwise.
    pub fn reconcile<'a>(
        &mut self,
        desired: impl IntoIterator<Item = &'a K::Object>,
    ) -> Result<Outcome, K::Error>
    where
        K::Object: 'a,
    {
        let step = self.next(desired)?;
        self.take(&step)
    }

    /// Returns the next step to the `desired` state, which is read only when the
    /// kernel's state is unknown.
    ///
    /// The state is unknown until the step was [taken](Self::take).
    pub fn next<'a>(
        &mut self,
        desired: impl IntoIterator<Item = &'a K::Object>,
    ) -> Result<Step<K::Object>, K::Error>
    where
        K::Object: 'a,
    {
        let known = self.pending.take();
        let dumped = known.is_none();
        let edits = match known {
            Some(mut pending) => pending.take(),
            None => self.difference(desired)?,
        };
        Ok(Step { edits, dumped })
    }

    /// Takes the step that [`next`](Self::next) returned last.
    pub fn take(&mut self, step: &Step<K::Object>) -> Result<Outcome, K::Error> {
        let Step { edits, dumped } = step;
        if !edits.is_empty() {
            self.kernel.commit(edits)?;
        }
        self.pending = Some(Pending::new());
        Ok(Outcome {
            edits: edits.len(),
            dumped: *dumped,
            took_over: !edits.is_empty() && self.kernel.took_over(),
        })
    }
}
