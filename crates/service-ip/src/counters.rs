//! What is counted of allocation, under the names of Kubernetes.

use std::collections::BTreeMap;
use std::time::Duration;

/// What the metrics of addresses or of ports are called.
///
/// Those with a `cidr` in Kubernetes are labelled with the range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MetricNames {
    /// A gauge of what is taken, [`Usage::used`].
    pub allocated: &'static str,
    /// A gauge of what is free, [`Usage::free`].
    pub available: &'static str,
    /// A counter by `scope`, [`Counters::allocations`].
    pub allocations: &'static str,
    /// A counter by `scope`, [`Counters::errors`].
    pub errors: &'static str,
    /// A histogram, [`Counters::durations`]; Kubernetes has none of ports.
    pub durations: Option<&'static str>,
    /// A counter by `type`, [`RepairCounters::findings`].
    pub findings: &'static str,
    /// A counter, [`RepairCounters::failures`].
    pub failures: &'static str,
}

impl MetricNames {
    /// Those of addresses, labelled with `cidr`.
    pub const CLUSTER_IP: Self = Self {
        allocated: "kube_apiserver_clusterip_allocator_allocated_ips",
        available: "kube_apiserver_clusterip_allocator_available_ips",
        allocations: "kube_apiserver_clusterip_allocator_allocation_total",
        errors: "kube_apiserver_clusterip_allocator_allocation_errors_total",
        durations: Some("kube_apiserver_clusterip_allocator_allocation_duration_seconds"),
        findings: "apiserver_clusterip_repair_ip_errors_total",
        failures: "apiserver_clusterip_repair_reconcile_errors_total",
    };

    /// Those of node ports.
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

/// How much of a range is taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Usage {
    /// The range.
    pub range: Box<str>,
    /// How many items are taken.
    pub used: u128,
    /// How many items are free.
    pub free: u128,
}

/// Whether a certain item was asked for, or any.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// A certain one.
    Static,
    /// Any.
    Dynamic,
}

impl Scope {
    /// Returns the label of Kubernetes.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
        }
    }
}

/// What has happened to a range.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Items given.
    pub allocations: BTreeMap<Scope, u64>,
    /// Items not given; where somebody else was faster, each attempt counts.
    pub errors: BTreeMap<Scope, u64>,
    /// How long it took to give one, as far as the caller has told.
    pub durations: DurationHistogram,
}

/// DurationHistogram in buckets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DurationHistogram {
    /// How many took at most as long as the same place of [`Self::BOUNDS`]
    /// says, each counted in one bucket; the last are those that took longer.
    pub buckets: [u64; Self::BOUNDS.len() + 1],
    /// How long all of them took.
    pub sum: Duration,
}

impl DurationHistogram {
    /// The upper bounds of the buckets, in seconds, as Kubernetes has them.
    pub const BOUNDS: [f64; 11] = [
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ];

    /// Counts one.
    pub fn observe(&mut self, took: Duration) {
        let mut bounds = Self::BOUNDS.iter();
        let place = bounds.position(|bound| took.as_secs_f64() <= *bound);
        let place = place.unwrap_or(Self::BOUNDS.len());
        if let Some(bucket) = self.buckets.get_mut(place) {
            *bucket += 1;
        }
        self.sum += took;
    }

    /// Returns how many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// What has happened to a repair.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RepairCounters {
    /// What was found, by [`Finding::label`](crate::Finding::label).
    pub findings: BTreeMap<&'static str, u64>,
    /// Passes that were not made.
    pub failures: u64,
}

/// What was asked of a pool, to be counted when it is known how it ended.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Requests {
    /// The ranges concerned, for what, and whether they gave it.
    entries: Vec<(Box<str>, Scope, bool)>,
}

impl Requests {
    /// Notes that ranges gave an item, or did not.
    pub(crate) fn note(&mut self, ranges: Vec<Box<str>>, scope: Scope, is_given: bool) {
        let entries = ranges.into_iter().map(|range| (range, scope, is_given));
        self.entries.extend(entries);
    }

    /// Counts it all.
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

/// How a change ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// It was made.
    Committed,
    /// Some of it was refused, so none was made.
    Rejected,
    /// The store did not make it.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_in_the_bucket_that_they_fit_in() {
        let mut durations = DurationHistogram::default();
        for took in [5, 6, 10_000, 10_001] {
            durations.observe(Duration::from_millis(took));
        }
        assert_eq!(durations.buckets, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(durations.count(), 4);
        assert_eq!(durations.sum, Duration::from_millis(20_012));
    }
}
