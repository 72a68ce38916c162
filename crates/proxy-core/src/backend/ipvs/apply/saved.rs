//! Reading of IP sets, virtual servers and connections as text.
#![allow(clippy::disallowed_methods, reason = "IO file")]

use std::path::Path;

use {vipline_ipset as ipset, vipline_ipvs as ipvs};

use super::installed_rules::virtual_servers;
use crate::Error;
use crate::evaluate::{KernelState, Source};

/// A file of IPVS in the network namespace of the calling thread.
const IPVS: &str = "/proc/thread-self/net/ip_vs";

/// Adds IP sets, virtual servers and connections.
///
/// A kernel that has not loaded IPVS has none of them. A request would load it.
pub(in crate::backend) fn save(state: &mut KernelState) -> Result<(), Error> {
    if !Path::new(IPVS).exists() {
        return Ok(());
    }
    let sets = ipset::Client::open()?.dump_all()?;
    state.add_text(Source::IpsetSave, &sets.to_string());
    let mut client = ipvs::Client::open()?;
    let servers = virtual_servers(&mut client)?;
    state.add_text(Source::IpvsadmSave, &servers.to_string());
    for connection in client.connections()? {
        state.add_text(Source::IpVsConn, &connection.to_string());
    }
    Ok(())
}
