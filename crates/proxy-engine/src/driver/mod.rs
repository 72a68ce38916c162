//! The driver of one family in one mode: a ledger of desired objects over a kernel.
//!
//! One endpoint of `default/web` changes. The path through this file:
//!
//! ```text
//! plan(port)              the planner returns all objects of the port, as if they were new
//!   └► replace_port       groups them by address, and asks the ledger what differs
//!        └► set_entries   the differences become edits of the reconciler
//! reconcile               sends the edits, and only them
//! ```
//!
//! So a planner stays a pure function from a port to objects, and the cost of a change is
//! still that of the change: the ledger compares the port's objects with those of its last
//! plan, never all objects of all ports.
//!
//! The ledger has an *owner* for each object, because several ports may want one. Objects for
//! an address, such as `10.96.0.10 . tcp . 80`, have one winner; see [`Entry`] and `contests`.
//! Objects that are equal for everyone, such as the chain of an endpoint that two ports share,
//! exist as long as one owner wants them.
//!
//! While the kernel's state is unknown (at the start, after an error, after a change by another
//! program), edits are not collected: the next sync dumps the kernel and compares the dump with
//! the whole ledger. Both ways must lead to the same kernel, and the histories of the tests
//! check that after each step.

mod contests;

mod counts;

mod isolation;

mod on_demand;

pub(crate) mod part;

mod repairs;

use std::any::Any;
use std::collections::HashSet;
use std::hash::RandomState;
use std::iter;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use vipline_reconcile::{
    self as reconcile, Edit, Keyed, Ledger, Pending, Plan, Reconciler, Rejection, Target,
};
use vipline_service_model::{Family, PortChange, PortName, ServicePort};

use self::contests::Contests;
use self::counts::Counts;
pub(crate) use self::on_demand::Id;
use self::on_demand::OnDemand;
use self::part::EDIT_COST;
use self::repairs::Repairs;
use crate::entry::{Counted, Entry, HashedName, Owner, edits};
#[cfg(feature = "evaluate")]
use crate::evaluate::Rules;
use crate::rejected::{FormerOwners, KnownRejections, Registry, RejectedObject};
use crate::{
    AddressKind, Claim, ContestedAddress, Context, Difference, Drift, Error, LostAddresses,
    Outcome, Planner, PortObjects, RepairConflictChange,
};

/// A driver of one family, independent of the mode.
pub(crate) trait Drive: Send {
    /// The only family of the driver.
    fn family(&self) -> Family;

    /// Sets the context, which is everything besides Services that rules depend on.
    ///
    /// Returns whether ports planned before must be planned again.
    fn set_context(&mut self, cx: Context) -> Replan;

    /// Sets a planner with other settings. Returns whether it differs from the present one, or
    /// `None` if it is of another type.
    fn set_planner(&mut self, planner: &dyn Any) -> Option<bool>;

    /// Creates a driver of the same family and planner, without desired objects and without a
    /// kernel.
    #[cfg(feature = "evaluate")]
    fn without_kernel(&self) -> Box<dyn Drive>;

    /// The link to which the mode adds the addresses of Services.
    #[cfg(feature = "evaluate")]
    fn service_link(&self) -> Option<&'static str>;

    /// Reserves capacity for service ports that are about to be planned for the first time.
    fn reserve(&mut self, ports: usize);

    /// Plans the current state of one service port.
    fn plan(&mut self, port: &ServicePort);

    /// Schedules the retry of the rejected objects of a changed Service.
    fn retry(&mut self, name: &PortName);

    /// Plans the removal of a service port.
    fn plan_removal(&mut self, name: &Arc<PortName>);

    /// Plans a part of a change that has about `limit` edits, or the whole change if it is
    /// small. Returns whether nothing of the change is left.
    ///
    /// The rules are consistent after each part: an address has all of its former objects
    /// or all of its new ones.
    fn plan_part(&mut self, change: &PortChange, limit: usize) -> bool;

    /// Returns the number of edits that were planned up to now. If the kernel's state is
    /// unknown, planned objects count as edits.
    fn planned_edits(&self) -> usize;

    /// Returns the number of edits after which a sync ends.
    fn edits_per_sync(&self) -> usize;

    /// Marks the kernel's state as unknown.
    fn forget(&mut self);

    /// Returns whether the kernel's state is known.
    fn is_known(&self) -> bool;

