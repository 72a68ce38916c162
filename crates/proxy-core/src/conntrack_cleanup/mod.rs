//! Deletion of stale conntrack entries after a sync.
//!
//! Stale flows are determined from the current state only, so the next search makes up
//! for a missed or failed one.

mod served;

mod kernel;

use std::collections::BTreeSet;
use std::time::Duration;

use vipline_conntrack::Flow;
use vipline_service_model::{Family, PortChange};

use crate::{Context, Error};

pub(crate) use kernel::Kernel;
use served::Served;

/// Result of a search for stale flows in one family.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CleanupReport {
    /// Number of deleted flows.
    pub deleted: usize,
    /// Whether all flows were checked. If not, the search is repeated.
    pub is_complete: bool,
    /// Duration of the search, if a [clock](crate::Engine::set_flow_cleanup_clock) is
    /// set.
    pub duration: Option<Duration>,
}

/// Access to tracked flows.
pub(crate) trait Flows: Send {
    /// Finds the stale flows of a family.
    fn find(&mut self, family: Family, served: &Served) -> Result<Found, Error>;

    /// Deletes flows and returns the number of deleted flows. Flows that have already
    /// ended do not count.
    fn delete(&mut self, flows: &[Flow]) -> Result<usize, Error>;
}

/// Stale flows.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) flows: Vec<Flow>,
    /// Whether all flows were checked.
    pub(crate) is_complete: bool,
}

/// Schedules and runs searches for stale flows.
pub(crate) struct Cleanup {
    served: Served,
    /// Families with changes since the last search.
    due: BTreeSet<Family>,
    flows: Box<dyn Flows>,
    clock: Option<fn() -> Duration>,
}

impl Cleanup {
    /// Creates a cleanup of tracked flows.
    pub(crate) fn new(flows: impl Flows + 'static) -> Self {
        Self {
            served: Served::default(),
            due: BTreeSet::new(),
            flows: Box::new(flows),
            clock: None,
        }
    }

    /// Sets the clock that measures searches.
    pub(crate) fn set_clock(&mut self, clock: fn() -> Duration) {
        self.clock = Some(clock);
    }

    /// Records a changed service port.
    pub(crate) fn plan(&mut self, change: &PortChange) {
        match &change.port {
            Some(port) => self.served.set(port),
            None => self.served.remove(&change.name, change.family),
        }
        self.due.insert(change.family);
    }

    /// Sets the addresses on which node ports are served.
    pub(crate) fn set_context(&mut self, cx: &Context) {
        if self.served.set_node(cx.family, cx.node_port_ips()) {
            self.due.insert(cx.family);
        }
    }

    /// Deletes the stale flows of a family after a successful sync. `None` if nothing
    /// changed since the last search.
    pub(crate) fn run(&mut self, family: Family) -> Option<Result<CleanupReport, Error>> {
        self.due.contains(&family).then(|| self.clean(family))
    }

    /// Returns whether a search is due.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns the stale flows of a family.
    pub(crate) fn find(&mut self, family: Family) -> Result<Vec<Flow>, Error> {
        Ok(self.flows.find(family, &self.served)?.flows)
    }

    fn clean(&mut self, family: Family) -> Result<CleanupReport, Error> {
        let began = self.clock.map(|clock| clock());
        let found = self.flows.find(family, &self.served)?;
        let deleted = self.flows.delete(&found.flows)?;
        if found.is_complete {
            self.due.remove(&family);
            self.served.forget_removed(family);
        }
        Ok(CleanupReport {
            deleted,
            is_complete: found.is_complete,
            duration: self.clock.zip(began).map(|(clock, began)| clock() - began),
        })
    }
}

#[cfg(test)]
mod tests;
