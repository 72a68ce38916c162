//! The metrics, with CoreDNS' names and labels.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use daemon::metrics::{Page, Type, add_process, float};

use super::counters::{
    Buckets, CODES, Counters, DURATIONS, Origin, SIZES, TYPES, Transport, ZoneCounters, ZoneLabel,
};
use super::{Telemetry, seconds};
use crate::forward::{self, AnswerType, Forwarder};

/// Labels of one sample.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Counters of each listener, by the label `server`.
type Servers<'a> = BTreeMap<&'a str, Vec<&'a Counters>>;

impl Telemetry {
    /// Returns all metrics in Prometheus' text format.
    pub(super) fn metrics(&self) -> String {
        let mut page = Page::default();
        let zone = self.zone.read().unwrap_or_else(PoisonError::into_inner);
        let name = zone.options().zone.to_string().to_ascii_lowercase();
        let serial = zone.serial();
        let synced = zone.is_synced();
        drop(zone);
        let listeners = self.listeners();
        let mut servers = Servers::new();
        for listener in listeners.iter() {
            let counters = servers.entry(&listener.name).or_default();
            counters.push(&listener.counters);
        }
        add_queries(&mut page, &servers, &name);
        self.add_state(&mut page, serial, synced);
        if let Some(forwarder) = &self.forwarder {
            add_forwarder(&mut page, &servers, forwarder);
        }
        add_process(&mut page);
        page.finish()
    }

    fn add_state(&self, page: &mut Page, serial: u32, synced: bool) {
        let value = |counter: &AtomicU64| float(counter.load(Ordering::Relaxed));
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        page.add(
            "cluster_dns_build_info",
            Type::Gauge,
            "Version of the program; the value is 1.",
        )
        .value(&version, 1.0);
        for (name, kind, help, value) in [
            (
                "cluster_dns_zone_serial",
                Type::Gauge,
                "Serial number of the zone, which rises with each change.",
                float(serial),
            ),
            (
                "cluster_dns_zone_synced",
                Type::Gauge,
                "Whether the first list of objects is complete.",
                f64::from(u8::from(synced)),
            ),
            (
                "cluster_dns_source_events_total",
                Type::Counter,
                "Changes of objects that were applied to the zone.",
                value(&self.source.events),
            ),
            (
                "cluster_dns_source_problems_total",
                Type::Counter,
                "Objects and manifests that cannot be read or are invalid.",
                value(&self.source.problems),
            ),
            (
                "cluster_dns_tcp_evicted_connections_total",
                Type::Counter,
                "TCP connections closed in favor of newer ones.",
                value(&self.evicted_connections),
            ),
            (
                "cluster_dns_overload_total",
                Type::Counter,
                "UDP queries answered with SERVFAIL because too many queries wait.",
                value(&self.overload),
            ),
        ] {
            page.add(name, kind, help).value(&[], value);
        }
        let mut staleness = page.add(
            "cluster_dns_source_staleness_seconds",
            Type::Gauge,
            "Time since the watch of a kind of object was last in sync, in seconds; 0 if it is in \
             sync.",
        );
        for (kind, time) in self.staleness(Instant::now()) {
            staleness.value(&[("kind", &kind.to_string())], time.as_secs_f64());
        }
    }
}

/// Calls `each` for every server and zone with queries.
fn for_each_zone<'a>(
    servers: &'a Servers<'a>,
    cluster: &'a str,
    mut each: impl FnMut(Labels<'a>, &[&ZoneCounters]),
) {
    for (server, counters) in servers {
        for (zone, name) in [
            (ZoneLabel::Cluster, cluster),
            (ZoneLabel::Root, "."),
            (ZoneLabel::Dropped, "dropped"),
        ] {
            let zones: Vec<_> = counters.iter().map(|each| each.zone(zone)).collect();
            each(
                vec![("server", server), ("view", ""), ("zone", name)],
                &zones,
            );
        }
    }
}

fn sum<'a>(counters: impl Iterator<Item = &'a AtomicU64>) -> u64 {
    counters.map(|each| each.load(Ordering::Relaxed)).sum()
}

