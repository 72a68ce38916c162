//! Removal of on-demand chains and sets after the last Service that used them.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use proxy_core::backend::nftables::{self, Planner};
use proxy_core::{Engine, Event, Family, Intervals, Report, Trigger};
use testkit::generate::ServiceBuilder;
use testkit::netns::Netns;
use vipline_netlink::Counters;
use vipline_nftables::{Error, Object};
use vipline_reconcile::{Edit, Rejection, Target};
use vipline_service_model::api;

use crate::fixtures::{Kernels, apply, config, with_endpoints};

/// Number of Services with session affinity.
const SERVICES: u32 = 100;
/// Number of on-demand chains and sets that the Services of a shard share: `clients-K`,
/// `recall-K` and `forget-K`.
const PER_SHARD: usize = 3;
/// Number of on-demand chains of a Service with a timeout of its own: `learn-T-K`.
const PER_TIMEOUT: usize = 1;
/// Maximum number of unused chains and sets.
const MAX_UNUSED: usize = 64;
/// Maximum time for which an unused chain or set stays.
const MINUTE: Duration = Duration::from_secs(60);
/// Timeout of a Service that never changes it, in seconds.
const USUAL: u32 = 10_800;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The IPv4 nf_tables kernel with message counters. Clones share the kernel.
#[derive(Clone)]
struct Counted(Arc<Mutex<nftables::Kernel>>);

impl Counted {
    fn open() -> Self {
        let kernel = nftables::Kernel::open(Family::V4).expect("the kernel has nf_tables");
        Self(Arc::new(Mutex::new(kernel)))
    }

    fn get(&self) -> MutexGuard<'_, nftables::Kernel> {
        self.0.lock().expect("no test continues after a panic")
    }
}

impl Target for Counted {
    type Object = Object;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<Object>, Error> {
        self.get().dump()
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        self.get().commit(edits)
    }
}

/// Datagrams sent, messages and bytes in them, and datagrams received.
type Cost = [u64; 4];

/// Returns the number of on-demand chains and sets of Services with session affinity.
fn on_demand<'a>(objects: impl IntoIterator<Item = &'a Object>) -> usize {
    let names = objects.into_iter().filter_map(|object| match object {
        Object::Chain(chain) => Some(chain.name.as_str()),
        Object::Set(set) => Some(set.name.as_str()),
        _ => None,
    });
    let prefixes = ["learn-", "recall-", "forget-", "clients-"];
    let is_on_demand = |name: &&str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    names.filter(is_on_demand).count()
}

/// An IPv4-only engine in the network namespace of its thread.
struct Proxy {
    engine: Engine,
    kernel: Counted,
    now: Duration,
}

impl Proxy {
    fn start(events: impl IntoIterator<Item = Event>) -> Self {
        let intervals = Intervals {
            max: Duration::MAX,
            ..Intervals::default()
        };
        let config = config()
            .with_intervals(intervals)
            .with_families(vec![Family::V4]);
        let kernel = Counted::open();
        let engine = Engine::with_kernels(config.engine, Planner, |_| kernel.clone());
        let mut proxy = Self {
            engine,
            kernel,
            now: Duration::ZERO,
        };
        apply(&mut proxy.engine, events);
        proxy.change([Event::Synced]);
        proxy
    }

    /// Applies events and syncs after the pause.
    fn change(&mut self, events: impl IntoIterator<Item = Event>) -> Cost {
        assert!(self.engine.poll(self.now).is_none());
        self.now += secs(5);
        apply(&mut self.engine, events);
        let before = self.kernel.get().counters();
        let report = self.engine.poll(self.now).expect("a change is due");
        self.check(&report);
        let after = self.kernel.get().counters();
        let counts: [fn(&Counters) -> u64; 4] = [
            |it| it.sends,
            |it| it.messages,
            |it| it.bytes_sent,
            |it| it.receives,
        ];
        counts.map(|count| count(&after) - count(&before))
    }

    fn check(&self, report: &Report) {
        assert!(report.is_success(), "{report}");
        assert_eq!(self.engine.rejected_count(Family::V4), 0, "{report}");
    }

    /// Returns the number of on-demand chains and sets in the kernel.
    fn installed(&self) -> usize {
        on_demand(&self.kernel.clone().dump().expect("a dump"))
    }

    /// Polls at each deadline of the next minute.
    fn wait(&mut self) {
        let end = self.now + MINUTE;
        for _ in 0..MAX_UNUSED {
            let deadline = self.engine.next_deadline().filter(|at| *at <= end);
            let Some(deadline) = deadline else {
                self.now = end;
                return;
            };
            self.now = self.now.max(deadline);
            if let Some(report) = self.engine.poll(self.now) {
                self.check(&report);
            }
        }
        panic!("the deadlines do not end");
    }

    /// Replaces the endpoints of a Service, restores them, and dumps the table.
    ///
    /// Returns the cost of both changes and the number of objects.
    fn cost(&mut self) -> ([Cost; 2], usize) {
        let other = ["10.1.0.1", "10.1.0.3"];
        let there = self.change(service(7, Some(USUAL), &other));
        let back = self.change(service(7, Some(USUAL), &ENDPOINTS));
        let objects = self.kernel.dump().expect("a dump").len();
        ([there, back], objects)
    }
}

