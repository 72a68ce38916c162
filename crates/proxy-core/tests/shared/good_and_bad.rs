//! Services `good` and `bad`, and an engine with a short minimum interval.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use proxy_core::{Config, Event};
use testkit::generate::ServiceBuilder;
use vipline_service_model::api;

use crate::fixtures::{self, MemoryKernels, ModePlanner, apply};

/// A pause longer than the minimum interval between syncs.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);

/// Returns a configuration with a short minimum interval between syncs.
pub(crate) fn config() -> Config {
    let mut config = fixtures::config();
    config.engine.intervals.min = PAUSE / 2;
    config.iptables.nfacct = false;
    config
}

pub(crate) fn service(name: &str, last: u8, endpoints: u8) -> ServiceBuilder {
    let address = format!("10.96.0.{last}").parse().unwrap();
    let builder =
        ServiceBuilder::new(name)
            .cluster_ip(address)
            .port(api::TransportProtocol::Tcp, 80, 8080);
    (1..=endpoints).fold(builder, |builder, number| {
        let address = format!("10.1.{last}.{number}").parse().unwrap();
        builder.endpoint(address, fixtures::OTHER_NODE)
    })
}

/// Returns the IPv4 objects that a mode plans for events.
pub(crate) fn plan<P>(events: impl IntoIterator<Item = Event>) -> Vec<P::Object>
where
    P: ModePlanner,
    P::Object: Send + Sync,
{
    let kernels = MemoryKernels::<P::Object>::default();
    let mut engine = kernels.engine_of::<P>(config());
    apply(&mut engine, events);
    engine.apply(Event::Synced);
    assert!(engine.poll(Duration::ZERO).unwrap().is_success());
    let kernel = kernels.v4.get();
    kernel.memory.objects().cloned().collect()
}
