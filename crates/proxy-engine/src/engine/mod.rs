//! The engine: takes in events and programs the kernel.

#[cfg(feature = "evaluate")]
mod evaluation;

mod backlog;

mod flow_cleanup;

mod planning;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
#[cfg(target_os = "linux")]
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use vipline_reconcile::Target;
use vipline_service_model::{
    self as service_model, Event, Family, NodePortAddresses, ObjectName, SpecialAddress, Store,
    Warning,
};
use vipline_stale_flows::Cleanup;

use self::backlog::Backlog;
use crate::driver::{Drive, driver, without_kernel};
use crate::report::FamilyReport;
use crate::watch::Watch;
use crate::{
    Config, Difference, Drift, Error, KnownRejections, LostAddresses, Planner, RejectedObject,
    Report, Schedule, Trigger,
};

/// The rule-sync engine: takes in events about Services and keeps the kernel's rules
/// equal to the plan.
///
/// The engine reads no clock. Times are durations since any fixed point that the caller
/// chooses, and must never decrease.
///
/// Functions that access the kernel block until the kernel has replied. A netlink reply
/// has a timeout of 10 s, and an iptables program one of five minutes.
pub struct Engine {
    config: Config,
    store: Store,
    schedule: Schedule,
    drivers: Vec<Box<dyn Drive>>,
    /// Changes that wait for a later sync, for each driver.
    backlogs: Vec<Backlog>,
    /// Whether all objects have been planned once.
    has_planned: bool,
    /// Time of the first sync, and later of the last one that had to compare the kernel with
    /// the plan because the maximum interval was over.
    compared: Option<Duration>,
    /// Addresses of the node's interfaces; empty while they are unknown.
    addresses: Vec<IpAddr>,
    /// Detects changes by other processes; `None` without [`with_watch`](Self::with_watch).
    watch: Option<Box<dyn Watch>>,
    /// Detected changes that no sync has repaired yet.
    drift: BTreeMap<Family, Drift>,
    /// Deletes stale flows; `None` if the cleanup is not enabled.
    pub(crate) cleanup: Option<Cleanup>,
}

impl Engine {
    /// Creates an engine with a planner and kernels of the caller.
    ///
    /// A kernel is a [`Target`] of any kind, such as a file, a remote switch, or the
    /// `Memory` of vipline-reconcile, which needs the feature `memory`. The engine then
    /// needs no privileges. A kernel without an error type of its own may use [`Error`]
    /// with [`Error::custom`], `std::io::Error`, or `std::convert::Infallible`.
    pub fn with_kernels<P, K>(config: Config, planner: P, kernel: impl FnMut(Family) -> K) -> Self
    where
        P: Planner,
        K: Target<Object = P::Object> + Send + 'static,
        Error: From<K::Error>,
    {
        let kernels: Vec<K> = config.families.iter().copied().map(kernel).collect();
        Self::over(config, planner, kernels)
    }

    /// Creates an engine with a planner and kernels, one for each configured family in the order
    /// of [`Config::families`].
    ///
    /// # Panics
    ///
    /// The numbers of kernels and families differ.
    pub fn over<P, K>(config: Config, planner: P, kernels: Vec<K>) -> Self
    where
        P: Planner,
        K: Target<Object = P::Object> + Send + 'static,
        Error: From<K::Error>,
    {
        assert_eq!(
            kernels.len(),
            config.families.len(),
            "one kernel for each family"
        );
        let drivers = config.families.iter().zip(kernels);
        let drivers = drivers.map(|(&family, kernel)| driver(family, planner.clone(), kernel));
        let drivers = drivers.collect();
        Self::new(config, drivers)
    }

    /// Creates an engine that only plans. Requires no privileges.
    ///
    /// Its syncs and differences fail with [`Error::NoKernel`].
    pub fn plan_only(config: Config, planner: impl Planner) -> Self {
        let families = config.families.iter();
        let drivers = families.map(|&family| without_kernel(family, planner.clone()));
        let drivers = drivers.collect();
        Self::new(config, drivers)
    }

