//! Targets with addresses: `-j NETMAP`, `-j DNPT`, `-j SNPT` and `-j TEE`.

use std::borrow::Cow;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::address::Network;
use crate::field::extension;

extension! {
    /// Maps a network to another one: `-j NETMAP --to 10.1.0.0/16`.
    pub struct Netmap = "-j NETMAP" {
        /// New network; iptables requires one.
        to: Option<Network> = "--to",
    }
}

extension! {
    /// Translates the prefix of destination addresses: `-j DNPT --src-pfx fd00::/64 --dst-pfx
    /// fd01::/64`.
    ///
    /// iptables requires both prefixes, of at most 64 bits.
    pub struct Dnpt = "-j DNPT" {
        /// Prefix of the destination addresses.
        source: Option<IpNet> = "--src-pfx",
        /// New prefix.
        destination: Option<IpNet> = "--dst-pfx",
    }
    complete |it| is_prefix(it.source) && is_prefix(it.destination);
}

extension! {
    /// Translates the prefix of source addresses: `-j SNPT --src-pfx fd00::/64 --dst-pfx
    /// fd01::/64`.
    ///
    /// iptables requires both prefixes, of at most 64 bits.
    pub struct Snpt = "-j SNPT" {
        /// Prefix of the source addresses.
        source: Option<IpNet> = "--src-pfx",
        /// New prefix.
        destination: Option<IpNet> = "--dst-pfx",
    }
    complete |it| is_prefix(it.source) && is_prefix(it.destination);
}

fn is_prefix(network: Option<IpNet>) -> bool {
    network.is_some_and(|it| it.addr().is_ipv6() && it.prefix_len() <= 64)
}

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
