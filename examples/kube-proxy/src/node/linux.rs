//! What Linux knows of this node: the addresses of its interfaces, and its kernel.

use std::net::IpAddr;

use anyhow::Result;
use proxy_core::interfaces::{self, Scope};

/// Returns the addresses of all interfaces, except link-local ones.
///
/// # Errors
///
/// The kernel does not list them.
pub fn host_addresses() -> Result<Vec<IpAddr>> {
    Ok(interfaces::addresses(Scope::Host)?)
}

/// Returns the addresses at which other hosts reach the node.
///
/// # Errors
///
/// The kernel does not list them.
pub fn global_addresses() -> Result<Vec<IpAddr>> {
    Ok(interfaces::addresses(Scope::Global)?)
}

/// Returns the release of the kernel.
pub fn release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}
