//! Events in, kernels programmed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use vipline_reconcile::Kernel;
use vipline_service_model::{
    self as service_model, Event, Family, NodePortAddresses, ObjectName, PortName, SpecialAddress,
    Store, Warning,
};

use crate::conntrack_cleanup::{self, Cleanup};
use crate::driver::{Drive, Replan, driver};
use crate::report::FamilyReport;
use crate::watch::Watch;
use crate::{
    Config, Context, Difference, Drift, Error, KnownRejections, LostAddresses, Planner,
    RejectedObject, Report, Schedule, Trigger,
};

/// Takes in what happens to Services and keeps the kernel's rules in step.
///
/// The engine reads no clock: times are counted from any fixed point that the
/// caller likes, and never go back.
pub struct Engine {
    config: Config,
    store: Store,
    schedule: Schedule,
    drivers: Vec<Box<dyn Drive>>,
    /// The addresses of the node's interfaces, as far as they are known.
    addresses: Vec<IpAddr>,
    /// Hears what somebody else does, where there is a kernel to listen to.
    watch: Option<Box<dyn Watch>>,
    /// What was heard and not mended yet.
    drift: BTreeMap<Family, Drift>,
    /// Deletes stale flows, where there is a kernel that tracks them.
    pub(crate) cleanup: Option<Cleanup>,
}

impl Engine {
    /// Opens the kernel of the configuration's mode in each of its families.
    ///
    /// # Errors
    ///
    /// What the kernel says when it is opened. Nothing is written to it, but in
    /// mode ipvs a virtual server at an address of documentation, which tries the
    /// scheduler out and is removed at once.
    pub fn open(mut config: Config) -> Result<Self, Error> {
        let (drivers, watch) = config.mode.open(&mut config)?;
        let mut engine = Self::new(config, drivers);
        engine.watch = Some(watch);
        engine.enable_flow_cleanup()?;
        Ok(engine)
    }

    /// Returns an engine that only plans: it needs no privilege.
    ///
    /// Its syncs and differences fail with [`Error::NoKernel`].
    ///
    /// # Errors
    ///
    /// The mode is not built in.
    pub fn plan_only(config: Config) -> Result<Self, Error> {
        let families = config.families.iter();
        let drivers = families
            .map(|&family| config.mode.plan_only(family))
            .collect::<Result<_, _>>()?;
        Ok(Self::new(config, drivers))
    }

    /// Returns an engine with a mode and kernels of the caller's own.
    ///
    /// With [`Memory`](vipline_reconcile::Memory) for a kernel it shows what a
    /// real one would have been told.
    pub fn with_kernels<P, K>(config: Config, mut kernel: impl FnMut(Family) -> K) -> Self
    where
        P: Planner + 'static,
        P::Object: Send + Sync,
        K: Kernel<Object = P::Object> + Send + 'static,
        Error: From<K::Error>,
    {
        let families = config.families.iter();
        let drivers = families
            .map(|&family| driver::<P, K>(family, kernel(family)))
            .collect();
        Self::new(config, drivers)
    }

    fn new(config: Config, drivers: Vec<Box<dyn Drive>>) -> Self {
        let store = Store::new(service_model::Config {
            node_name: config.node_name.clone(),
            external_ips: config.external_ips,
            start_time: config.started,
        });
        Self {
            schedule: Schedule::new(config.intervals),
            config,
            store,
            drivers,
            addresses: Vec::new(),
            watch: None,
            drift: BTreeMap::new(),
            cleanup: None,
        }
    }

