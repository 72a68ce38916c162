//! Cost of Services with session affinity in mode nftables, compared with the same Services
//! without it, with limits.
//!
//! Each size has a proxy for both kinds, and their measurements alternate. A figure is
//! processor time of the syncs, of which the kernel uses the largest part. Runs in network
//! namespaces, and needs root. The arguments are the numbers of Services, by default 2,500,
//! 5,000 and 10,000.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use benches::cluster::Size;
use benches::figure::{Figures, conclude, ms, percentile};
use benches::proxy::Proxy;
use proxy_core::Event;
use testkit::generate::{ServiceBuilder, Stack, cluster};
use testkit::netns::Netns;
use vipline_service_model::api;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Numbers of Services.
const SIZES: [usize; 3] = [2_500, 5_000, 10_000];
/// Number of endpoints of a Service.
const ENDPOINTS: usize = 2;
/// Number of Services that are added and removed one by one.
const CHANGES: usize = 100;
/// Limit of the ratio of loads and removals to those without session affinity.
const LIMIT: f64 = 4.0;
/// Limit of the time in which one Service is added or removed, in ms.
const CHANGE_LIMIT: f64 = 2.0;

fn main() -> ExitCode {
    conclude(figures())
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let mut figures = Figures::new()?;
    let sizes = env::args().filter_map(|argument| argument.parse().ok());
    let mut sizes: Vec<usize> = sizes.collect();
    if sizes.is_empty() {
        sizes.extend(SIZES);
    }
    for services in sizes {
        let [plain, sticky] = [false, true].map(|is_sticky| Cell::measure(services, is_sticky));
        report(&mut figures, services, &plain?, &sticky?)?;
    }
    Ok(figures.finish("sticky")?)
}

/// Processor times with one kind of Services.
struct Times {
    /// All Services are added with one sync.
    load: Duration,
    /// One more Service is added, and removed again: median.
    changes: [Duration; 2],
    /// All Services except one are removed with one sync.
    removal: Duration,
}

/// A proxy in a separate namespace.
struct Cell {
    proxy: Proxy,
    _netns: Netns,
}

impl Cell {
    fn measure(services: usize, is_sticky: bool) -> Outcome<Times> {
        let mut plans: Vec<_> = cluster(services + CHANGES, ENDPOINTS, Stack::V4).collect();
        let more = plans.split_off(services);
        let netns = Netns::new()?;
        let events = plans.iter().flat_map(|plan| added(plan, is_sticky));
        let proxy = netns.run(|| Proxy::start(events))?;
        let mut cell = Self {
            proxy,
            _netns: netns,
        };
        let load = cell.change(vec![Event::Synced]);
        let changes = more.iter().map(|plan| {
            let add = cell.change(added(plan, is_sticky));
            [add, cell.change(removed(plan))]
        });
        let changes: Vec<_> = changes.collect();
        let changes = [0, 1].map(|kind| {
            let times: Vec<_> = changes.iter().map(|both| both[kind]).collect();
            percentile(&times, 50)
        });
        let removal = cell.change(plans[1..].iter().flat_map(removed).collect());
        Ok(Times {
            load,
            changes,
            removal,
        })
    }

    /// Applies events, syncs, and returns the processor time.
    fn change(&mut self, events: Vec<Event>) -> Duration {
        self.proxy.change_all(events).0.processor
    }
}

/// Returns the events that add a Service.
fn added(plan: &ServiceBuilder, is_sticky: bool) -> Vec<Event> {
    let mut service = plan.service();
    if is_sticky {
        service.spec.session_affinity = api::Affinity::ClientIp;
    }
    let slices = plan.slices().into_iter().map(Event::from);
    [Event::from(service)].into_iter().chain(slices).collect()
}

/// Returns the events that remove a Service.
fn removed(plan: &ServiceBuilder) -> Vec<Event> {
    let slices = plan.slices().into_iter();
    let slices = slices.map(|slice| Event::SliceDeleted(slice.metadata.object_name()));
    let service = Event::ServiceDeleted(plan.service().metadata.object_name());
    [service].into_iter().chain(slices).collect()
}

/// Adds the figures of a size.
fn report(figures: &mut Figures, services: usize, plain: &Times, sticky: &Times) -> Outcome<()> {
    let size = Size::new(services, ENDPOINTS);
    for (name, plain, sticky) in [
        ("sticky: full load", plain.load, sticky.load),
        (
            "sticky: all except one removed",
            plain.removal,
            sticky.removal,
        ),
    ] {
        let ratio = sticky.as_secs_f64() / plain.as_secs_f64();
        figures.push(name, size, (ratio, "x plain"), LIMIT)?;
        figures.push(name, size, (ms(sticky), "ms processor"), None)?;
        figures.push(name, size, (ms(plain), "ms processor, plain"), None)?;
    }
    let names = ["sticky: one more", "sticky: one less"];
    for (place, name) in names.into_iter().enumerate() {
        let [plain, sticky] = [plain, sticky].map(|times| ms(times.changes[place]));
        figures.push(name, size, (sticky, "ms processor"), CHANGE_LIMIT)?;
        figures.push(name, size, (plain, "ms processor, plain"), None)?;
    }
    Ok(())
}