    /// Makes the kernel equal to the plan, except for objects that it rejects, and for those
    /// whose repairs `drift` undid too often. Also removes objects whose removal is due.
    fn reconcile(&mut self, drift: Option<&Drift>, now: Duration) -> Result<Outcome, Error>;

    /// Returns the time at which the next unused object expires.
    fn deadline(&self) -> Option<Duration>;

    /// Returns the time at which the next rejected object is retried or the next waiting
    /// object is repaired, or at which a conflict with another program ends.
    fn next_retry(&self) -> Option<Duration>;

    /// Forgets repairs that have lasted.
    fn expire_repairs(&mut self, now: Duration);

    /// Removes and returns the beginning or the end of a conflict with a program that undoes
    /// repairs.
    fn take_repair_conflict(&mut self) -> Option<RepairConflictChange>;

    /// Returns the number of objects whose repairs are delayed because of such a conflict.
    fn repair_conflicts(&self) -> usize;

    /// Removes and returns the objects that were rejected for the first time since the
    /// last call.
    fn take_rejected(&mut self) -> Vec<Arc<RejectedObject>>;

    /// Returns all rejected objects, in no particular order.
    fn rejected_objects(&self) -> Vec<Arc<RejectedObject>>;

    /// Returns the number of rejected objects.
    fn rejected_count(&self) -> usize;

    /// Compares the kernel with the plan without `known` rejected objects. Changes
    /// nothing.
    fn difference(&mut self, known: &KnownRejections) -> Result<Difference, Error>;

    /// The plan as text, in the format that the mode's native tool loads.
    fn desired(&self) -> String;

    /// Prepares the plan for the evaluation of packets.
    #[cfg(feature = "evaluate")]
    fn desired_rules(&self) -> Option<Rules>;

    /// Removes and returns contested addresses that are new since the last call or have a
    /// new owner.
    fn take_contested(&mut self) -> Vec<ContestedAddress>;

    /// Removes and returns the addresses lost since the last call, by Service.
    fn take_lost(&mut self) -> Vec<LostAddresses>;

    /// Returns the number of contested addresses.
    fn contested_count(&self) -> usize;
}

/// Whether ports planned before must be planned again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Replan {
    /// The objects of ports depend on what changed.
    All,
    /// They do not, or nothing changed, or nothing was planned before.
    Nothing,
}

/// Creates a driver without desired objects, over a kernel in any state.
pub(crate) fn driver<P, K>(family: Family, planner: P, kernel: K) -> Box<dyn Drive>
where
    P: Planner,
    K: Target<Object = P::Object> + Send + 'static,
    Error: From<K::Error>,
{
    Box::new(Driver::<P, K> {
        family,
        planner,
        has_new_planner: false,
        cx: None,
        ledger: Ledger::new(),
        hasher: RandomState::new(),
        exposed: HashSet::new(),
        counts: Counts::default(),
        entry_edits: Pending::new(),
        on_demand: OnDemand::new(),
        contests: Contests::default(),
        repairs: Repairs::default(),
        changed: Vec::new(),
        former: FormerOwners::default(),
        registry: Registry::default(),
        newly_rejected: Vec::new(),
        planned_cost: 0,
        reconciler: Reconciler::new(kernel),
    })
}

/// Creates a driver without desired objects and without a kernel.
pub(crate) fn without_kernel<P>(family: Family, planner: P) -> Box<dyn Drive>
where
    P: Planner,
{
    driver(family, planner, Absent::default())
}

/// Driver of one family in one mode.
struct Driver<P: Planner, K: Target<Object = P::Object>> {
    family: Family,
    planner: P,
    /// Whether the planner was replaced since the last plan.
    has_new_planner: bool,
    cx: Option<Context>,
    ledger: Ledger<Owner, Entry<P::Object>>,
    /// Hasher of the names of owners.
    hasher: RandomState,
    /// Service ports with entries for addresses besides the cluster IP.
    ///
    /// Most ports have none. Without this set each plan of such a port would ask the ledger
    /// about four owners instead of one.
    exposed: HashSet<HashedName>,
    counts: Counts,
    /// Reused buffer for the edits of entries. Empty except in `set_entries`.
    entry_edits: Pending<Entry<P::Object>>,
    /// Objects that several service ports use.
    on_demand: OnDemand<P::Object>,
    contests: Contests,
    /// What was repaired recently.
    repairs: Repairs,
    /// Service ports planned since the last sync, while the kernel's state is known.
    changed: Vec<HashedName>,
    /// Owners of the objects that the next commit removes, as far as they are service ports.
    former: FormerOwners,
    /// All rejected objects, by Service.
    registry: Registry<P::Object>,
    /// Those that `take_rejected` has not returned yet.
    newly_rejected: Vec<Arc<RejectedObject>>,
    /// Cost of all edits up to now, in units of which an edit costs [`EDIT_COST`].
    planned_cost: usize,
    reconciler: Reconciler<K>,
}

