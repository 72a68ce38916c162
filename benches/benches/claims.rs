//! Figures of planning and rendering Services with many addresses, in each mode.
//!
//! Needs no kernel. Measures processor time of the thread, on which other processes
//! have little influence.

use std::error::Error;
use std::net::Ipv4Addr;
use std::process::ExitCode;

use benches::figure::{Figures, conclude};
use benches::time::Time;
use proxy_core::{Config, Event, Family, Mode};
use testkit::generate::ServiceBuilder;
use vipline_service_model::api;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Number of Services, and number of external IPs per Service.
const SERVICES: (u32, u32) = (5_000, 100);

/// Number of external IPs of a Service of 1.5 MB, the limit of the API.
const MOST_ADDRESSES: u32 = 120_000;

/// Number of external IPs of the Service for comparison.
const FEW_ADDRESSES: u32 = 1_000;

fn main() -> ExitCode {
    conclude(figures())
}

fn figures() -> Outcome<usize> {
    let mut figures = Figures::new()?;
    for &mode in Mode::BUILT_IN {
        let (count, addresses) = SERVICES;
        let size = format!("{count} x {addresses}");
        let contested = rendered(mode, services(count, addresses, Claims::Contested))?;
        let distinct = rendered(mode, services(count, addresses, Claims::Distinct))?;
        let measure = format!("{mode}: contested IPs rendered");
        figures.push(&measure, &size, (contested, "s"), 3.0)?;
        figures.push(&measure, &size, (contested / distinct, "x distinct"), 2.0)?;
        let measure = format!("{mode}: external IPs rendered");
        figures.push(&measure, &size, (distinct, "s"), None)?;

        let per_address = |addresses: u32| -> Outcome<f64> {
            let of_one = || rendered(mode, services(1, addresses, Claims::Distinct));
            let quickest = of_one()?.min(of_one()?).min(of_one()?);
            Ok(quickest / f64::from(addresses))
        };
        let (most, few) = (per_address(MOST_ADDRESSES)?, per_address(FEW_ADDRESSES)?);
        let size = format!("1 x {MOST_ADDRESSES}");
        figures.push(&measure, &size, (most * 1e6, "us per IP"), None)?;
        figures.push(&measure, &size, (most / few, "x that of 1 x 1k"), 3.0)?;
    }
    Ok(figures.finish("claims")?)
}

/// Whether Services have the same external IPs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Claims {
    Contested,
    Distinct,
}

/// Returns the events of Services with one endpoint and some external IPs each.
fn services(count: u32, addresses: u32, claims: Claims) -> Vec<Event> {
    let events = (0..count).flat_map(|number| {
        let builder = ServiceBuilder::new(format!("web-{number}"))
            .cluster_ip(Ipv4Addr::from(0x0a60_0000 + number).into())
            .port(api::TransportProtocol::Tcp, 80, 8080)
            .endpoint([10, 1, 0, 1].into(), "node-2");
        let mut service = builder.service();
        let first = match claims {
            Claims::Contested => 0,
            Claims::Distinct => number * addresses,
        };
        let texts = (first..first + addresses).map(|host| {
            let address = Ipv4Addr::from(0x0b00_0000 + host);
            address.to_string()
        });
        service.spec.external_ips = texts.collect();
        let slices = builder.slices().into_iter().map(Event::from);
        [Event::from(service)].into_iter().chain(slices)
    });
    events.collect()
}

/// Returns the processor time from the events to the rendered plan, in seconds.
fn rendered(mode: Mode, events: Vec<Event>) -> Outcome<f64> {
    let mut engine = Config::default()
        .with_mode(mode)
        .with_families(vec![Family::V4])
        .plan_only()?;
    let (time, text) = Time::of(|| {
        for event in events {
            engine.apply(event);
        }
        engine.apply(Event::Synced);
        engine.desired()
    });
    if text.is_empty() {
        return Err("nothing is planned".into());
    }
    Ok(time.processor.as_secs_f64())
}
