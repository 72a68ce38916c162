//! The program on Windows: HNS of the node, the Service Control Manager and the Event Log.

mod event_log;

mod service;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use anyhow::{Context, Result};
use vipline_hcn::Client;

use crate::failure::Failure;
use crate::kernelspace::Chosen;
use crate::node;
use crate::run::hns;
use crate::settings::Settings;
use crate::stop::Stop;

pub(crate) use service::start;

/// Keeps HNS of this node in sync with all objects.
///
/// # Errors
///
/// As [`hns::run`].
pub(crate) fn run(settings: Settings, stop: &Stop) -> Result<(), Failure> {
    let bind_address = settings.bind_address;
    hns::run(settings, Client::new(), &|| host_mac(bind_address), stop)
}

/// Returns the network of this node, and its objects.
///
/// # Errors
///
/// HNS cannot be read, or lacks the network.
pub(crate) fn read(settings: &Settings) -> Result<Chosen> {
    let host_mac = || host_mac(settings.bind_address);
    Chosen::read(&mut Client::new(), settings, &host_mac)
}

/// Returns the MAC address of the interface with the address of the node.
fn host_mac(bind_address: Option<IpAddr>) -> Result<String> {
    node::mac_of(bind_address.map_or_else(default_address, Ok)?)
}

/// Returns the address of the interface of the default route. As in upstream, it is the
/// address of a node without `--bind-address`.
fn default_address() -> Result<IpAddr> {
    // An address for documentation (RFC 5737). Connecting a UDP socket sends nothing.
    let elsewhere = Ipv4Addr::new(192, 0, 2, 1);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let connected = socket.connect((elsewhere, 9));
    connected.context("no default route; set --bind-address")?;
    Ok(socket.local_addr()?.ip())
}
