//! One family of one mode: a ledger of who wants what, over a kernel.

use std::marker::PhantomData;
use std::sync::Arc;

use vipline_reconcile::{Edit, Kernel, Keyed, Ledger, Reconciler};
use vipline_service_model::{Family, PortName, Resolved, ServicePort};

use crate::{Context, Difference, Error, Outcome, Planner};

/// What the engine does with a family, whatever the mode.
pub(crate) trait Drive: Send {
    /// Returns the family.
    fn family(&self) -> Family;

    /// Takes in what rules depend on besides Services.
    ///
    /// Tells whether ports planned before have to be planned again.
    fn enter(&mut self, cx: Context) -> Replan;

    /// Plans one service port as it is now.
    fn plan(&mut self, port: &ServicePort);

    /// Plans that a service port is gone.
    fn unplan(&mut self, name: &Arc<PortName>);

    /// Declares the kernel's state unknown.
    fn forget(&mut self);

    /// Makes the kernel equal to the plan.
    fn reconcile(&mut self) -> Result<Outcome, Error>;

    /// Compares kernel and plan, and changes nothing.
    fn difference(&mut self) -> Result<Difference, Error>;

    /// Returns the plan as text.
    fn desired(&self) -> String;
}

/// Whether ports planned before have to be planned again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Replan {
    All,
    Nothing,
}

/// Who wants objects; of those who contest a key the least has it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Owner {
    /// Whatever Services there are.
    Base,
    /// A service port: that of the older Service is less.
    Port(Arc<PortName>),
    /// Nobody anymore, but the objects stay until the next start.
    Past,
}

/// One family of one mode.
pub(crate) struct Driver<P: Planner, K: Kernel<Object = P::Object>> {
    family: Family,
    cx: Option<Context>,
    ledger: Ledger<Owner, P::Object>,
    /// What the owner `Past` wants.
    past: Vec<P::Object>,
    reconciler: Reconciler<K>,
}

impl<P: Planner, K: Kernel<Object = P::Object>> Driver<P, K> {
    /// Returns a driver that wants nothing yet, over a kernel in any state.
    pub(crate) fn new(family: Family, kernel: K) -> Self {
        Self {
            family,
            cx: None,
            ledger: Ledger::new(),
            past: Vec::new(),
            reconciler: Reconciler::new(kernel),
        }
    }

    /// Replaces what an owner wants.
    fn replace(&mut self, owner: Owner, objects: Vec<P::Object>) {
        let edits = self.ledger.replace(owner, objects);
        let known = self.past.len();
        for edit in &edits {
            match edit {
                Edit::Remove(object) if P::lingers(object) => self.past.push(object.clone()),
                _ => {}
            }
        }
        self.reconciler.extend(edits);
        if self.past.len() > known {
            let edits = self.ledger.replace(Owner::Past, self.past.clone());
            self.reconciler.extend(edits);
        }
    }
}

impl<P, K> Drive for Driver<P, K>
where
    P: Planner,
    P::Object: Send,
    <P::Object as Keyed>::Key: Send,
    K: Kernel<Object = P::Object> + Send,
    Error: From<K::Error>,
{
    fn family(&self) -> Family {
        self.family
    }

    fn enter(&mut self, cx: Context) -> Replan {
        if self.cx.as_ref() == Some(&cx) {
            return Replan::Nothing;
        }
        self.replace(Owner::Base, P::base(&cx));
        match self.cx.replace(cx) {
            Some(_) => Replan::All,
            None => Replan::Nothing,
        }
    }

    fn plan(&mut self, port: &ServicePort) {
        let cx = self.cx.as_ref().expect("a context is entered before ports");
        let objects = P::port(cx, port);
        self.replace(Owner::Port(Arc::clone(&port.name)), objects);
    }

    fn unplan(&mut self, name: &Arc<PortName>) {
        self.replace(Owner::Port(Arc::clone(name)), Vec::new());
    }

    fn forget(&mut self) {
        self.reconciler.forget();
    }

    fn reconcile(&mut self) -> Result<Outcome, Error> {
        let done = self.reconciler.reconcile(self.ledger.objects())?;
        Ok(Outcome {
            edits: done.edits,
            dumped: done.dumped,
            objects: self.ledger.len(),
        })
    }

    fn difference(&mut self) -> Result<Difference, Error> {
        let edits = self.reconciler.difference(self.ledger.objects())?;
        Ok(Difference {
            edits: edits.len(),
            script: if edits.is_empty() {
                String::new()
            } else {
                P::script(&edits)
            },
        })
    }

    fn desired(&self) -> String {
        P::listing(self.ledger.objects())
    }
}

/// Plans the ports of a family that changed.
pub(crate) fn plan_changes(driver: &mut dyn Drive, changes: &[Resolved]) {
    for change in changes.iter().filter(|each| each.family == driver.family()) {
        match &change.port {
            Some(port) => driver.plan(port),
            None => driver.unplan(&change.name),
        }
    }
}

/// The kernel of an engine that only plans: it does nothing.
pub(crate) struct Absent<T>(PhantomData<fn() -> T>);

impl<T> Default for Absent<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Keyed> Kernel for Absent<T> {
    type Object = T;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<T>, Error> {
        Err(Error::NoKernel)
    }

    fn commit(&mut self, _edits: &[Edit<T>]) -> Result<(), Error> {
        Err(Error::NoKernel)
    }
}
