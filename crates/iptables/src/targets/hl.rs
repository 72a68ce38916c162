//! `-j HL`: hop limit.

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;
use crate::targets::ttl::{self, is_one_change};

extension! {
    /// Changes the hop limit of IPv6 packets: `-j HL --hl-set 64`.
    ///
    /// iptables requires exactly one option.
    pub struct Hl = "-j HL" {
        /// New value.
        set: Option<u8> = "--hl-set",
        /// Number to subtract, not 0.
        dec: Option<u8> = "--hl-dec",
        /// Number to add, not 0.
        inc: Option<u8> = "--hl-inc",
    }
    complete |it| is_one_change(it.set, it.dec, it.inc);
}

/// `struct ip6t_HL_info`.
impl Structure for Hl {
    const NAME: &'static str = "HL";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        ttl::write((self.set, self.inc, self.dec), out)?;
        (out.family() == Family::V6).then_some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (set, inc, dec) = ttl::read(reader)?;
        Some(Self { set, dec, inc })
    }
}