impl<P: Planner, K: Target<Object = P::Object>> Driver<P, K> {
    /// Hashes a name for comparison with owners. All names must come from here, because only names
    /// with the same hasher are comparable.
    fn hashed(&self, name: &Arc<PortName>) -> HashedName {
        HashedName::new(name, &self.hasher)
    }

    /// Replaces the objects of a service port. Pass no objects for a deleted port.
    fn replace_port(&mut self, name: &Arc<PortName>, planned: PortObjects<P::Object>) {
        let hashed = self.hashed(name);
        // Only for finding the owner of a rejected object; after a dump all ports are searched.
        if self.reconciler.is_known() {
            self.changed.push(hashed.clone());
        }
        // Without any contest only a new one can arise, and `set_entries` sees that by itself.
        let before = if self.contests.is_empty() {
            Vec::new()
        } else {
            self.addresses(name)
        };
        // An address that is gone may have hidden a node port, or been a hidden one. Those that
        // the port has from now on are added below.
        let mut exposed = if self.exposed.contains(&hashed) {
            self.addresses(name)
        } else {
            Vec::new()
        };
        let mut is_shared = false;
        let PortObjects { own, mut claims } = planned;
        let kinds = self.kinds_of(&hashed, &claims);
        // One owner for each kind, because the kind is the first part of an owner's precedence.
        // The loop takes the claims of one kind after the other from the front.
        claims.sort_by_key(|claim| claim.kind);
        let (mut own, mut claims) = (own.into_iter(), claims.into_iter().peekable());
        for &kind in kinds {
            // Objects without an address belong to the first kind: it takes all of them.
            let own = own.by_ref().map(Entry::Object);
            let claims = iter::from_fn(|| claims.next_if(|claim| claim.kind == kind));
            let claims = claims.map(|claim| Entry::Address(claim.address, claim.objects.into()));
            let owner = Owner::Port(kind, hashed.clone());
            is_shared |= self.set_entries(owner, own.chain(claims));
        }
        if is_shared || !before.is_empty() {
            self.note_contests(name, &before);
        }
        if self.exposed.contains(&hashed) {
            exposed.extend(self.addresses(name));
        }
        if !exposed.is_empty() {
            self.note_hidden_node_ports(&exposed);
        }
    }

