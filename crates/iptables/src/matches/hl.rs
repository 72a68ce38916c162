//! `-m hl`: hop limit.

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer};
use crate::matches::ttl;
use crate::options::field::extension;
use crate::options::negatable::Negatable;

extension! {
    /// Matches the hop limit of IPv6 packets: `-m hl --hl-eq 255`.
    ///
    /// iptables requires exactly one option.
    pub struct Hl = "-m hl" {
        /// Equal to the value.
        eq: Option<Negatable<u8>> = "--hl-eq",
        /// Less than the value.
        lt: Option<u8> = "--hl-lt",
        /// Greater than the value.
        gt: Option<u8> = "--hl-gt",
    }
    complete |it| [it.eq.is_some(), it.lt.is_some(), it.gt.is_some()] == [true, false, false]
        || it.eq.is_none() && it.lt.is_some() != it.gt.is_some();
}

/// `struct ip6t_hl_info`.
impl Structure for Hl {
    const NAME: &'static str = "hl";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        ttl::write((self.eq, self.lt, self.gt), out)?;
        (out.family() == Family::V6).then_some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (eq, lt, gt) = ttl::read(reader)?;
        Some(Self { eq, lt, gt })
    }
}
