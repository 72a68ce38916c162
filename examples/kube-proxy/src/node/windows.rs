//! What Windows knows of this node: the addresses of its adapters.

use std::net::IpAddr;

use anyhow::{Context, Result};
use ipconfig::{Adapter, OperStatus, get_adapters};
use vipline_service_model::SpecialAddress;

/// Returns the addresses of all adapters, except link-local ones.
///
/// # Errors
///
/// Windows does not list the adapters.
pub fn host_addresses() -> Result<Vec<IpAddr>> {
    let adapters = adapters()?;
    let addresses = adapters.iter().flat_map(Adapter::ip_addresses).copied();
    Ok(addresses
        .filter(|addr| SpecialAddress::of(*addr) != Some(SpecialAddress::LinkLocal))
        .collect())
}

/// Returns the addresses at which other hosts reach the node.
///
/// # Errors
///
/// Windows does not list the adapters.
pub fn global_addresses() -> Result<Vec<IpAddr>> {
    let mut addresses = host_addresses()?;
    addresses.retain(|addr| !addr.is_loopback());
    Ok(addresses)
}

/// Returns the MAC address of the adapter with an address, such as `00-15-5D-52-C0-01`.
///
/// # Errors
///
/// Windows does not list the adapters, or none has the address and a MAC address.
pub fn mac_of(addr: IpAddr) -> Result<String> {
    let adapters = adapters()?;
    let mut adapters = adapters.iter();
    let adapter = adapters.find(|adapter| adapter.ip_addresses().contains(&addr));
    let mac = adapter.and_then(Adapter::physical_address);
    let mac = mac.with_context(|| format!("no adapter has {addr} and a MAC address"))?;
    let bytes: Vec<String> = mac.iter().map(|byte| format!("{byte:02X}")).collect();
    Ok(bytes.join("-"))
}

/// Returns the adapters that are up.
fn adapters() -> Result<Vec<Adapter>> {
    let mut adapters = get_adapters().context("list the adapters")?;
    adapters.retain(|adapter| adapter.oper_status() == OperStatus::IfOperStatusUp);
    Ok(adapters)
}