    /// Deletes stale flows of the network namespace of the calling thread after
    /// each sync that changes something: those that lead where nobody serves any
    /// more.
    ///
    /// [`open`](Self::open) does this by itself; an engine with kernels of the
    /// caller's own leaves flows alone unless told, before the first event.
    /// Returns whether the kernel tells of flows; if not, they stay.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn enable_flow_cleanup(&mut self) -> Result<bool, Error> {
        self.cleanup = conntrack_cleanup::Kernel::open()?.map(Cleanup::new);
        Ok(self.cleanup.is_some())
    }

    /// Has reports tell how long the searches for stale flows took, by a clock of
    /// the caller's that never goes back.
    pub fn set_flow_cleanup_clock(&mut self, clock: fn() -> Duration) {
        if let Some(cleanup) = &mut self.cleanup {
            cleanup.set_clock(clock);
        }
    }

    /// Tells whether stale flows are deleted.
    pub fn is_flow_cleanup_enabled(&self) -> bool {
        self.cleanup.is_some()
    }

    /// Begins to hear what somebody else does to what the engine programs.
    ///
    /// From now on a [`poll`](Self::poll) finds a sync due as soon as one of
    /// the [descriptors](Self::fds) tells of a change, and the sync mends it.
    /// Without that, changes are found by a dump when the maximal interval is
    /// over.
    ///
    /// While anybody listens the kernel has more work with each commit, so the
    /// time to begin is after the first sync, in the network namespace in which
    /// the engine was [opened](Self::open).
    /// An engine with kernels of the caller's own hears nothing.
    ///
    /// # Errors
    ///
    /// What the kernel says to a listener.
    pub fn watch(&mut self) -> Result<(), Error> {
        let Some(watch) = &mut self.watch else {
            return Ok(());
        };
        for family in watch.start()? {
            self.forget(|driver| driver.family() == family);
            self.schedule.request_sync_now();
        }
        Ok(())
    }

    /// Tells whether the engine hears what somebody else does.
    ///
    /// It may turn deaf by a failure of the system, with a sync to be on the
    /// safe side; then [`watch`](Self::watch) may be tried again.
    pub fn is_watching(&self) -> bool {
        self.watch
            .as_ref()
            .is_some_and(|watch| watch.is_listening())
    }

    /// Returns what becomes readable when the next [`poll`](Self::poll) matters,
    /// besides [its time](Self::next_deadline).
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.watch.iter().flat_map(|watch| watch.fds()).collect()
    }

    /// Takes in an event and returns what is odd about its object.
    ///
    /// Nothing is planned or written before the next [`poll`](Self::poll).
    pub fn apply(&mut self, event: Event) -> Vec<Warning> {
        let concerns_base = matches!(
            event,
            Event::NodeApplied(_)
                | Event::ServiceCidrApplied(_)
                | Event::ServiceCidrDeleted(_)
                | Event::Synced
        );
        let warnings = self.store.apply(event);
        if concerns_base || self.store.is_dirty() {
            self.schedule.request();
        }
        warnings
    }

    /// Sets the addresses of the node's interfaces.
    ///
    /// The search for stale flows needs them: flows to a node port count at each of
    /// these addresses that node ports are served on. Without them only the addresses
    /// of the Node object count. Rules of modes iptables and ipvs name them, too.
    ///
    /// IPv6 link-local addresses change with every container of the node. They count
    /// only if [`Config::node_port_addresses`] has a network for them.
    pub fn set_addresses(&mut self, mut addresses: Vec<IpAddr>) {
        let networks = match &self.config.node_port_addresses {
            NodePortAddresses::Within(networks) => &networks[..],
            NodePortAddresses::All | NodePortAddresses::Primary => &[],
        };
        let is_named = |addr: &IpAddr| networks.iter().any(|network| network.contains(addr));
        addresses.retain(|addr| {
            SpecialAddress::of(*addr) != Some(SpecialAddress::LinkLocal)
                || addr.is_ipv4()
                || is_named(addr)
        });
        addresses.sort_unstable();
        addresses.dedup();
        if addresses != self.addresses {
            self.addresses = addresses;
            self.schedule.request();
        }
    }

    /// Syncs all families if that is due, and tells what was done.
    ///
    /// Nothing is due before [`Event::Synced`].
    /// A family that fails does not keep the others from their sync.
    pub fn poll(&mut self, now: Duration) -> Option<Report> {
        self.listen(now);
        if !self.store.is_synced() {
            return None;
        }
        if self.next_retry().is_some_and(|at| at <= now) {
            self.schedule.request();
        }
        let is_before_pause = self.schedule.is_before_pause();
        let Some(trigger) = self.schedule.poll(now) else {
            return match is_before_pause {
                true => None,
                false => self.remove_unused(now),
            };
        };
        if trigger == Trigger::Timer && !self.is_watching() {
            self.forget(|_| true);
        }
        let ports = self.plan();
        let report = self.reconcile(trigger, ports, now);
        if report.is_success() && !self.cleanup.as_ref().is_some_and(Cleanup::is_due) {
            self.schedule.succeeded();
        } else {
            self.schedule.failed();
        }
        Some(report)
    }

    /// Removes objects that have been unused for long enough, between two syncs.
    ///
    /// The pause after a sync is for changes. It may be minutes long, so the removal
    /// does not wait for it, plans no change and begins no pause.
    fn remove_unused(&mut self, now: Duration) -> Option<Report> {
        self.expires().filter(|&at| at <= now)?;
        let report = self.reconcile(Trigger::Unused, 0, now);
        if !report.is_success() {
            self.schedule.failed();
        }
        Some(report)
    }

    /// Makes the kernel equal to the plan in each family.
    fn reconcile(&mut self, trigger: Trigger, ports: usize, now: Duration) -> Report {
        let drivers = self.drivers.iter_mut();
        let contested = drivers.flat_map(|driver| driver.take_contested()).collect();
        let lost_addresses = self.take_lost();
        let cleanup = &mut self.cleanup;
        let families = self.drivers.iter_mut().map(|driver| {
            let family = driver.family();
            let was_state_known = driver.is_known();
            let outcome = driver.reconcile(now);
            let cleanup = cleanup.as_mut().filter(|_| outcome.is_ok());
            FamilyReport {
                family,
                drift: self.drift.remove(&family),
                was_state_known,
                outcome,
                rejected: driver.take_rejected(),
                cleanup: cleanup.and_then(|cleanup| cleanup.run(family)),
            }
        });
        let families = families.collect();
        let watch = self.watch.as_mut();
        Report {
            trigger,
            ports,
            families,
            contested,
            lost_addresses,
            missing_schedulers: watch.map_or_else(Vec::new, |it| it.take_missing_schedulers()),
        }
    }

    /// Returns the time of the next poll that matters; it may have passed.
    ///
    /// `None`: an event comes first.
    pub fn next_deadline(&self) -> Option<Duration> {
        if !self.store.is_synced() {
            return None;
        }
        let poll = self.watch.as_ref().and_then(|watch| watch.next_poll());
        // A sync that was asked for retries rejected objects.
        let retry = self.next_retry();
        let retry = retry.filter(|_| !self.schedule.is_requested());
        [self.schedule.next_deadline(), poll, retry, self.expires()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Tells whether something waits for a sync that may begin.
    pub fn is_queued(&self) -> bool {
        self.store.is_synced() && self.schedule.is_requested()
    }

    /// Returns how many addresses are claimed by several Services.
    pub fn contested_count(&self) -> usize {
        self.drivers
            .iter()
            .map(|driver| driver.contested_count())
            .sum()
    }

    /// Returns how many objects of a family the kernel rejects.
    pub fn rejected_count(&self, family: Family) -> usize {
        let drivers = self.drivers.iter().filter(|it| it.family() == family);
        drivers.map(|driver| driver.rejected_count()).sum()
    }

    /// Returns the objects that the kernel rejects, each with its family, in no order.
    pub fn rejected_objects(&self) -> Vec<(Family, Arc<RejectedObject>)> {
        let drivers = self.drivers.iter();
        let rejected = drivers.flat_map(|driver| {
            let objects = driver.rejected_objects().into_iter();
            objects.map(|object| (driver.family(), object))
        });
        rejected.collect()
    }

    /// Returns when the next rejected object is due.
    fn next_retry(&self) -> Option<Duration> {
        let drivers = self.drivers.iter();
        drivers.filter_map(|driver| driver.next_retry()).min()
    }

    /// Asks for a sync that compares the kernel with the plan.
    ///
    /// To be called when somebody else changed the kernel's state, unless the
    /// engine [hears](Self::watch) of it.
    pub fn request_resync(&mut self) {
        self.forget(|_| true);
        self.schedule.request();
    }

    /// Returns what a sync would change now in all families; changes nothing.
    ///
    /// # Errors
    ///
    /// What the kernel says to being dumped.
    pub fn difference(&mut self) -> Result<Difference, Error> {
        self.difference_except(&KnownRejections::default())
    }

    /// Returns what a sync would change now, except for objects that another process
    /// reports as rejected; changes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`difference`](Self::difference).
    pub fn difference_except(&mut self, known: &KnownRejections) -> Result<Difference, Error> {
        self.plan();
        let mut sum = Difference::default();
        for driver in &mut self.drivers {
            let difference = driver.difference(known)?;
            sum.edits += difference.edits;
            sum.rejected += difference.rejected;
            sum.script += &difference.script;
            if let Some(cleanup) = &mut self.cleanup {
                sum.stale_flows.extend(cleanup.find(driver.family())?);
            }
        }
        Ok(sum)
    }

    /// Returns the plan for all families, as the mode's native tool loads it.
    ///
    /// Equal objects give equal text, whatever the order of events was.
    pub fn desired(&mut self) -> String {
        self.plan();
        self.drivers.iter().map(|driver| driver.desired()).collect()
    }

    /// Returns what is known of Services, endpoints and the node.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns when the next unused object expires.
    ///
    /// `None` if the kernel's state is unknown in any family: the next sync compares
    /// it with the plan, and removes unused objects as well.
    fn expires(&self) -> Option<Duration> {
        let is_known = self.drivers.iter().all(|driver| driver.is_known());
        let deadlines = self.drivers.iter().filter_map(|it| it.deadline());
        deadlines.min().filter(|_| is_known)
    }

    /// Takes in what somebody else did.
    fn listen(&mut self, now: Duration) {
        let drifts = self.watch.as_mut().map(|watch| {
            let mut drifts = watch.read();
            drifts.extend(watch.poll(now));
            drifts
        });
        for (family, drift) in drifts.into_iter().flatten() {
            self.forget(|driver| driver.family() == family);
            self.drift.entry(family).or_default().add(drift);
            self.schedule.request_sync_now();
        }
    }

    /// Removes and returns what Services lost since the last call, in all families.
    fn take_lost(&mut self) -> Vec<LostAddresses> {
        let drivers = self.drivers.iter_mut();
        let lost = drivers.flat_map(|driver| driver.take_lost());
        let mut by_service: BTreeMap<ObjectName, LostAddresses> = BTreeMap::new();
        for lost in lost {
            match by_service.entry(lost.service.clone()) {
                Entry::Vacant(entry) => drop(entry.insert(lost)),
                Entry::Occupied(entry) => entry.into_mut().others += 1 + lost.others,
            }
        }
        by_service.into_values().collect()
    }

    /// Declares the kernel's state unknown in some families.
    fn forget(&mut self, matches: impl Fn(&dyn Drive) -> bool) {
        for driver in &mut self.drivers {
            if matches(&**driver) {
                driver.forget();
            }
        }
    }

    /// Plans what changed, and returns how many service ports that were.
    fn plan(&mut self) -> usize {
        let node = self.store.node();
        let mut changes = self.store.resolve(&node);
        changes.sort_by_cached_key(|change| urgency(&change.name));
        for driver in &mut self.drivers {
            let family = driver.family();
            let service_cidrs = self.store.service_cidrs(family);
            let cx = Context::new(&self.config, &node, service_cidrs, family)
                .with_addresses(&self.config, &node, &self.addresses)
                .with_endpoints(self.store.endpoints(family));
            if let Some(cleanup) = &mut self.cleanup {
                cleanup.enter(&cx);
                let own = changes.iter().filter(|each| each.family == family);
                own.for_each(|change| cleanup.plan(change));
            }
            let replan = driver.enter(cx);
            let planned = changes.iter().filter(|each| each.family == family);
            driver.reserve(planned.filter(|each| each.port.is_some()).count());
            for ports in changes.chunk_by(|one, next| one.name.is_same_service(&next.name)) {
                let mut ports = ports.iter().filter(|each| each.family == family).peekable();
                if let Some(first) = ports.peek() {
                    driver.retry(&first.name);
                }
                ports.for_each(|change| match &change.port {
                    Some(port) => driver.plan(port),
                    None => driver.unplan(&change.name),
                });
            }
            if replan == Replan::All {
                for port in self.store.ports().filter(|port| port.family == family) {
                    driver.plan(port);
                }
            }
        }
        changes.len()
    }
}

/// Returns when a Service has its turn: the API first, then names, then what
/// else the cluster needs to work, then all others.
fn urgency(name: &PortName) -> u8 {
    match (&*name.namespace, &*name.service) {
        ("default", "kubernetes") => 0,
        ("kube-system", service) if service.contains("dns") => 1,
        ("kube-system", _) => 2,
        _ => 3,
    }
}
