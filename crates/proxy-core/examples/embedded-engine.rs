//! A proxy whose Services come from a registry of the caller: no API server, no manifests.
//!
//! Run it as root with `cargo run --example embedded-engine`. The program works in a network
//! namespace of its own, so the rules of the host stay as they are.
#![allow(clippy::print_stdout, reason = "the output is the purpose")]

use std::error::Error;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use proxy_core::service_model::api;
use proxy_core::{Config, Engine, Event, Family, Report};

fn main() -> Result<(), Box<dyn Error>> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let mut engine = Config::new("node-1").with_families([Family::V4]).open()?;
    let instances = ["10.244.1.11", "10.244.1.12"];
    apply(&mut engine, "web", "10.96.0.10", &instances);
    apply(&mut engine, "api", "10.96.0.20", &["10.244.1.21"]);
    engine.apply(Event::Synced);
    // The rules come first and do not depend on Services, which are elements.
    let script = engine.difference()?.script;
    let elements = script.find("add element").unwrap_or_default();
    print!("{}", &script[elements..]);
    println!("{}\n", sync(&mut engine)?);
    // An endpoint of web is replaced. Only its elements change.
    let instances = ["10.244.1.11", "10.244.1.13"];
    apply(&mut engine, "web", "10.96.0.10", &instances);
    print!("{}", engine.difference()?);
    println!("{}", sync(&mut engine)?);
    Ok(())
}

/// Polls until the kernel has the rules. A proxy that goes on passes the time of a clock, and
/// waits for a change, for a descriptor of `fds`, or for the deadline.
fn sync(engine: &mut Engine) -> Result<Report, Box<dyn Error>> {
    let mut now = Duration::ZERO;
    loop {
        if let Some(report) = engine.poll(now) {
            return Ok(report.into_result()?);
        }
        now = engine.next_deadline().ok_or("no sync is due")?;
    }
}

/// Tells the engine the address of a service and its instances, new or changed.
fn apply(engine: &mut Engine, name: &str, address: &str, instances: &[&str]) {
    let mut service = api::Service {
        metadata: api::ObjectMeta::named("default", name),
        ..api::Service::default()
    };
    service.spec.cluster_ip = address.to_owned();
    service.spec.ports = vec![api::ServicePortSpec::tcp(80)];
    engine.apply(service.into());
    let mut slice = api::EndpointSlice::of_service("default", name);
    slice.ports = vec![api::EndpointPort::tcp(8080)];
    let instances = instances.iter().copied();
    slice.endpoints = instances.map(api::SliceEndpoint::at).collect();
    engine.apply(slice.into());
}
