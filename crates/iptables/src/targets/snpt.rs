//! `-j SNPT`: translation of the prefix of source addresses.

use ipnet::IpNet;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;
use crate::targets::dnpt::{self, is_prefix};

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

/// `struct ip6t_npt_tginfo`.
impl Structure for Snpt {
    const NAME: &'static str = "SNPT";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        dnpt::write(self.source, self.destination, out)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let [source, destination] = dnpt::read(reader)?;
        Some(Self {
            source,
            destination,
        })
    }
}
