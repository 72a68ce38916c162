//! Counters of queries and responses: plain atomics, written by one thread each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Transport protocol of a query.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl Transport {
    /// All protocols, in the order of counters.
    pub(super) const ALL: [Self; 2] = [Self::Udp, Self::Tcp];

    /// Returns the label `proto`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

/// Label `zone` of a query.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ZoneLabel {
    /// The zone of the cluster, with its reverse zones.
    Cluster,
    /// All other names.
    Root,
    /// Rejected requests.
    Dropped,
}

/// Label `plugin` of a response: the part of CoreDNS that would have written it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// The zone.
    Zone,
    /// The upstream name servers.
    Forward,
    /// The cache.
    Cache,
    /// The server itself.
    Server,
}

impl Origin {
    pub(super) const ALL: [Self; 4] = [Self::Zone, Self::Forward, Self::Cache, Self::Server];

    /// Returns the label `plugin`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Zone => "kubernetes",
            Self::Forward => "forward",
            Self::Cache => "cache",
            Self::Server => "",
        }
    }
}

/// A query with its response.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// Transport protocol.
    pub transport: Transport,
    /// Whether the client has an IPv6 address.
    pub is_ipv6: bool,
    /// Zone of the question.
    pub zone: ZoneLabel,
    /// Writer of the response.
    pub origin: Origin,
    /// Type of the question; 0 if unknown.
    pub record_type: u16,
    /// Bit DO of the query.
    pub dnssec_ok: bool,
    /// Response code.
    pub code: u16,
    /// Size of the request in bytes.
    pub request_size: usize,
    /// Size of the response in bytes.
    pub response_size: usize,
    /// Time from the receipt of the request to the response.
    pub duration: Duration,
}

/// Types with a label of their own. All others share the label `other`.
pub(super) const TYPES: [(u16, &str); 19] = [
    (1, "A"),
    (28, "AAAA"),
    (33, "SRV"),
    (12, "PTR"),
    (6, "SOA"),
    (2, "NS"),
    (5, "CNAME"),
    (15, "MX"),
    (16, "TXT"),
    (43, "DS"),
    (48, "DNSKEY"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (50, "NSEC3"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (251, "IXFR"),
    (252, "AXFR"),
    (255, "ANY"),
];

/// Response codes with a label of their own. All others share a counter.
pub(super) const CODES: [(u16, &str); 7] = [
    (0, "NOERROR"),
    (3, "NXDOMAIN"),
    (2, "SERVFAIL"),
    (5, "REFUSED"),
    (1, "FORMERR"),
    (4, "NOTIMP"),
    (16, "BADVERS"),
];

/// Upper bounds of durations in microseconds, as in CoreDNS.
pub(super) use crate::forward::BUCKETS as DURATIONS;

/// Upper bounds of sizes in bytes, as in CoreDNS.
pub(super) const SIZES: [u64; 14] = [
    0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16_000, 32_000, 48_000, 64_000,
];

/// A histogram with `N` buckets. The last bucket is unbounded.
#[derive(Debug)]
pub(super) struct Buckets<const N: usize> {
    counts: [AtomicU64; N],
    sum: AtomicU64,
}

impl<const N: usize> Default for Buckets<N> {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::default()),
            sum: AtomicU64::default(),
        }
    }
}

impl<const N: usize> Buckets<N> {
    fn observe(&self, bounds: &[u64], value: u64) {
        let bucket = bounds.partition_point(|&bound| bound < value);
        if let Some(count) = self.counts.get(bucket) {
            add(count, 1);
        }
        add(&self.sum, value);
    }

    /// Adds the counts to a sum of histograms.
    pub(super) fn add_to(&self, counts: &mut [u64], sum: &mut u64) {
        for (count, own) in counts.iter_mut().zip(&self.counts) {
            *count += own.load(Ordering::Relaxed);
        }
        *sum += self.sum.load(Ordering::Relaxed);
    }
}

