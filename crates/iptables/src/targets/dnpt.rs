//! `-j DNPT`: translation of the prefix of destination addresses.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;

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

pub(super) fn is_prefix(network: Option<IpNet>) -> bool {
    network.is_some_and(|it| it.addr().is_ipv6() && it.prefix_len() <= 64)
}

/// Writes `struct ip6t_npt_tginfo`.
pub(super) fn write(
    source: Option<IpNet>,
    destination: Option<IpNet>,
    out: &mut Writer<'_>,
) -> Option<()> {
    let (Some(IpNet::V6(source)), Some(IpNet::V6(destination))) = (source, destination) else {
        return None;
    };
    out.bytes(&source.addr().octets());
    out.bytes(&destination.addr().octets());
    out.u8(source.prefix_len()).u8(destination.prefix_len());
    // The kernel stores an adjustment of checksums.
    out.zeros(2);
    Some(())
}

/// Reads `struct ip6t_npt_tginfo`.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<[Option<IpNet>; 2]> {
    let addresses: [[u8; 16]; 2] = [reader.array()?, reader.array()?];
    let [source, destination] = addresses.map(IpAddr::from);
    let [source_len, destination_len] = reader.array()?;
    Some([
        IpNet::new(source, source_len).ok(),
        IpNet::new(destination, destination_len).ok(),
    ])
}

/// `struct ip6t_npt_tginfo`.
impl Structure for Dnpt {
    const NAME: &'static str = "DNPT";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        write(self.source, self.destination, out)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let [source, destination] = read(reader)?;
        Some(Self {
            source,
            destination,
        })
    }
}