fn add_queries(page: &mut Page, servers: &Servers<'_>, cluster: &str) {
    add_requests(page, servers, cluster);
    add_responses(page, servers, cluster);
    let mut metric = page.add(
        "coredns_dns_do_requests_total",
        Type::Counter,
        "Counter of DNS requests with DO bit set per zone.",
    );
    for_each_zone(servers, cluster, |labels, zones| {
        let value = sum(zones.iter().map(|zone| &zone.dnssec_ok));
        if value > 0 {
            metric.value(&labels, float(value));
        }
    });
    let mut metric = page.add(
        "coredns_dns_request_duration_seconds",
        Type::Histogram,
        "Histogram of the time (in seconds) each request took per zone.",
    );
    for_each_zone(servers, cluster, |labels, zones| {
        let histograms: Vec<_> = zones.iter().map(|zone| &zone.durations).collect();
        let (buckets, sum) = cumulative(&histograms, &DURATIONS, seconds);
        if is_used(&buckets) {
            metric.buckets(&labels, buckets, seconds(sum));
        }
    });
    for (name, help, is_request) in [
        (
            "coredns_dns_request_size_bytes",
            "Size of the request in bytes per zone and protocol.",
            true,
        ),
        (
            "coredns_dns_response_size_bytes",
            "Size of the returned response in bytes.",
            false,
        ),
    ] {
        let mut metric = page.add(name, Type::Histogram, help);
        for_each_zone(servers, cluster, |labels, zones| {
            for (place, transport) in Transport::ALL.into_iter().enumerate() {
                let histograms: Vec<_> = zones
                    .iter()
                    .map(|zone| match is_request {
                        true => &zone.request_sizes[place],
                        false => &zone.response_sizes[place],
                    })
                    .collect();
                let (buckets, sum) = cumulative(&histograms, &SIZES, float);
                if is_used(&buckets) {
                    let labels = [&labels[..], &[("proto", transport.name())]].concat();
                    metric.buckets(&labels, buckets, float(sum));
                }
            }
        });
    }
}

fn add_requests(page: &mut Page, servers: &Servers<'_>, cluster: &str) {
    let mut metric = page.add(
        "coredns_dns_requests_total",
        Type::Counter,
        "Counter of DNS requests made per zone, protocol and family.",
    );
    let names = TYPES.iter().map(|(_, name)| *name).chain(["other"]);
    let names: Vec<&str> = names.collect();
    for_each_zone(servers, cluster, |labels, zones| {
        for (place, transport) in Transport::ALL.into_iter().enumerate() {
            for (family, family_name) in ["1", "2"].into_iter().enumerate() {
                for (number, name) in names.iter().enumerate() {
                    let counters = zones.iter();
                    let value = sum(counters.map(|zone| &zone.requests[place][family][number]));
                    if value > 0 {
                        let more = [
                            ("family", family_name),
                            ("proto", transport.name()),
                            ("type", *name),
                        ];
                        metric.value(&[&labels[..], &more].concat(), float(value));
                    }
                }
            }
        }
    });
}

fn add_responses(page: &mut Page, servers: &Servers<'_>, cluster: &str) {
    let mut metric = page.add(
        "coredns_dns_responses_total",
        Type::Counter,
        "Counter of response status codes.",
    );
    let codes = CODES.iter().map(|(_, name)| *name).chain(["other"]);
    let codes: Vec<&str> = codes.collect();
    for_each_zone(servers, cluster, |labels, zones| {
        for (place, origin) in Origin::ALL.into_iter().enumerate() {
            for (number, code) in codes.iter().enumerate() {
                let value = sum(zones.iter().map(|zone| &zone.responses[place][number]));
                if value > 0 {
                    let more = [("plugin", origin.name()), ("rcode", *code)];
                    metric.value(&[&labels[..], &more].concat(), float(value));
                }
            }
        }
    });
}

/// Returns bounds with cumulative counts, and the sum of all values.
fn cumulative<const N: usize>(
    histograms: &[&Buckets<N>],
    bounds: &[u64],
    convert: impl Fn(u64) -> f64,
) -> (Vec<(f64, u64)>, u64) {
    let (mut counts, mut sum) = ([0; N], 0);
    for histogram in histograms {
        histogram.add_to(&mut counts, &mut sum);
    }
    let bounds = bounds.iter().map(|&bound| convert(bound));
    let mut total = 0;
    let buckets = bounds.chain([f64::INFINITY]).zip(counts);
    let buckets = buckets.map(|(bound, count)| {
        total += count;
        (bound, total)
    });
    (buckets.collect(), sum)
}

fn is_used(buckets: &[(f64, u64)]) -> bool {
    buckets.last().is_some_and(|(_, count)| *count > 0)
}

fn add_forwarder(page: &mut Page, servers: &Servers<'_>, forwarder: &Forwarder) {
    // The cache and the upstreams serve all listeners.
    let server = servers.keys().next().copied().unwrap_or_default();
    add_cache(page, server, forwarder);
    let counters = forwarder.counters();
    for (name, help, counter) in [
        (
            "coredns_forward_healthcheck_broken_total",
            "Counter of the number of complete failures of the healthchecks.",
            &counters.healthcheck_broken,
        ),
        (
            "coredns_forward_max_concurrent_rejects_total",
            "Counter of the number of queries rejected because the concurrent queries were at \
             maximum.",
            &counters.max_concurrent_rejects,
        ),
        (
            "cluster_dns_forward_failures_total",
            "Queries that no upstream answered.",
            &counters.failures,
        ),
        (
            "cluster_dns_forward_shared_total",
            "Queries that shared the upstream query of another client.",
            &counters.shared,
        ),
    ] {
        page.add(name, Type::Counter, help)
            .value(&[], float(counter.get()));
    }
    page.add(
        "cluster_dns_forward_pending",
        Type::Gauge,
        "Upstream queries without a response.",
    )
    .value(&[], float(forwarder.pending()));
    page.add(
        "cluster_dns_forward_loops",
        Type::Gauge,
        "Upstreams that send the queries of this server back to it.",
    )
    .value(&[], float(forwarder.loops()));
    add_upstreams(page, forwarder);
}