    /// Sets what detects changes by other processes in kernels of the caller.
    #[must_use]
    pub fn with_watch(mut self, watch: impl Watch + 'static) -> Self {
        self.watch = Some(Box::new(watch));
        self
    }

    fn new(config: Config, drivers: Vec<Box<dyn Drive>>) -> Self {
        let mut model = service_model::Config::new(config.node_name.clone());
        model.external_ips = config.external_ips;
        model.start_time = config.start_time;
        let store = Store::new(model);
        Self {
            schedule: Schedule::new(config.intervals),
            config,
            store,
            backlogs: drivers.iter().map(|_| Backlog::default()).collect(),
            drivers,
            has_planned: false,
            compared: None,
            addresses: Vec::new(),
            watch: None,
            drift: BTreeMap::new(),
            cleanup: None,
        }
    }

    /// Starts to watch for changes that other processes make to programmed objects.
    ///
    /// From then on a change makes one of the [descriptors](Self::fds) readable, and the
    /// next [`poll`](Self::poll) runs a sync that repairs the change. The kernel sends no
    /// notifications about the legacy variant of iptables, ipsets and virtual servers:
    /// the engine polls them every [`Intervals::retry`](crate::Intervals::retry). Without
    /// a watch, changes are found by a dump at the end of the maximum interval.
    ///
    /// Every listener costs the kernel work at each commit, so call this function after
    /// the first sync. Call it in the network namespace in which the engine was
    /// opened. For an engine without a [watch](Self::with_watch) this function does nothing.
    ///
    /// # Errors
    ///
    /// The error of vipline-nftables if the monitor of nf_tables cannot be opened.
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

    /// Returns whether the kernel reports all changes by other processes.
    ///
    /// Always `false` in mode ipvs, and in mode iptables with the legacy variant. There
    /// [`watch`](Self::watch) starts to poll, and the sync at the end of
    /// [`Intervals::max`](crate::Intervals::max) dumps the kernel's state.
    ///
    /// A watch ends if reading its socket fails; a full sync then follows. While the
    /// result is `false`, the caller may call [`watch`](Self::watch) after each sync.
    pub fn is_watching(&self) -> bool {
        self.watch
            .as_ref()
            .is_some_and(|watch| watch.is_listening())
    }

