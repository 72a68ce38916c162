//! Resolves the Services of a cluster for one node.
//!
//! ```sh
//! kubectl get services,endpointslices,nodes --all-namespaces --output json |
//!     cargo run --example resolve -- NODE
//! ```

use std::error::Error;
use std::io;

use serde::Deserialize;
use serde_json::Value;
use vipline_service_model::{Config, Event, Route, ServicePort, Store, api};

/// The output of `kubectl get --output json`.
#[derive(Deserialize)]
struct List {
    items: Vec<Value>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let node = std::env::args().nth(1).ok_or("usage: resolve NODE")?;
    run(&node, &io::read_to_string(io::stdin())?, &mut io::stdout())
}

/// Writes a line for each port of each Service.
pub(crate) fn run(node: &str, json: &str, out: &mut impl io::Write) -> Result<(), Box<dyn Error>> {
    let mut store = Store::new(Config::new(node));
    let list: List = serde_json::from_str(json)?;
    for object in list.items {
        for warning in store.apply(event(object)?) {
            writeln!(out, "# {warning}")?;
        }
    }
    store.apply(Event::Synced);
    let view = store.node();
    for port in store
        .resolve(&view)
        .iter()
        .filter_map(|change| change.port.as_deref())
    {
        let internal = route(port, port.internal);
        writeln!(out, "{} {port} from the cluster: {internal}", port.name)?;
        if port.is_exposed {
            let external = route(port, port.external);
            writeln!(out, "{} {port} from outside: {external}", port.name)?;
        }
    }
    Ok(())
}

/// Returns the endpoints of a route, or what happens to packets.
fn route(port: &ServicePort, route: Route) -> String {
    let endpoints = match route {
        Route::Cluster => &port.cluster,
        Route::Local => &port.local,
        Route::Drop => return "dropped".to_owned(),
        Route::Reject => return "rejected".to_owned(),
    };
    let endpoints = endpoints
        .iter()
        .map(|it| format!("{}:{}", it.addr, it.port));
    endpoints.collect::<Vec<_>>().join(", ")
}

/// Converts an object to the event that applies it.
fn event(object: Value) -> Result<Event, Box<dyn Error>> {
    use serde_json::from_value;
    Ok(match object["kind"].as_str() {
        Some("Service") => from_value::<api::Service>(object)?.into(),
        Some("EndpointSlice") => from_value::<api::EndpointSlice>(object)?.into(),
        Some("Node") => from_value::<api::Node>(object)?.into(),
        kind => return Err(format!("unexpected kind {kind:?}").into()),
    })
}