fn add_cache(page: &mut Page, server: &str, forwarder: &Forwarder) {
    let counters = forwarder.counters();
    let zone = [("server", server), ("view", ""), ("zones", ".")];
    for (name, help, of) in [
        (
            "coredns_cache_hits_total",
            "The count of cache hits.",
            &counters.cache_hits,
        ),
        (
            "coredns_cache_evictions_total",
            "The count of cache evictions.",
            &counters.evictions,
        ),
    ] {
        let mut metric = page.add(name, Type::Counter, help);
        for (answer_type, name) in ANSWER_TYPES {
            let labels = [&zone[..1], &[("type", name)], &zone[1..]].concat();
            metric.value(&labels, float(of.of(answer_type).get()));
        }
    }
    let mut metric = page.add(
        "coredns_cache_entries",
        Type::Gauge,
        "The number of elements in the cache.",
    );
    for (answer_type, name) in ANSWER_TYPES {
        let labels = [&zone[..1], &[("type", name)], &zone[1..]].concat();
        metric.value(&labels, float(forwarder.entries(answer_type)));
    }
    let hits = [AnswerType::Success, AnswerType::Denial];
    let hits = hits.map(|each| counters.cache_hits.of(each).get());
    for (name, help, value) in [
        (
            "coredns_cache_misses_total",
            "The count of cache misses.",
            counters.cache_misses.get(),
        ),
        (
            "coredns_cache_requests_total",
            "The count of cache requests.",
            counters.cache_misses.get() + hits.iter().sum::<u64>(),
        ),
        (
            "coredns_cache_prefetch_total",
            "The number of times the cache has prefetched a cached item.",
            counters.prefetches.get(),
        ),
        (
            "coredns_cache_served_stale_total",
            "The number of requests served from stale cache entries.",
            counters.served_stale.get(),
        ),
    ] {
        page.add(name, Type::Counter, help)
            .value(&zone, float(value));
    }
}

const ANSWER_TYPES: [(AnswerType, &str); 2] = [
    (AnswerType::Denial, "denial"),
    (AnswerType::Success, "success"),
];

fn add_upstreams(page: &mut Page, forwarder: &Forwarder) {
    let upstreams = forwarder.upstreams();
    let named: Vec<_> = upstreams
        .iter()
        .map(|upstream| (upstream.address().to_string(), upstream.counters()))
        .collect();
    let mut metric = page.add(
        "coredns_proxy_request_duration_seconds",
        Type::Histogram,
        "Histogram of the time each request took.",
    );
    for (address, counters) in &named {
        for (place, histogram) in counters.durations.iter().enumerate() {
            if histogram.count() > 0 {
                let labels = [
                    ("proxy_name", "forward"),
                    ("rcode", forward::rcode_name(place)),
                    ("to", address),
                ];
                let bounds = forward::BUCKETS.iter().map(|&bound| seconds(bound));
                let bounds = bounds.chain([f64::INFINITY]);
                let sum = histogram.sum().as_secs_f64();
                metric.buckets(&labels, bounds.zip(histogram.cumulative()), sum);
            }
        }
    }
    let mut metric = page.add(
        "coredns_proxy_healthcheck_failures_total",
        Type::Counter,
        "Counter of the number of failed healthchecks.",
    );
    for (address, counters) in &named {
        let labels = [("proxy_name", "forward"), ("to", &**address)];
        metric.value(&labels, float(counters.healthcheck_failures.get()));
    }
    for (name, help, is_hit) in [
        (
            "coredns_proxy_conn_cache_hits_total",
            "Counter of connection cache hits per upstream and protocol.",
            true,
        ),
        (
            "coredns_proxy_conn_cache_misses_total",
            "Counter of connection cache misses per upstream and protocol.",
            false,
        ),
    ] {
        let mut metric = page.add(name, Type::Counter, help);
        for (address, counters) in &named {
            let of = match is_hit {
                true => &counters.connection_hits,
                false => &counters.connection_misses,
            };
            for (protocol, counter) in [("tcp", &of.tcp), ("udp", &of.udp)] {
                let labels = [
                    ("proto", protocol),
                    ("proxy_name", "forward"),
                    ("to", &**address),
                ];
                metric.value(&labels, float(counter.get()));
            }
        }
    }
}