const ENDPOINTS: [&str; 2] = ["10.1.0.1", "10.1.0.2"];

/// Returns the events of a Service. With a timeout, the Service has session affinity.
fn service(number: u32, timeout: Option<u32>, endpoints: &[&str]) -> Vec<Event> {
    let address = IpAddr::from([10, 96, 1, u8::try_from(number).expect("few Services")]);
    let builder = ServiceBuilder::new(format!("sticky-{number}")).cluster_ip(address);
    let builder = with_endpoints(
        builder.port(api::TransportProtocol::Tcp, 80, 8080),
        endpoints,
    );
    let mut service = builder.service();
    if timeout.is_some() {
        service.spec.session_affinity = api::Affinity::ClientIp;
        service.spec.session_affinity_config = Some(api::SessionAffinityConfig {
            client_ip: Some(api::ClientIpConfig {
                timeout_seconds: timeout,
            }),
        });
    }
    let slices = builder.slices().into_iter().map(Event::from);
    [Event::from(service)].into_iter().chain(slices).collect()
}

/// Returns the events of all Services. Each Service has a different timeout in each
/// round.
fn with_timeouts(round: u32) -> impl Iterator<Item = Event> {
    let timeout = move |number| 1 + round * SERVICES + number;
    (0..SERVICES).flat_map(move |number| service(number, Some(timeout(number)), &ENDPOINTS))
}

/// Returns the events of all Services with the same timeout, or without affinity.
fn with_timeout(timeout: Option<u32>) -> impl Iterator<Item = Event> {
    (0..SERVICES).flat_map(move |number| service(number, timeout, &ENDPOINTS))
}

#[test]
fn unused_chains_and_sets_are_bounded_and_removed_within_a_minute() {
    Netns::new().expect("a network namespace").run(|| {
        let mut proxy = Proxy::start(with_timeouts(0));
        let used = proxy.installed();
        let of_shards = used - SERVICES as usize * PER_TIMEOUT;
        assert!((PER_SHARD..=64 * PER_SHARD).contains(&of_shards), "{used}");
        assert_eq!(of_shards % PER_SHARD, 0, "{used}");
        for round in 1..=4 {
            proxy.change(with_timeouts(round));
            assert_eq!(proxy.installed(), used + MAX_UNUSED);
        }
        proxy.wait();
        assert_eq!(proxy.installed(), used);
        proxy.change(with_timeout(None));
        assert_eq!(proxy.installed(), MAX_UNUSED);
        proxy.wait();
        assert_eq!(proxy.installed(), 0);
    });
}

#[test]
fn a_sync_costs_the_same_after_five_thousand_timeouts() {
    const TIMEOUTS: u32 = 5_000;
    Netns::new().expect("a network namespace").run(|| {
        let mut proxy = Proxy::start(with_timeout(Some(USUAL)));
        let before = proxy.cost();
        for round in 0..TIMEOUTS / SERVICES {
            proxy.change(with_timeouts(round));
        }
        proxy.change(with_timeout(Some(USUAL)));
        proxy.wait();
        assert_eq!(proxy.cost(), before);
    });
}

#[test]
fn unused_chains_are_removed_within_a_minute_while_changes_wait_longer() {
    let kernels = Kernels::default();
    let intervals = Intervals {
        min: secs(300),
        retry: secs(30),
        max: Duration::MAX,
    };
    let config = config().with_intervals(intervals);
    let installed = || on_demand(kernels.v4.get().memory.objects());
    let mut engine = kernels.engine(config);
    apply(&mut engine, service(1, Some(USUAL), &ENDPOINTS));
    engine.apply(Event::Synced);
    assert!(engine.poll(secs(1_000)).is_some());
    assert!(engine.poll(secs(1_000)).is_none());
    apply(&mut engine, service(1, None, &ENDPOINTS));
    let report = engine.poll(secs(1_300)).expect("a change is due");
    assert!(report.is_success() && engine.poll(secs(1_300)).is_none());
    assert_eq!(installed(), PER_SHARD + PER_TIMEOUT);

    apply(&mut engine, service(1, None, &["10.1.0.9"]));
    let deadline = engine.next_deadline().expect("unused chains");
    assert!(deadline <= secs(1_300) + MINUTE, "{deadline:?}");
    assert!(engine.poll(deadline - secs(1)).is_none());
    let report = engine.poll(deadline).expect("unused chains are removed");
    assert_eq!((report.trigger, report.ports), (Trigger::Unused, 0));
    let edits: Vec<_> = report.families.iter().map(|done| &done.outcome).collect();
    let edits = edits.iter().filter_map(|it| Some(it.as_ref().ok()?.edits));
    assert_eq!(edits.collect::<Vec<_>>(), [PER_SHARD + PER_TIMEOUT, 0]);
    assert_eq!(installed(), 0);
    assert!(engine.is_queued(), "the change still waits");

    assert_eq!(engine.next_deadline(), Some(secs(1_600)), "the pause");
    assert!(engine.poll(secs(1_599)).is_none());
    let report = engine.poll(secs(1_600)).expect("the change is due");
    assert_eq!((report.trigger, report.ports), (Trigger::Change, 1));
}