/// Counters of one zone.
#[derive(Debug, Default)]
pub(super) struct ZoneCounters {
    /// By transport protocol, family and type.
    pub(super) requests: [[[AtomicU64; TYPES.len() + 1]; 2]; 2],
    pub(super) dnssec_ok: AtomicU64,
    pub(super) durations: Buckets<{ DURATIONS.len() + 1 }>,
    pub(super) request_sizes: [Buckets<{ SIZES.len() + 1 }>; 2],
    pub(super) response_sizes: [Buckets<{ SIZES.len() + 1 }>; 2],
    /// By origin and response code.
    pub(super) responses: [[AtomicU64; CODES.len() + 1]; Origin::ALL.len()],
}

/// Counters of one thread for one listener. Any thread may read them.
#[derive(Debug, Default)]
pub struct Counters {
    zones: [ZoneCounters; 3],
}

impl Counters {
    /// Counts a query with its response.
    pub fn record(&self, seen: &Observation) {
        let [cluster, root, dropped] = &self.zones;
        let zone = match seen.zone {
            ZoneLabel::Cluster => cluster,
            ZoneLabel::Root => root,
            ZoneLabel::Dropped => dropped,
        };
        let transport = seen.transport as usize;
        let place = |of: &[(u16, &str)], number| {
            let place = of.iter().position(|(each, _)| *each == number);
            place.unwrap_or(of.len())
        };
        let requests = &zone.requests[transport][usize::from(seen.is_ipv6)];
        add(&requests[place(&TYPES, seen.record_type)], 1);
        if seen.dnssec_ok {
            add(&zone.dnssec_ok, 1);
        }
        let micros = u64::try_from(seen.duration.as_micros()).unwrap_or(u64::MAX);
        zone.durations.observe(&DURATIONS, micros);
        let size = |size| u64::try_from(size).unwrap_or(u64::MAX);
        zone.request_sizes[transport].observe(&SIZES, size(seen.request_size));
        zone.response_sizes[transport].observe(&SIZES, size(seen.response_size));
        let responses = &zone.responses[seen.origin as usize];
        add(&responses[place(&CODES, seen.code)], 1);
    }

    /// Returns the number of responses of the zone, and the sum of their bytes over TCP.
    #[cfg(test)]
    pub(crate) fn of_zone_over_tcp(&self) -> (u64, u64) {
        let zone = self.zone(ZoneLabel::Cluster);
        let (mut counts, mut sum) = ([0; SIZES.len() + 1], 0);
        zone.response_sizes[1].add_to(&mut counts, &mut sum);
        (counts.iter().sum(), sum)
    }

    /// Returns the counters of a zone.
    pub(super) fn zone(&self, zone: ZoneLabel) -> &ZoneCounters {
        let [cluster, root, dropped] = &self.zones;
        match zone {
            ZoneLabel::Cluster => cluster,
            ZoneLabel::Root => root,
            ZoneLabel::Dropped => dropped,
        }
    }
}

fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_counts_once_in_each_metric() {
        let counters = Counters::default();
        counters.record(&Observation {
            transport: Transport::Tcp,
            is_ipv6: true,
            zone: ZoneLabel::Root,
            origin: Origin::Cache,
            record_type: 28,
            dnssec_ok: true,
            code: 3,
            request_size: 40,
            response_size: 512,
            duration: Duration::from_micros(300),
        });
        let zone = counters.zone(ZoneLabel::Root);
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!(value(&zone.requests[1][1][1]), 1);
        assert_eq!(value(&zone.dnssec_ok), 1);
        assert_eq!(value(&zone.responses[2][1]), 1);
        let (mut counts, mut sum) = ([0; DURATIONS.len() + 1], 0);
        zone.durations.add_to(&mut counts, &mut sum);
        assert_eq!((counts[0], counts[1], sum), (0, 1, 300));
        let (mut counts, mut sum) = ([0; SIZES.len() + 1], 0);
        zone.response_sizes[1].add_to(&mut counts, &mut sum);
        assert_eq!((counts[6], sum), (1, 512));
        let other = counters.zone(ZoneLabel::Cluster);
        assert_eq!(value(&other.requests[1][1][1]), 0);
    }
}
