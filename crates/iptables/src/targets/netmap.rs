//! `-j NETMAP`: translation of networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::address::Network;
use crate::options::field::extension;
use crate::targets::nat::{AddressRange, NatRange};

extension! {
    /// Maps a network to another one: `-j NETMAP --to 10.1.0.0/16`.
    pub struct Netmap = "-j NETMAP" {
        /// New network; iptables requires one.
        to: Option<Network> = "--to",
    }
}

/// The range of all addresses of the network: `struct nf_nat_ipv4_multi_range_compat`, and
/// `struct nf_nat_range` in rules of IPv6.
impl Structure for Netmap {
    const NAME: &'static str = "NETMAP";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let network = self.to.as_ref()?.prefix()?;
        let range = NatRange {
            addresses: Some(AddressRange {
                first: network.network(),
                last: network.broadcast(),
            }),
            ports: None,
            flags: 0,
        };
        range.write_compat(out)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let AddressRange { first, last } = NatRange::read_compat(reader)?.addresses?;
        // Equal bits of both ends are the mask.
        let mask: IpAddr = match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                Ipv4Addr::from_bits(!(first.to_bits() ^ last.to_bits())).into()
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                Ipv6Addr::from_bits(!(first.to_bits() ^ last.to_bits())).into()
            }
            _ => return None,
        };
        let to = Some(Network::masked(first, mask)?);
        Some(Self { to })
    }
}