    /// Returns the kinds of addresses of which a service port has or had entries. Most ports
    /// have a cluster IP only.
    fn kinds_of(
        &mut self,
        name: &HashedName,
        claims: &[Claim<P::Object>],
    ) -> &'static [AddressKind] {
        const ALL: &[AddressKind] = &AddressKind::ALL;
        let mut kinds = claims.iter().map(|claim| claim.kind);
        let is_exposed = kinds.any(|kind| kind != AddressKind::ClusterIp);
        let was_exposed = if is_exposed {
            self.exposed.replace(name.clone()).is_some()
        } else {
            !self.exposed.is_empty() && self.exposed.remove(name)
        };
        if is_exposed || was_exposed {
            // Also the kinds that have no claims any more: their owners must let go of the former
            // ones.
            ALL
        } else {
            &ALL[..1]
        }
    }

    /// Removes from `planned` the objects that several service ports may use, and adds new
    /// ones to the ledger.
    fn set_on_demand(&mut self, name: &Arc<PortName>, planned: &mut PortObjects<P::Object>) {
        let used = take_on_demand::<P>(planned);
        let created = self.on_demand.replace(name, used);
        self.add_on_demand(created);
    }

    fn add_on_demand(&mut self, created: Vec<(Id, P::Object)>) {
        for (id, object) in created {
            self.set_entries(Owner::OnDemand(id), [Entry::Object(object)]);
        }
    }

    /// Adds entries to the ledger. Returns whether other owners share an object.
    fn set_entries(
        &mut self,
        owner: Owner,
        entries: impl IntoIterator<Item = Entry<P::Object>>,
    ) -> bool {
        // The kernel's state is unknown: the next sync compares the whole ledger, so no edits are
        // needed, and the first plan of ten thousand Services collects none. The cost is counted
        // all the same, because it bounds what one sync may plan. (A changed object ends the
        // history of its repairs, also before a dump, so with a history edits are needed.)
        if !self.reconciler.is_known() && self.repairs.is_empty() {
            let planned_cost = &mut self.planned_cost;
            let entries = entries.into_iter();
            let entries = entries.inspect(|entry| {
                let objects = entry.objects().iter();
                *planned_cost += objects.map(part::cost_of_addition::<P>).sum::<usize>();
            });
            return self.ledger.replace(owner, entries, None);
        }
        let entry_edits = &mut self.entry_edits;
        let port = match &owner {
            Owner::Port(_, name) => Some(name.clone()),
            // No Service to name in a message.
            Owner::Base | Owner::OnDemand(_) => None,
        };
        let is_shared = self.ledger.replace(owner, entries, Some(entry_edits));
        for edit in entry_edits.take().into_iter().flat_map(edits) {
            self.repairs.forget(edit.object());
            self.planned_cost += part::cost::<P>(&edit);
            // Unknown state, but with a history of repairs, for which alone the edits were made.
            let Some(pending) = self.reconciler.pending() else {
                continue;
            };
            // The ledger forgets the owner of a removed object. If the kernel rejects the removal,
            // the message can still name the Service.
            if let (Edit::Remove(object), Some(port)) = (&edit, &port) {
                self.former.insert(object, port);
            }
            pending.push(edit);
        }
        is_shared
    }

    /// Commits one step towards the plan.
    fn step(
        &mut self,
        drift: Option<&Drift>,
        now: Duration,
        may_wait: bool,
    ) -> Result<(Plan<P::Object>, reconcile::Outcome), Error>
    where
        Error: From<K::Error>,
    {
        // The objects are not read if the kernel's state is known. Otherwise the exact count lets
        // the comparison reserve its index once.
        let count = if self.reconciler.is_known() {
            0
        } else {
            let entries = self.ledger.objects();
            entries.map(|entry| entry.objects().len()).sum()
        };
        // The counts of a full sync are taken from the iterator that the comparison reads
        // anyway, instead of walking the ledger twice.
        let desired = Counted::new(self.ledger.objects().flat_map(Entry::objects), count);
        let mut planned = Counts::default();
        let counted = desired.inspect(|object| planned.add::<P>(object));
        let mut plan = self.reconciler.plan(counted, now)?;
        self.hold_back(&mut plan, drift, now, may_wait);
        let done = self.reconciler.commit(&mut plan, now)?;
        // Not before: if the commit fails, `?` leaves the repairs uncounted.
        self.repairs.committed(now);
        if plan.dumped {
            // The kernel has the plan now, except for objects that were rejected or wait: in
            // place of those it has what it had before.
            self.counts = planned;
            let missing = self.reconciler.rejected();
            for rejected in missing.chain(self.reconciler.postponed()) {
                let installed = rejected.installed.as_ref();
                self.counts.replace::<P>(rejected.desired(), installed);
            }
        } else {
            // What the reconciler rejected or postponed is not among them, so the counts need no
            // correction.
            for edit in plan.committed().cloned() {
                let (before, after) = edit.into_old_and_new();
                self.counts.replace::<P>(before.as_ref(), after.as_ref());
            }
        }
        Ok((plan, done))
    }

    /// Removes from a plan the repairs that must wait, because another program undid the last
    /// ones. Without `may_wait` none waits.
    fn hold_back(
        &mut self,
        plan: &mut Plan<P::Object>,
        drift: Option<&Drift>,
        now: Duration,
        may_wait: bool,
    ) {
        if drift.is_none() && self.repairs.is_empty() {
            return;
        }
        self.repairs.begin(plan.dumped);
        let mut until = vec![None; plan.edits.len()];
        for (edit, until) in plan.edits.iter().zip(&mut until) {
            let object = edit.object();
            // The retry of a rejected object repairs nothing.
            if self.reconciler.rejection(object).is_none() {
                *until = self.repairs.judge(object, drift, now, P::text);
            }
            if !may_wait && until.take().is_some() {
                // `judge` plans only repairs that need not wait. This one counts as well.
                self.repairs.repair_anyway(object);
            }
        }
        if until.iter().any(Option::is_some) {
            self.reconciler.postpone(plan, &until);
        }
        self.repairs.note_change(drift);
    }

    /// Returns the desired state.
    fn desired_objects(&self) -> impl Iterator<Item = &P::Object> {
        self.ledger.objects().flat_map(Entry::objects)
    }
}

