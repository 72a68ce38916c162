//! Which entries of connection tracking no longer lead anywhere, after Services changed.
//!
//! The kernel translates a connection by the entry that its first packet made, and the entry
//! lives while packets arrive. A resolver that sends its questions from one port would ask a
//! removed DNS server forever. Deleting its entry makes the next packet pass the rules again.
//!
//! The table can have a million entries, so [`Cleanup`] does not compare all of them after each
//! change. A change that can make flows stale records which: those of a frontend (an address
//! and port that clients send to), or those of an endpoint that left. A search after the
//! commit dumps only these flows. A failed search is repeated with the same flows.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use vipline_service_model::{Family, PortChange, PortName, ServicePort, Transport};
//! use vipline_stale_flows::{Cleanup, Flows};
//! # use vipline_conntrack::{Error, Filter, Flow, Key};
//! # struct Table;
//! # impl Flows for Table {
//! #     fn count(&mut self) -> Result<usize, Error> { Ok(0) }
//! #     fn dump(&mut self, _: &Filter, _: &mut dyn FnMut(Flow)) -> Result<bool, Error> { Ok(true) }
//! #     fn delete(&mut self, keys: &[Key]) -> Result<usize, Error> { Ok(keys.len()) }
//! # }
//!
//! let name = PortName {
//!     namespace: "kube-system".into(),
//!     service: "kube-dns".into(),
//!     port: "dns".into(),
//!     protocol: Transport::Udp,
//!     created: None,
//! };
//! let dns = Arc::new(ServicePort::new(name.into(), [10, 96, 0, 10].into(), 53));
//!
//! // `Kernel::open` is the table of the kernel.
//! let mut cleanup = Cleanup::new(Table);
//! let change = PortChange::between(None, Some(&dns)).expect("it has a new value");
//! cleanup.apply(&change);
//! // The kernel has the rules of the change now: flows that passed the former ones are stale.
//! let report = cleanup.committed(Family::V4, Duration::ZERO).expect("flows may be stale")?;
//! assert!(report.is_complete);
//! # Ok::<(), Error>(())
//! ```
//!
//! The crate installs no rules and does not know how a proxy translates: a flow is stale if its
//! reply comes from an address that serves the frontend no longer. It reads no clock and has no
//! thread; [`Cleanup::defer`] leaves searches to the caller, who may run them on one.
//!
//! # Source files, in reading order
//!
//! - `lib`: changes, commits and searches. `pace`: when the next search begins.
//! - `served`: the current endpoints of each frontend, and whether a flow is stale.
//! - `targets`: flows that may be stale, and the dumps that find them. `search`: runs the dumps.
//! - `kernel`: the table of the kernel.
#![forbid(unsafe_code)]

mod served;

mod targets;

mod pace;

mod search;

#[cfg(target_os = "linux")]
mod kernel;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use vipline_conntrack::{Error, Filter, Flow, Key};
use vipline_service_model::{Family, PortChange};

#[cfg(target_os = "linux")]
pub use kernel::Kernel;
use pace::Pace;
use search::SharedFlows;
pub use search::{FinishedFlowSearch, FlowSearch};
use served::Served;
use targets::Targets;

/// Result of a search for stale flows in one family.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CleanupReport {
    /// Number of deleted flows.
    pub deleted: usize,
    /// Number of dumps of the conntrack table.
    pub dumps: usize,
    /// Number of flows that the dumps returned.
    pub checked: usize,
    /// Whether all flows were checked. If not, the search is repeated.
    pub is_complete: bool,
    /// Duration of the search, if a [clock](Cleanup::set_clock) is set.
    pub duration: Option<Duration>,
}

/// Access to tracked flows.
pub trait Flows: Send {
    /// Returns the number of tracked flows.
    fn count(&mut self) -> Result<usize, Error>;

    /// Calls `each` for every flow that matches the filter. Returns whether the dump was
    /// complete.
    fn dump(&mut self, filter: &Filter, each: &mut dyn FnMut(Flow)) -> Result<bool, Error>;

    /// Deletes flows and returns the number of deleted flows. Flows that have already
    /// ended do not count.
    fn delete(&mut self, keys: &[Key]) -> Result<usize, Error>;
}

/// Schedules searches for stale flows.
pub struct Cleanup {
    /// Shared with the search, which compares flows with the current endpoints.
    served: Arc<RwLock<Served>>,
    flows: SharedFlows,
    /// Flows to search next.
    due: BTreeMap<Family, Targets>,
    clock: Option<fn() -> Duration>,
    /// When the caller runs a search; `None` if each sync runs its own.
    pace: Option<Pace>,
}

impl Cleanup {
    /// Creates a cleanup of tracked flows.
    pub fn new(flows: impl Flows + 'static) -> Self {
        Self {
            served: Arc::default(),
            flows: Arc::new(Mutex::new(Box::new(flows))),
            due: BTreeMap::new(),
            clock: None,
            pace: None,
        }
    }

