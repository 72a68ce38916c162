//! Counters for metrics: plain atomics, which only grow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::cache::AnswerType;

/// Upper bounds of the buckets of a [`Histogram`], in microseconds: 0.25 ms doubled 15
/// times, as in CoreDNS.
pub const BUCKETS: [u64; 16] = {
    let mut bounds = [250; 16];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = bounds[at - 1] * 2;
        at += 1;
    }
    bounds
};

/// A counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn increment(&self) {
        self.add(1);
    }

    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

/// A pair of counters, one for each type of cached answers.
#[derive(Debug, Default)]
pub struct ByType {
    success: Counter,
    denial: Counter,
}

impl ByType {
    /// Returns the counter of a type.
    pub fn of(&self, answer_type: AnswerType) -> &Counter {
        match answer_type {
            AnswerType::Success => &self.success,
            AnswerType::Denial => &self.denial,
        }
    }
}

/// A pair of counters, one for each transport protocol.
#[derive(Debug, Default)]
pub struct ByProtocol {
    /// Counter of UDP.
    pub udp: Counter,
    /// Counter of TCP.
    pub tcp: Counter,
}

/// Counters of the cache and of forwarding as a whole.
#[derive(Debug, Default)]
pub struct Counters {
    /// Queries that the cache answered: `coredns_cache_hits_total`.
    pub cache_hits: ByType,
    /// Queries that the cache did not answer: `coredns_cache_misses_total`.
    pub cache_misses: Counter,
    /// Refreshes of entries in the background: `coredns_cache_prefetch_total`.
    pub prefetches: Counter,
    /// Queries answered with a stale entry: `coredns_cache_served_stale_total`.
    pub served_stale: Counter,
    /// Entries evicted for new ones: `coredns_cache_evictions_total`.
    pub evictions: ByType,
    /// Queries that shared the upstream query of another client.
    pub shared: Counter,
    /// Queries that no upstream answered.
    pub failures: Counter,
    /// Queries that were refused because of the limit of concurrent queries:
    /// `coredns_forward_max_concurrent_rejects_total`.
    pub max_concurrent_rejects: Counter,
    /// Queries for which all upstreams were down:
    /// `coredns_forward_healthcheck_broken_total`.
    pub healthcheck_broken: Counter,
}

/// Counters of one upstream.
#[derive(Debug, Default)]
pub struct UpstreamCounters {
    /// Durations of queries by RCODE, see [`rcode_name`]:
    /// `coredns_proxy_request_duration_seconds`.
    pub durations: [Histogram; RCODES],
    /// Queries without a valid response.
    pub failures: Counter,
    /// Failed health checks: `coredns_proxy_healthcheck_failures_total`.
    pub healthcheck_failures: Counter,
    /// Queries over an open connection: `coredns_proxy_conn_cache_hits_total`.
    pub connection_hits: ByProtocol,
    /// Queries over a new connection or socket: `coredns_proxy_conn_cache_misses_total`.
    pub connection_misses: ByProtocol,
    /// Replies with a wrong ID or question, which were ignored.
    pub mismatches: Counter,
}

impl UpstreamCounters {
    /// Counts a response.
    pub(super) fn record(&self, rcode: u16, duration: Duration) {
        self.durations[usize::from(rcode).min(RCODES - 1)].record(duration);
    }
}

/// RCODEs with counters of their own, and one place for all others.
pub const RCODES: usize = 7;

/// Returns the name of the RCODE at a place of [`UpstreamCounters::durations`].
pub fn rcode_name(at: usize) -> &'static str {
    match at {
        0 => "NOERROR",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        _ => "OTHER",
    }
}

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BUCKETS.len() + 1],
    microseconds: Counter,
}

impl Histogram {
    /// Returns the number of durations up to each bound of [`BUCKETS`], and of all.
    pub fn cumulative(&self) -> [u64; BUCKETS.len() + 1] {
        let mut sum = 0;
        std::array::from_fn(|at| {
            sum += self.buckets[at].get();
            sum
        })
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.microseconds.get())
    }

    fn record(&self, duration: Duration) {
        let duration = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let at = BUCKETS.partition_point(|&bound| bound < duration);
        self.buckets[at].increment();
        self.microseconds.add(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_each_duration_once() {
        let histogram = Histogram::default();
        for micros in [0, 250, 251, 8_192_000, 8_192_001, 60_000_000] {
            histogram.record(Duration::from_micros(micros));
        }
        let cumulative = histogram.cumulative();
        assert_eq!(BUCKETS[15], 8_192_000);
        assert_eq!(
            (cumulative[0], cumulative[1], cumulative[15], cumulative[16]),
            (2, 3, 4, 6)
        );
        assert_eq!(histogram.count(), 6);
        assert_eq!(histogram.sum(), Duration::from_micros(76_384_502));
    }

    #[test]
    fn unknown_rcodes_share_a_histogram() {
        let counters = UpstreamCounters::default();
        counters.record(3, Duration::ZERO);
        counters.record(6, Duration::ZERO);
        counters.record(23, Duration::ZERO);
        assert_eq!(counters.durations[3].count(), 1);
        assert_eq!(counters.durations[6].count(), 2);
        assert_eq!(rcode_name(3), "NXDOMAIN");
    }
}
