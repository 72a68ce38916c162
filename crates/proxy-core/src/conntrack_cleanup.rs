//! Stale flows of connection tracking, deleted after a sync.
//!
//! What is stale follows from what is served now, so a search that was missed or
//! failed is made up for by the next.

mod served;

mod kernel;

use std::collections::BTreeSet;
use std::time::Duration;

use vipline_conntrack::Flow;
use vipline_service_model::{Family, PortChange};

use crate::{Context, Error};

pub(crate) use kernel::Kernel;
use served::Served;

/// What a search for stale flows did in one family.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CleanupReport {
    /// How many flows were deleted.
    pub deleted: usize,
    /// Whether all flows were looked at; if not, the search is made again.
    pub is_complete: bool,
    /// How long it took, by the caller's [clock](crate::Engine::set_flow_cleanup_clock).
    pub duration: Option<Duration>,
}

/// The flows that a kernel tracks.
pub(crate) trait Flows: Send {
    /// Finds the flows of a family that are stale.
    fn find(&mut self, family: Family, served: &Served) -> Result<Found, Error>;

    /// Deletes flows and returns how many there were; those that have gone by
    /// themselves do not count.
    fn delete(&mut self, flows: &[Flow]) -> Result<usize, Error>;
}

/// Stale flows.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) flows: Vec<Flow>,
    /// Whether all flows were looked at.
    pub(crate) is_complete: bool,
}

/// Knows when to search for stale flows, and which they are.
pub(crate) struct Cleanup {
    served: Served,
    /// The families in which something changed since the last search.
    due: BTreeSet<Family>,
    flows: Box<dyn Flows>,
    clock: Option<fn() -> Duration>,
}

impl Cleanup {
    /// Returns who searches among these flows.
    pub(crate) fn new(flows: impl Flows + 'static) -> Self {
        Self {
            served: Served::default(),
            due: BTreeSet::new(),
            flows: Box::new(flows),
            clock: None,
        }
    }

    /// Tells from now on how long searches take.
    pub(crate) fn set_clock(&mut self, clock: fn() -> Duration) {
        self.clock = Some(clock);
    }

    /// Takes in what changed of a service port.
    pub(crate) fn plan(&mut self, change: &PortChange) {
        match &change.port {
            Some(port) => self.served.set(port),
            None => self.served.remove(&change.name, change.family),
        }
        self.due.insert(change.family);
    }

    /// Takes in what node ports are served on.
    pub(crate) fn enter(&mut self, cx: &Context) {
        if self.served.set_node(cx.family, cx.node_port_ips()) {
            self.due.insert(cx.family);
        }
    }

    /// Deletes the stale flows of a family whose rules are what they should be;
    /// `None`: nothing changed since the last search.
    pub(crate) fn run(&mut self, family: Family) -> Option<Result<CleanupReport, Error>> {
        self.due.contains(&family).then(|| self.clean(family))
    }

    /// Tells whether a search is still to be made or to be made again.
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
            self.served.forget_gone(family);
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