    /// Sets the clock that measures searches.
    pub fn set_clock(&mut self, clock: fn() -> Duration) {
        self.clock = Some(clock);
    }

    /// Leaves searches to the caller, so that they delay nothing else.
    ///
    /// From then on [`committed`](Self::committed) searches for no flows. The caller must
    /// [take](Self::take) a search at the [next deadline](Self::next_deadline),
    /// [run](FlowSearch::run) it, usually on another thread, and [pass](Self::finish) its
    /// result back.
    pub fn defer(&mut self) {
        self.pace.get_or_insert_default();
    }

    /// Records a changed service port.
    ///
    /// Flows are compared with the new endpoints from now on, and searched after the
    /// [commit](Self::committed) of the change.
    pub fn apply(&self, change: &PortChange) {
        let mut served = self.served();
        match &change.port {
            Some(port) => served.set(port),
            None => served.remove(&change.name, change.family),
        }
    }

    /// Sets the addresses on which node ports of a family are served.
    pub fn set_node_addresses(&self, family: Family, addresses: impl IntoIterator<Item = IpAddr>) {
        self.served().set_node(family, addresses);
    }

    /// Records that the kernel has all changes of a family.
    ///
    /// Unless the caller runs searches, deletes the stale flows of the family. Returns
    /// `None` if no flow can be stale.
    pub fn committed(
        &mut self,
        family: Family,
        now: Duration,
    ) -> Option<Result<CleanupReport, Error>> {
        let changed = self.served().take_changed(family);
        let is_new = !changed.is_empty();
        let due = self.due.entry(family).or_default();
        due.extend(changed);
        if let Some(pace) = &mut self.pace {
            if is_new {
                pace.request(now);
            }
            return None;
        }
        let targets = std::mem::take(due);
        let search = self.search(vec![(family, targets)])?;
        self.record(search.run()).pop().map(|(_, cleaned)| cleaned)
    }

    /// Returns whether the next sync must repeat a search.
    pub fn needs_sync(&self) -> bool {
        self.pace.is_none() && self.due.values().any(|due| !due.is_empty())
    }

    /// Returns a search that the caller must run, if one is due.
    pub fn take(&mut self, now: Duration) -> Option<FlowSearch> {
        let begins = self.pace.as_mut()?.begin(now);
        if !begins {
            return None;
        }
        let due = std::mem::take(&mut self.due);
        let search = self.search(due.into_iter().collect());
        if let (None, Some(pace)) = (&search, &mut self.pace) {
            pace.end(now);
        }
        search
    }

    /// Records the end of a search that the caller has run, and returns its results.
    /// A failed search is repeated after `retry`.
    pub fn finish(
        &mut self,
        finished: FinishedFlowSearch,
        now: Duration,
        retry: Duration,
    ) -> Vec<(Family, Result<CleanupReport, Error>)> {
        let results = self.record(finished);
        if let Some(pace) = &mut self.pace {
            pace.end(now);
            for (_, result) in &results {
                match result {
                    Ok(report) if report.is_complete => {}
                    Ok(_) => pace.request(now),
                    Err(_) => pace.retry(now.saturating_add(retry)),
                }
            }
        }
        results
    }

    /// Returns the time at which the caller must take the next search.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.pace.and_then(|pace| pace.next_deadline())
    }

    /// Returns all stale flows of a family. Waits for a running search.
    pub fn find(&self, family: Family) -> Result<Vec<Flow>, Error> {
        let mut found = Vec::new();
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        let each = |flow| found.push(flow);
        search::find(family, &Targets::all(), &self.served, &mut **flows, each)?;
        Ok(found)
    }

    /// Returns a search of these flows; `None` if there are none.
    fn search(&self, mut targets: Vec<(Family, Targets)>) -> Option<FlowSearch> {
        targets.retain(|(_, targets)| !targets.is_empty());
        (!targets.is_empty()).then(|| FlowSearch {
            targets,
            served: Arc::clone(&self.served),
            flows: Arc::clone(&self.flows),
            clock: self.clock,
        })
    }

    /// Records the results of a search. Flows that were not all checked are due again.
    fn record(
        &mut self,
        finished: FinishedFlowSearch,
    ) -> Vec<(Family, Result<CleanupReport, Error>)> {
        let mut results = Vec::new();
        for (family, searched, result) in finished.families {
            let due = self.due.entry(family).or_default();
            if result.as_ref().is_ok_and(|report| report.is_complete) {
                let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
                served.forget_removed(&searched, due);
            } else {
                due.extend(searched);
            }
            results.push((family, result));
        }
        results
    }

    fn served(&self) -> RwLockWriteGuard<'_, Served> {
        self.served.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cleanup")
            .field("due", &self.due)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
