//! Figures of session affinity in mode nftables, with limits.
//!
//! Runs in network namespaces, and needs root.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use benches::cluster::Size;
use benches::figure::{Figures, conclude, ms, percentile};
use benches::proxy::Proxy;
use proxy_core::Event;
use testkit::generate::{Stack, cluster};
use testkit::netns::Netns;
use vipline_service_model::api;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Number of Services whose timeouts change.
const SERVICES: u32 = 500;
/// Number of earlier timeouts per Service.
const TIMEOUTS: u32 = 5_000;
/// Timeout of a Service that never changes it, in seconds.
const USUAL: u32 = 10_800;
/// Number of measured syncs per proxy.
const ROUNDS: u32 = 100;

fn main() -> ExitCode {
    conclude(figures())
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let mut figures = Figures::new()?;
    after_timeouts(&mut figures)?;
    Ok(figures.finish("affinity")?)
}

/// A proxy in a separate namespace.
struct Cell {
    proxy: Proxy,
    _netns: Netns,
}

impl Cell {
    /// Loads Services with session affinity.
    fn loaded(count: u32) -> Outcome<Self> {
        let netns = Netns::new()?;
        let events = services(count, |_| USUAL);
        let mut proxy = netns.run(|| Proxy::start(events))?;
        proxy.change(Event::Synced);
        Ok(Self {
            proxy,
            _netns: netns,
        })
    }

    /// Changes the timeout of one Service, and returns the time of the sync.
    fn change(&mut self, round: u32) -> Duration {
        let events = services(1, |_| USUAL + round % 2);
        self.proxy.change_all(events).0.wall
    }
}

/// Returns the events of Services with session affinity and their timeouts.
fn services(count: u32, timeout: impl Fn(u32) -> u32) -> impl Iterator<Item = Event> {
    let plans = (0..).zip(cluster(count as usize, 3, Stack::V4));
    plans.flat_map(move |(number, plan)| {
        let mut service = plan.service();
        service.spec.session_affinity = api::Affinity::ClientIp;
        service.spec.session_affinity_config = Some(api::SessionAffinityConfig {
            client_ip: Some(api::ClientIpConfig {
                timeout_seconds: Some(timeout(number)),
            }),
        });
        let slices = plan.slices().into_iter().map(Event::from);
        [Event::from(service)].into_iter().chain(slices)
    })
}

/// Compares syncs of a proxy after many changes of timeouts with syncs of a proxy
/// without changes. Measurements alternate.
fn after_timeouts(figures: &mut Figures) -> Outcome<()> {
    let mut fresh = Cell::loaded(SERVICES)?;
    let mut used = Cell::loaded(SERVICES)?;
    for round in 0..TIMEOUTS / SERVICES {
        let events = services(SERVICES, |number| 1 + round * SERVICES + number);
        used.proxy.change_all(events);
    }
    used.proxy.change_all(services(SERVICES, |_| USUAL));
    used.proxy.expire();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        before.push(fresh.change(round));
        after.push(used.change(round));
    }
    let [before, after] = [&before, &after].map(|times| percentile(times, 50));
    let name = "nftables: sync after 5,000 timeouts";
    let size = Size::new(SERVICES as usize, 3);
    let ratio = after.as_secs_f64() / before.as_secs_f64();
    figures.push(name, size, (ratio, "x that before"), 1.2)?;
    figures.push(name, size, (ms(after), "ms"), None)?;
    Ok(())
}
