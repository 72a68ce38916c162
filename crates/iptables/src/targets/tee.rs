//! `-j TEE`: copies of packets.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::field::extension;

extension! {
    /// Sends a copy of each packet to a host: `-j TEE --gateway 10.0.0.1`.
    pub struct Tee<'a> = "-j TEE" {
        /// Address of the host; iptables requires one.
        gateway: Option<IpAddr> = "--gateway",
        /// Output interface.
        out_interface: Option<Cow<'a, str>> = "--oif",
    }
    complete |it| it.gateway.is_some();
}
