//! Cluster IPs of Services: allocates any address or a specific one, releases it, and starts
//! again from the Services that exist.
//!
//! Run it with `cargo run --example service-ips`. It needs no privileges.
#![allow(clippy::print_stdout, reason = "the output is the purpose")]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::IpAddr;

use vipline_service_ip::{AddressRange, Allocator, Memory, OwnerRef, Registry};
use vipline_service_ip::{Repair, ServiceItems};

fn main() -> Result<(), Box<dyn Error>> {
    let range: AddressRange = "10.96.0.0/24".parse()?;
    let mut registry = Registry::new(Memory::new(Allocator::new(range)));
    // The Services of the cluster, which would be stored elsewhere.
    let mut services: BTreeMap<&str, IpAddr> = BTreeMap::new();
    // The caller provides random numbers. A constant makes the output predictable.
    let mut random = || 7;

    services.insert("dns", "10.96.0.10".parse()?);
    registry.reserve(services["dns"], &owner("dns"))?;
    for name in ["web", "api"] {
        let address = registry.allocate(&owner(name), &mut random)?;
        services.insert(name, address);
    }
    for (name, address) in &services {
        println!("{name} has {address}");
    }
    if let Err(error) = registry.reserve(services["dns"], &owner("other")) {
        println!("other cannot have the address of dns: {error}");
    }

    // Nobody can release the address of another Service.
    if let Err(error) = registry.release(services["api"], &owner("web")) {
        println!("web cannot release the address of api: {error}");
    }
    registry.release(services["api"], &owner("api"))?;
    services.remove("api");

    // After a restart, an empty allocator learns the addresses of the Services that exist.
    let mut registry = Registry::new(Memory::new(Allocator::new(range)));
    let items = || {
        let items = |(name, it): (&&str, &IpAddr)| ServiceItems::new(owner(name), [*it]);
        services.iter().map(items).collect()
    };
    for finding in Repair::new().pass(&mut registry, items)? {
        println!("after the restart: {finding}");
    }
    println!("{} addresses are in use", registry.usage()[0].used);
    Ok(())
}

fn owner(name: &str) -> OwnerRef {
    OwnerRef::service("default", name)
}