    /// Returns the file descriptors to wait on. The caller must [`poll`](Self::poll) when
    /// one becomes readable, or at the [next deadline](Self::next_deadline).
    #[cfg(target_os = "linux")]
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.watch.iter().flat_map(|watch| watch.fds()).collect()
    }

    /// Applies an event and returns warnings about its object.
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
    /// The search for stale flows checks flows to node ports at those addresses on which
    /// node ports are served. Without this call only the addresses of the Node object are
    /// checked. The rules of modes iptables and ipvs also use these addresses. The caller
    /// must leave out addresses on `kube-ipvs0`, which belong to Services.
    ///
    /// IPv6 link-local addresses change with every container on the node, so they are
    /// ignored unless a network of [`Config::node_port_addresses`] contains them.
    pub fn set_addresses(&mut self, mut addresses: Vec<IpAddr>) {
        addresses.retain(|addr| self.is_considered(*addr));
        addresses.sort_unstable();
        addresses.dedup();
        if addresses != self.addresses {
            self.addresses = addresses;
            self.schedule.request();
        }
    }

    /// Replaces the planner of [`with_kernels`](Self::with_kernels), because settings of the
    /// mode changed. The next sync plans everything again. Returns whether the engine has a
    /// planner of this type; if not, nothing changes.
    ///
    /// In mode kernelspace, for example, the subnets of other nodes change while a proxy runs.
    pub fn set_planner<P: Planner>(&mut self, planner: P) -> bool {
        let drivers = self.drivers.iter_mut();
        let set: Option<Vec<bool>> = drivers.map(|it| it.set_planner(&planner)).collect();
        if set.as_ref().is_some_and(|are_new| are_new.contains(&true)) {
            self.schedule.request();
        }
        set.is_some()
    }

    /// Returns whether [`set_addresses`](Self::set_addresses) considers an address.
    fn is_considered(&self, addr: IpAddr) -> bool {
        let is_link_local = SpecialAddress::of(addr) == Some(SpecialAddress::LinkLocal);
        match &self.config.node_port_addresses {
            _ if addr.is_ipv4() || !is_link_local => true,
            NodePortAddresses::Within(networks) => networks.iter().any(|it| it.contains(&addr)),
            NodePortAddresses::All | NodePortAddresses::Primary => false,
        }
    }

    /// Syncs all families if a sync is due, and returns its report.
    ///
    /// A sync after the first one has a bounded number of edits. If a change has more, the
    /// rest follows in the next syncs, which are due at once: the [next
    /// deadline](Self::next_deadline) has passed then. Changes of other Services that arrive
    /// in between precede the rest, and the rules are consistent after each sync.
    ///
    /// No sync is due before [`Event::Synced`]. A failure in one family does not affect
    /// the sync of the other. Between two syncs the function also removes objects that
    /// were unused for 30 s, and then returns a report with [`Trigger::Unused`].
    pub fn poll(&mut self, now: Duration) -> Option<Report> {
        self.listen(now);
        if !self.store.is_synced() {
            return None;
        }
        if self.next_retry().is_some_and(|at| at <= now) {
            self.schedule.request();
        }
        for driver in &mut self.drivers {
            driver.expire_repairs(now);
        }
        let is_before_pause = self.schedule.is_before_pause();
        let Some(trigger) = self.schedule.poll(now) else {
            return match is_before_pause {
                true => None,
                false => self.remove_unused(now),
            };
        };
        // Whatever requested the sync: in a cluster with a change a minute, the timer, which
        // counts from the last sync, never ends.
        let compared = *self.compared.get_or_insert(now);
        if now.saturating_sub(compared) >= self.config.intervals.max && !self.is_watching() {
            self.compared = Some(now);
            self.forget(|_| true);
        }
        let ports = self.plan_next();
        let report = self.reconcile(trigger, ports, now);
        if !report.is_success() || self.cleanup.as_ref().is_some_and(Cleanup::needs_sync) {
            self.schedule.failed();
        } else if report.is_complete {
            self.schedule.succeeded();
        } else {
            self.schedule.continues();
        }
        Some(report)
    }

    /// Removes objects whose removal is due, between two syncs.
    ///
    /// The pause after a sync delays changes only, and may last minutes. The removal does
    /// not wait for it, plans no change and starts no pause.
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
            let drift = self.drift.remove(&family);
            let outcome = driver.reconcile(drift.as_ref(), now);
            let cleanup = cleanup.as_mut().filter(|_| outcome.is_ok());
            FamilyReport {
                family,
                drift,
                was_state_known,
                outcome,
                rejected: driver.take_rejected(),
                repair_conflict: driver.take_repair_conflict(),
                cleanup: cleanup
                    .and_then(|cleanup| cleanup.committed(family, now))
                    .map(|result| result.map_err(Error::from)),
            }
        });
        let families = families.collect();
        let watch = self.watch.as_mut();
        Report {
            trigger,
            ports,
            is_complete: self.backlogs.iter().all(Backlog::is_empty),
            families,
            contested,
            lost_addresses,
            missing_features: watch.map_or_else(Vec::new, |it| it.take_missing_features()),
        }
    }

    /// Returns the time at which the caller must [`poll`](Self::poll) next, and then
    /// [take](Self::take_flow_search) a search if it runs searches. The time may have
    /// passed.
    ///
    /// `None` if nothing is due before the next event.
    pub fn next_deadline(&self) -> Option<Duration> {
        if !self.store.is_synced() {
            return None;
        }
        let poll = self.watch.as_ref().and_then(|watch| watch.next_poll());
        // A requested sync retries rejected objects anyway.
        let retry = self.next_retry();
        let retry = retry.filter(|_| !self.schedule.is_requested());
        let schedule = self.schedule.next_deadline();
        [
            schedule,
            poll,
            retry,
            self.expires(),
            self.next_flow_search(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns whether a sync has been requested and has not started.
    pub fn is_queued(&self) -> bool {
        self.store.is_synced() && self.schedule.is_requested()
    }

    /// Returns the number of addresses that several Services claim.
    pub fn contested_count(&self) -> usize {
        self.drivers
            .iter()
            .map(|driver| driver.contested_count())
            .sum()
    }

    /// Returns the number of objects of a family that the kernel rejects.
    pub fn rejected_count(&self, family: Family) -> usize {
        let drivers = self.drivers.iter().filter(|it| it.family() == family);
        drivers.map(|driver| driver.rejected_count()).sum()
    }

    /// Returns the objects that the kernel rejects, with their families, in no particular
    /// order.
    pub fn rejected_objects(&self) -> Vec<(Family, Arc<RejectedObject>)> {
        let drivers = self.drivers.iter();
        let rejected = drivers.flat_map(|driver| {
            let objects = driver.rejected_objects().into_iter();
            objects.map(|object| (driver.family(), object))
        });
        rejected.collect()
    }

    /// Returns the number of objects of a family whose repairs are delayed, because another
    /// program [undoes](crate::RepairConflictChange::Began) them.
    pub fn repair_conflicts(&self, family: Family) -> usize {
        let drivers = self.drivers.iter().filter(|it| it.family() == family);
        drivers.map(|driver| driver.repair_conflicts()).sum()
    }

    /// Returns the time at which the next rejected object is retried.
    fn next_retry(&self) -> Option<Duration> {
        let drivers = self.drivers.iter();
        drivers.filter_map(|driver| driver.next_retry()).min()
    }

    /// Requests a sync that dumps the kernel's state and compares it with the plan.
    ///
    /// Call this function after another process has changed the kernel's state, unless
    /// the engine [watches](Self::watch) for changes.
    pub fn request_resync(&mut self) {
        self.forget(|_| true);
        self.schedule.request();
    }

    /// Returns the edits that a sync would commit now in all families, and the flows that
    /// it would delete. Changes nothing in the kernel.
    ///
    /// # Errors
    ///
    /// The error of the client if a dump fails; [`Error::NoKernel`]
    /// if the engine only plans.
    pub fn difference(&mut self) -> Result<Difference, Error> {
        self.difference_except(&KnownRejections::default())
    }

    /// Like [`difference`](Self::difference), but leaves out objects that another process
    /// reports as rejected.
    ///
    /// # Errors
    ///
    /// Same as [`difference`](Self::difference).
    pub fn difference_except(&mut self, known: &KnownRejections) -> Result<Difference, Error> {
        self.plan();
        let mut sum = Difference::default();
        for driver in &mut self.drivers {
            let difference = driver.difference(known)?;
            sum.edits += difference.edits;
            sum.rejected += difference.rejected;
            sum.script += &difference.script;
            if let Some(cleanup) = &self.cleanup {
                sum.stale_flows.extend(cleanup.find(driver.family())?);
            }
        }
        Ok(sum)
    }

    /// Returns the plan for all families in the format that the mode's native tool loads.
    ///
    /// Equal objects give equal text, regardless of the order of events.
    pub fn desired(&mut self) -> String {
        self.plan();
        self.drivers.iter().map(|driver| driver.desired()).collect()
    }

    /// Returns the store of Services, endpoints and the node.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the addresses of the node's interfaces, sorted. Empty while unknown.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Returns the time at which the next unused object expires.
    ///
    /// `None` if the kernel's state is unknown in any family: the next sync compares the
    /// state with the plan and also removes unused objects.
    fn expires(&self) -> Option<Duration> {
        let is_known = self.drivers.iter().all(|driver| driver.is_known());
        let deadlines = self.drivers.iter().filter_map(|it| it.deadline());
        deadlines.min().filter(|_| is_known)
    }

    /// Reads changes by other processes, and requests a sync of the affected families.
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

    /// Removes and returns the addresses lost since the last call, in all families.
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

    /// Marks the kernel's state of the matching families as unknown.
    fn forget(&mut self, matches: impl Fn(&dyn Drive) -> bool) {
        for driver in &mut self.drivers {
            if matches(&**driver) {
                driver.forget();
            }
        }
    }
}
