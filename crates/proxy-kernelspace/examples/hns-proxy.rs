//! A proxy of a Windows node: objects of Kubernetes on stdin, load balancers in HNS.
//!
//! ```sh
//! kubectl get services,endpointslices,nodes --all-namespaces --output json |
//!     cargo run -p proxy-kernelspace --example hns-proxy -- cbr0 node-1
//! ```
//!
//! The arguments are the names of the network and of the node. Load balancers of Services
//! that the list lacks are removed. On other systems than Windows the program uses HNS in
//! memory, and prints the load balancers that it would create.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "the output is the purpose"
)]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, io};

use proxy_engine::{Config, Engine, Event, Family, Report};
use proxy_kernelspace::{Hns, Planner, Settings};
use serde_json::Value;
use vipline_hcn::{Features, LoadBalancer, Query, Service};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [network, node] = &*arguments else {
        return Err("usage: hns-proxy NETWORK NODE < OBJECTS.json".into());
    };
    let objects = serde_json::from_reader(io::stdin())?;
    let (report, load_balancers) = run(service(network)?, network, node, objects)?;
    for load_balancer in load_balancers {
        println!("{}", serde_json::to_string(&load_balancer)?);
    }
    eprintln!("{report}");
    match rejections(&report) {
        rejected if rejected.is_empty() => Ok(()),
        rejected => Err(rejected.join("\n").into()),
    }
}

/// Returns HNS of the node.
#[cfg(windows)]
fn service(_: &str) -> Result<vipline_hcn::Client, Box<dyn Error>> {
    Ok(vipline_hcn::Client::new())
}

/// Returns HNS in memory, with one network.
#[cfg(not(windows))]
pub(crate) fn service(network: &str) -> Result<vipline_hcn::Memory, Box<dyn Error>> {
    use vipline_hcn::{Memory, Network, NetworkType};

    let mut hns = Memory::new();
    let network = Network::new(network, NetworkType::L2Bridge);
    hns.create_network(&network.with_subnet("10.244.1.0/24", "10.244.1.1"))?;
    Ok(hns)
}

/// Installs the load balancers of Services, and returns all load balancers.
pub(crate) fn run<S: Service + Send + 'static>(
    hns: S,
    network: &str,
    node: &str,
    objects: Value,
) -> Result<(Report, Vec<LoadBalancer>), Box<dyn Error>> {
    let mut hns = Arc::new(Mutex::new(hns));
    let mut settings = Settings::default().with_network(&hns.network_by_name(network)?)?;
    if settings.is_overlay {
        return Err("overlay networks need a source VIP, which this program does not set".into());
    }
    settings.features = hns.features()?;
    let mut config = Config::new(node);
    if !settings.features.contains(Features::IPV6_DUAL_STACK) {
        config = config.with_families([Family::V4]);
    }
    let planner = Planner::new(settings.clone());
    let mut engine = Engine::with_kernels(config, planner, |family| {
        Hns::new(Arc::clone(&hns), network, family, settings.clone())
    });
    for event in events(objects)? {
        engine.apply(event);
    }
    engine.apply(Event::Synced);
    let report = engine.poll(Duration::ZERO).ok_or("no sync is due")?;
    Ok((report.into_result()?, hns.load_balancers(&Query::all())?))
}

/// Returns the objects that HNS rejected, with the reasons.
pub(crate) fn rejections(report: &Report) -> Vec<String> {
    let rejected = report.families.iter().flat_map(|it| &it.rejected);
    rejected
        .map(|object| format!("rejected: {object}"))
        .collect()
}

/// Returns the events of a list of objects. Other kinds are ignored.
fn events(mut list: Value) -> Result<Vec<Event>, serde_json::Error> {
    let items: Vec<Value> = serde_json::from_value(list["items"].take())?;
    let mut events = Vec::new();
    for item in items {
        match item["kind"].as_str() {
            Some("Service") => events.push(Event::ServiceApplied(serde_json::from_value(item)?)),
            Some("EndpointSlice") => {
                events.push(Event::SliceApplied(serde_json::from_value(item)?));
            }
            Some("Node") => events.push(Event::NodeApplied(serde_json::from_value(item)?)),
            _ => {}
        }
    }
    Ok(events)
}
