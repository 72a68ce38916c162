//! Metrics of allocation and repair, with the names of Kubernetes.

use std::collections::BTreeMap;
use std::time::Duration;

/// Names of the metrics for addresses or for ports.
///
/// The range is the value of the label `cidr` of Kubernetes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct MetricNames {
    /// Gauge of allocated items, [`Usage::used`].
    pub allocated: &'static str,
    /// Gauge of free items, [`Usage::free`].
    pub available: &'static str,
    /// Counter by `scope`, [`Counters::allocations`].
    pub allocations: &'static str,
    /// Counter by `scope`, [`Counters::errors`].
    pub errors: &'static str,
    /// Histogram, [`Counters::durations`]. Kubernetes has no such metric for ports.
    pub durations: Option<&'static str>,
    /// Counter by `type`, [`RepairCounters::findings`].
    pub findings: &'static str,
    /// Counter, [`RepairCounters::failures`].
    pub failures: &'static str,
}

impl MetricNames {
    /// Metrics of addresses, with the label `cidr`.
    pub const CLUSTER_IP: Self = Self {
        allocated: "kube_apiserver_clusterip_allocator_allocated_ips",
        available: "kube_apiserver_clusterip_allocator_available_ips",
        allocations: "kube_apiserver_clusterip_allocator_allocation_total",
        errors: "kube_apiserver_clusterip_allocator_allocation_errors_total",
        durations: Some("kube_apiserver_clusterip_allocator_allocation_duration_seconds"),
        findings: "apiserver_clusterip_repair_ip_errors_total",
        failures: "apiserver_clusterip_repair_reconcile_errors_total",
    };

    /// Metrics of node ports.
    pub const NODE_PORT: Self = Self {
        allocated: "kube_apiserver_nodeport_allocator_allocated_ports",
        available: "kube_apiserver_nodeport_allocator_available_ports",
        allocations: "kube_apiserver_nodeport_allocator_allocation_total",
        errors: "kube_apiserver_nodeport_allocator_allocation_errors_total",
        durations: None,
        findings: "apiserver_nodeport_repair_port_errors_total",
        failures: "apiserver_nodeport_repair_reconcile_errors_total",
    };
}

/// Usage of a range.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// The range.
    pub range: Box<str>,
    /// Number of allocated items.
    pub used: u128,
    /// Number of free items.
    pub free: u128,
}

/// Kind of a request: for a specific item or for any.
///
/// Exhaustive: a request is for a specific item or for any item.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// A specific item.
    Static,
    /// Any item.
    Dynamic,
}

impl Scope {
    /// Returns the value of the metric label `scope` of Kubernetes.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
        }
    }
}

/// Counters of a range.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// Number of successful allocations by scope.
    pub allocations: BTreeMap<Scope, u64>,
    /// Number of failed allocations by scope. Each attempt that ends with a conflict
    /// counts.
    pub errors: BTreeMap<Scope, u64>,
    /// Durations recorded with [`Registry::observe`](crate::Registry::observe).
    pub durations: DurationHistogram,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct DurationHistogram {
    /// Number of durations per bucket, not cumulative.
    ///
    /// The upper bound of a bucket is the element of [`Self::BOUNDS`] at the same
    /// index. The last bucket has no bound.
    pub buckets: [u64; Self::BOUNDS.len() + 1],
    /// Sum of all durations.
    pub sum: Duration,
}

impl DurationHistogram {
    /// Upper bounds of the buckets in seconds, as in Kubernetes.
    pub const BOUNDS: [f64; 11] = [
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ];

    /// Records a duration.
    pub fn observe(&mut self, took: Duration) {
        let mut bounds = Self::BOUNDS.iter();
        let place = bounds.position(|bound| took.as_secs_f64() <= *bound);
        let place = place.unwrap_or(Self::BOUNDS.len());
        if let Some(bucket) = self.buckets.get_mut(place) {
            *bucket += 1;
        }
        self.sum += took;
    }

    /// Returns the number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Counters of a repair.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RepairCounters {
    /// Number of findings by [`Finding::label`](crate::Finding::label).
    pub findings: BTreeMap<&'static str, u64>,
    /// Number of failed passes.
    pub failures: u64,
}

/// Requests to a pool, counted once the outcome of the change is known.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Requests {
    /// Range, scope and success of each request.
    entries: Vec<(Box<str>, Scope, bool)>,
}

impl Requests {
    /// Records the success of a request for each range.
    pub(crate) fn note(&mut self, ranges: Vec<Box<str>>, scope: Scope, is_given: bool) {
        let entries = ranges.into_iter().map(|range| (range, scope, is_given));
        self.entries.extend(entries);
    }

    /// Adds all requests to the counters.
    pub(crate) fn count(self, outcome: Outcome, counters: &mut BTreeMap<Box<str>, Counters>) {
        for (range, scope, is_given) in self.entries {
            let counters = counters.entry(range).or_default();
            let counter = match (is_given, outcome) {
                (true, Outcome::Committed) => &mut counters.allocations,
                (true, Outcome::Rejected) => continue,
                (false, _) | (true, Outcome::Failed) => &mut counters.errors,
            };
            *counter.entry(scope).or_default() += 1;
        }
    }
}

/// Outcome of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// The change was committed.
    Committed,
    /// A part of the change was rejected, so nothing was changed.
    Rejected,
    /// The store did not commit the change.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_in_the_bucket_with_the_lowest_sufficient_bound() {
        let mut durations = DurationHistogram::default();
        for took in [5, 6, 10_000, 10_001] {
            durations.observe(Duration::from_millis(took));
        }
        assert_eq!(durations.buckets, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(durations.count(), 4);
        assert_eq!(durations.sum, Duration::from_millis(20_012));
    }
}
