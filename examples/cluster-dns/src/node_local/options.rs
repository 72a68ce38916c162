//! Addresses, port and interface of the use on a node.

use std::net::{IpAddr, Ipv4Addr};

use thiserror::Error;
use vipline_rtnl::Name;

/// Addresses, port and interface of the use on a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) port: u16,
    pub(super) interface: Name,
    pub(super) is_kept: bool,
}

/// Invalid options.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum InvalidOptions {
    /// There is no address.
    #[error("node-local use requires at least one address")]
    NoAddress,
    /// An address occurs twice.
    #[error("node-local address {0} occurs twice")]
    Duplicate(IpAddr),
    /// A host cannot have the address, or clients need more than the address to reach it.
    #[error(
        "node-local address {0}: must be a unicast address, and not a link-local IPv6 address, which requires an interface"
    )]
    Address(IpAddr),
}

impl Options {
    /// Default address: the one that NodeLocal DNSCache uses by convention.
    pub const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 20, 10));

    /// Default name of the interface.
    pub const INTERFACE: &str = "nodelocaldns";

    /// Creates options.
    ///
    /// # Errors
    ///
    /// [`InvalidOptions`]: there are no addresses, an address occurs twice, or an address
    /// is not a unicast address that is valid on all interfaces.
    pub fn new(addresses: Vec<IpAddr>, port: u16, interface: Name) -> Result<Self, InvalidOptions> {
        if addresses.is_empty() {
            return Err(InvalidOptions::NoAddress);
        }
        for (number, address) in addresses.iter().enumerate() {
            if !is_usable(*address) {
                return Err(InvalidOptions::Address(*address));
            }
            if addresses[..number].contains(address) {
                return Err(InvalidOptions::Duplicate(*address));
            }
        }
        Ok(Self {
            addresses,
            port,
            interface,
            is_kept: false,
        })
    }

    /// Keeps interface, addresses and rules when [`NodeLocal`](super::NodeLocal) is closed.
    ///
    /// The next process takes them over. Meanwhile questions are lost, but with another
    /// process on the same port there is no gap.
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.is_kept = true;
        self
    }

    /// Returns the addresses to listen on.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }
}

fn is_usable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !(address.is_unspecified() || address.is_multicast() || address.is_broadcast())
        }
        IpAddr::V6(address) => {
            !(address.is_unspecified()
                || address.is_multicast()
                || address.is_unicast_link_local()
                || address.to_ipv4_mapped().is_some())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(addresses: &[&str]) -> Result<Options, InvalidOptions> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Options::new(addresses, 53, Name::new(Options::INTERFACE).unwrap())
    }

    #[test]
    fn only_distinct_unicast_addresses_of_all_interfaces_are_valid() {
        for good in [
            &["169.254.20.10"][..],
            &["169.254.20.10", "10.96.0.10", "fd00::10", "127.0.0.53"],
        ] {
            assert_eq!(options(good).unwrap().addresses().len(), good.len());
        }
        assert_eq!(options(&[]), Err(InvalidOptions::NoAddress));
        for bad in ["0.0.0.0", "255.255.255.255", "224.0.0.1", "::", "ff02::1"] {
            let address = bad.parse().unwrap();
            let error = InvalidOptions::Address(address);
            assert_eq!(options(&["10.0.0.1", bad]), Err(error), "{bad}");
        }
        for bad in ["fe80::10", "::ffff:10.0.0.1"] {
            assert!(options(&[bad]).is_err(), "{bad}");
        }
        let twice = options(&["fd00::10", "10.0.0.1", "fd00:0::10"]);
        let error = twice.unwrap_err().to_string();
        assert_eq!(error, "node-local address fd00::10 occurs twice");
    }
}
