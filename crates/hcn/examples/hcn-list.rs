//! Prints the networks, endpoints and load balancers of HNS as a table.
//!
//! Run it with `cargo run --example hcn-list -- FILE.json`. The file has
//! the documents of a node: `{"Networks": [...], "Endpoints": [...], "LoadBalancers":
//! [...]}`. On Windows, without a file, the example asks HNS.
#![allow(clippy::print_stdout, reason = "the output is the purpose")]
#![allow(clippy::disallowed_methods, reason = "IO file")]

use std::env;
use std::error::Error;
use std::fs;

use serde::Deserialize;
use vipline_hcn::{Endpoint, Id, LoadBalancer, LoadBalancerFlags, Network};

/// The documents of a node.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Node {
    networks: Vec<Network>,
    endpoints: Vec<Endpoint>,
    load_balancers: Vec<LoadBalancer>,
}

impl Node {
    /// Reads the documents from HNS.
    #[cfg(windows)]
    fn from_hns() -> Result<Self, Box<dyn Error>> {
        use vipline_hcn::{Client, Query, Service};
        let (mut hns, all) = (Client::new(), Query::all());
        Ok(Self {
            networks: hns.networks(&all)?,
            endpoints: hns.endpoints(&all)?,
            load_balancers: hns.load_balancers(&all)?,
        })
    }

    #[cfg(not(windows))]
    fn from_hns() -> Result<Self, Box<dyn Error>> {
        Err("HNS exists on Windows only; name a file with documents".into())
    }

    /// Returns the addresses of an endpoint, or its identifier if it is unknown.
    fn address(&self, id: &Id) -> String {
        let endpoint = self.endpoints.iter().find(|it| it.id == *id);
        let addresses = endpoint.map(|it| it.addresses().map(|each| each.to_string()));
        addresses.map_or_else(|| id.to_string(), |it| it.collect::<Vec<_>>().join(","))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let node = match env::args().nth(1) {
        Some(file) => serde_json::from_str(&fs::read_to_string(file)?)?,
        None => Node::from_hns()?,
    };
    for network in &node.networks {
        println!("network {} {}", network.name, network.network_type());
        let endpoints = node.endpoints.iter();
        for endpoint in endpoints.filter(|it| it.network == network.id) {
            let place = if endpoint.is_remote() {
                "remote"
            } else {
                "local"
            };
            println!("  endpoint {} {place}", node.address(&endpoint.id));
        }
    }
    for load_balancer in &node.load_balancers {
        let frontend = match &*load_balancer.frontend_vips {
            [] => "*".to_owned(),
            frontends => frontends.join(","),
        };
        let endpoints = load_balancer.endpoints.iter();
        let endpoints: Vec<_> = endpoints.map(|id| node.address(id)).collect();
        let is_dsr = load_balancer.flags.contains(LoadBalancerFlags::DSR);
        for mapping in &load_balancer.port_mappings {
            println!(
                "load balancer {frontend}:{} protocol {} -> {} port {}{}",
                mapping.external_port,
                mapping.protocol.0,
                endpoints.join(" "),
                mapping.internal_port,
                if is_dsr { " DSR" } else { "" },
            );
        }
    }
    Ok(())
}