/// Removes and returns the objects that several service ports may use.
fn take_on_demand<P: Planner>(planned: &mut PortObjects<P::Object>) -> Vec<P::Object> {
    let mut used = Vec::new();
    let claimed = planned.claims.iter_mut().map(|claim| &mut claim.objects);
    for objects in iter::once(&mut planned.own).chain(claimed) {
        if objects.iter().any(P::is_removal_delayed) {
            let (on_demand, rest) = mem::take(objects)
                .into_iter()
                .partition(P::is_removal_delayed);
            *objects = rest;
            used.extend::<Vec<_>>(on_demand);
        }
    }
    used
}

impl<P, K> Drive for Driver<P, K>
where
    P: Planner,
    K: Target<Object = P::Object> + Send,
    Error: From<K::Error>,
{
    fn family(&self) -> Family {
        self.family
    }

    fn set_context(&mut self, cx: Context) -> Replan {
        // Each sync sets the context, and it nearly never changes.
        let has_new_planner = mem::take(&mut self.has_new_planner);
        if self.cx.as_ref() == Some(&cx) && !has_new_planner {
            return Replan::Nothing;
        }
        let base = self.planner.base(&cx).into_iter().map(Entry::Object);
        self.set_entries(Owner::Base, base);
        let before = self.cx.replace(cx);
        let ips = |cx: &Option<Context>| cx.as_ref().map(Context::node_port_ips);
        if ips(&before) != ips(&self.cx) {
            self.note_node_addresses();
        }
        match (before, &self.cx) {
            (Some(before), Some(cx))
                if has_new_planner || self.planner.requires_replan(&before, cx) =>
            {
                Replan::All
            }
            // Also the first context: no port was planned with another one.
            _ => Replan::Nothing,
        }
    }

    fn set_planner(&mut self, planner: &dyn Any) -> Option<bool> {
        let planner = planner.downcast_ref::<P>()?;
        let is_new = *planner != self.planner;
        if is_new {
            self.planner = planner.clone();
            self.has_new_planner = true;
        }
        Some(is_new)
    }

    #[cfg(feature = "evaluate")]
    fn without_kernel(&self) -> Box<dyn Drive> {
        without_kernel(self.family, self.planner.clone())
    }

    #[cfg(feature = "evaluate")]
    fn service_link(&self) -> Option<&'static str> {
        P::service_link()
    }

    fn reserve(&mut self, ports: usize) {
        // Most ports have a cluster IP entry and one more entry. Tables that grow during the first
        // plan are copied each time.
        self.ledger.reserve(ports, 2 * ports);
    }

    fn plan(&mut self, port: &ServicePort) {
        let cx = self
            .cx
            .as_ref()
            .expect("the context is set before ports are planned");
        let mut planned = self.planner.port(cx, port);
        self.set_on_demand(&port.name, &mut planned);
        self.replace_port(&port.name, planned);
    }

    fn plan_removal(&mut self, name: &Arc<PortName>) {
        self.set_on_demand(name, &mut PortObjects::default());
        self.replace_port(name, PortObjects::default());
    }

    fn plan_part(&mut self, change: &PortChange, limit: usize) -> bool {
        self.plan_part_of(change, limit)
    }

    fn planned_edits(&self) -> usize {
        self.planned_cost / EDIT_COST
    }

    fn edits_per_sync(&self) -> usize {
        P::EDITS_PER_SYNC
    }

    fn forget(&mut self) {
        self.reconciler.forget();
    }

    fn is_known(&self) -> bool {
        self.reconciler.is_known()
    }

    fn reconcile(&mut self, drift: Option<&Drift>, now: Duration) -> Result<Outcome, Error> {
        for id in self.on_demand.expire(now) {
            self.set_entries(Owner::OnDemand(id), []);
        }
        let (mut plan, mut done) = self.step(drift, now, true)?;
        // A change may need an object that waits for its repair: a new element refers to a chain
        // that another program deleted for the fourth time. Its rejection would be retried with
        // the chain still missing, so nothing waits now. Only objects that were rejected for the
        // first time count: one that was bad before is not bad because of the waiting.
        if done.rejected > 0 && self.reconciler.postponed_count() > 0 {
            let rejected = self.reconciler.rejected();
            let first = rejected.filter(|rejected| rejected.attempts <= 1);
            let first: Vec<_> = first.map(|rejected| rejected.object.clone()).collect();
            for object in &first {
                self.reconciler.retry(object);
            }
            // Only a plan that is based on a dump has the postponed edits again before their time.
            self.reconciler.forget();
            (plan, done) = self.step(drift, now, false)?;
        }
        // Once more, after a dump. A second conflict is recorded as a rejection, so this cannot
        // loop.
        if done.is_stale {
            (plan, done) = self.step(drift, now, true)?;
        }
        self.note_rejected(&plan)?;
        self.counts.set_written::<P>(plan.committed());
        Ok(Outcome {
            edits: done.edits,
            dumped: done.dumped,
            objects: self.counts.objects,
            rejected: self.reconciler.rejected_count(),
            waiting: self.reconciler.postponed_count(),
            took_over: done.took_over,
            rules: self.counts.rules.clone(),
        })
    }

    fn deadline(&self) -> Option<Duration> {
        self.on_demand.deadline()
    }

    fn next_retry(&self) -> Option<Duration> {
        let times = [self.reconciler.next_retry(), self.repairs.end()];
        times.into_iter().flatten().min()
    }

    fn expire_repairs(&mut self, now: Duration) {
        self.repairs.expire(now);
    }

    fn take_repair_conflict(&mut self) -> Option<RepairConflictChange> {
        self.repairs.take_change()
    }

    fn repair_conflicts(&self) -> usize {
        self.repairs.waiting()
    }

    fn take_rejected(&mut self) -> Vec<Arc<RejectedObject>> {
        mem::take(&mut self.newly_rejected)
    }

    fn rejected_objects(&self) -> Vec<Arc<RejectedObject>> {
        self.registry.described().cloned().collect()
    }

    fn rejected_count(&self) -> usize {
        self.reconciler.rejected_count()
    }

    fn retry(&mut self, name: &PortName) {
        for object in self.registry.of_service(name) {
            self.reconciler.retry(object);
        }
    }

    fn difference(&mut self, known: &KnownRejections) -> Result<Difference, Error> {
        let desired = self.ledger.objects().flat_map(Entry::objects);
        let mut edits = self.reconciler.difference(desired)?;
        edits.retain(|edit| !matches!(edit, Edit::Remove(object) if P::tolerates_unused(object)));
        let (edits, rejected) = known.split::<P>(self.family, edits);
        Ok(Difference {
            edits: edits.len(),
            rejected,
            // A mode whose tool cannot apply single edits would print its whole state.
            script: if edits.is_empty() {
                String::new()
            } else {
                P::script(self.family, edits, self.desired_objects())
            },
            // The engine adds them: the flows of all modes are searched alike.
            stale_flows: Vec::new(),
        })
    }

    fn desired(&self) -> String {
        P::listing(self.family, self.desired_objects())
    }

    #[cfg(feature = "evaluate")]
    fn desired_rules(&self) -> Option<Rules> {
        P::rules(self.family, self.desired_objects())
    }

    fn take_contested(&mut self) -> Vec<ContestedAddress> {
        self.newly_contested()
    }

    fn take_lost(&mut self) -> Vec<LostAddresses> {
        self.newly_lost()
    }

    fn contested_count(&self) -> usize {
        self.contests.len()
    }
}

/// Kernel of an engine that only plans. All operations fail with [`Error::NoKernel`].
pub(crate) struct Absent<T>(PhantomData<fn() -> T>);

impl<T> Default for Absent<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Keyed> Target for Absent<T> {
    type Object = T;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<T>, Error> {
        Err(Error::NoKernel)
    }

    fn commit(&mut self, _edits: &[Edit<T>]) -> Result<Vec<Rejection>, Error> {
        Err(Error::NoKernel)
    }
}

#[cfg(test)]
mod tests;
