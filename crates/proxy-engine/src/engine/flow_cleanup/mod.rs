//! Searches for stale flows, in syncs or by the caller.

use std::time::Duration;

use vipline_service_model::Family;
#[cfg(target_os = "linux")]
use vipline_stale_flows::{Cleanup, Kernel};
use vipline_stale_flows::{FinishedFlowSearch, FlowSearch};

use crate::{CleanupReport, Engine, Error};

impl Engine {
    /// Enables the deletion of stale conntrack entries after each sync that may have made
    /// flows stale. A flow is stale if it leads to an endpoint that no longer serves.
    ///
    /// The cleanup covers the network namespace of the calling thread.
    /// `Config::open` of proxy-core enables it. An engine with kernels of the caller deletes no
    /// flows unless this function is called before the first event. Returns whether the
    /// kernel supports the conntrack dumps that the cleanup needs; without them stale
    /// flows stay.
    ///
    /// # Errors
    ///
    /// The error of vipline-conntrack if the netlink socket cannot be opened.
    #[cfg(target_os = "linux")]
    pub fn enable_flow_cleanup(&mut self) -> Result<bool, Error> {
        self.cleanup = Kernel::open()?.map(Cleanup::new);
        Ok(self.cleanup.is_some())
    }

    /// Sets the clock that measures how long each search for stale flows takes. The clock
    /// must never go back. Without a clock
    /// [`CleanupReport::duration`](crate::CleanupReport::duration) is `None`.
    pub fn set_flow_cleanup_clock(&mut self, clock: fn() -> Duration) {
        if let Some(cleanup) = &mut self.cleanup {
            cleanup.set_clock(clock);
        }
    }

    /// Returns whether stale flows are deleted.
    pub fn is_flow_cleanup_enabled(&self) -> bool {
        self.cleanup.is_some()
    }

    /// Leaves searches for stale flows to the caller, so that they delay no sync.
    ///
    /// From then on [`poll`](Self::poll) searches for no flows. After each call of `poll`
    /// and at the [next deadline](Self::next_deadline) the caller must
    /// [take](Self::take_flow_search) a search, [run](FlowSearch::run) it, usually on
    /// another thread, and [pass](Self::finish_flow_search) its result to the engine. The
    /// function must be called before the first event.
    ///
    /// Without this function each sync runs its own search.
    pub fn defer_flow_searches(&mut self) {
        if let Some(cleanup) = &mut self.cleanup {
            cleanup.defer();
        }
    }

    /// Returns a search for stale flows if one is due, and the last one is finished.
    ///
    /// A search is due 20 ms after the commit of a change that may have made flows stale.
    /// Before the next search is a pause of 250 ms. After a search of more than 365 ms the
    /// pause is shorter, so that no flow is stale longer than 1 s, but at least 20 ms. All
    /// changes until then share the search. Always `None` unless the caller has
    /// [deferred](Self::defer_flow_searches) searches.
    pub fn take_flow_search(&mut self, now: Duration) -> Option<FlowSearch> {
        self.cleanup.as_mut()?.take(now)
    }

    /// Records the result of a search, and returns the results by family.
    ///
    /// A search is repeated after [`Intervals::retry`](crate::Intervals::retry) if it
    /// failed, and after the pause if a dump was interrupted. A later change repeats it
    /// sooner.
    pub fn finish_flow_search(
        &mut self,
        finished: FinishedFlowSearch,
        now: Duration,
    ) -> Vec<(Family, Result<CleanupReport, Error>)> {
        let retry = self.config.intervals.retry;
        let Some(cleanup) = &mut self.cleanup else {
            return Vec::new();
        };
        let results = cleanup.finish(finished, now, retry).into_iter();
        results
            .map(|(family, result)| (family, result.map_err(Error::from)))
            .collect()
    }

    /// Returns the time at which the caller must take the next search.
    pub(super) fn next_flow_search(&self) -> Option<Duration> {
        self.cleanup.as_ref()?.next_deadline()
    }
}

#[cfg(test)]
mod tests;
