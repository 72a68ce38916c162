//! `-j TTL`: time to live.

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;

extension! {
    /// Changes the time to live of IPv4 packets: `-j TTL --ttl-set 64`.
    ///
    /// iptables requires exactly one option.
    pub struct Ttl = "-j TTL" {
        /// New value.
        set: Option<u8> = "--ttl-set",
        /// Number to subtract, not 0.
        dec: Option<u8> = "--ttl-dec",
        /// Number to add, not 0.
        inc: Option<u8> = "--ttl-inc",
    }
    complete |it| is_one_change(it.set, it.dec, it.inc);
}

pub(super) fn is_one_change(set: Option<u8>, dec: Option<u8>, inc: Option<u8>) -> bool {
    let count = [set, dec, inc].iter().flatten().count();
    count == 1 && dec != Some(0) && inc != Some(0)
}

// Modes of `struct ipt_TTL_info`, which equal `IP6T_HL_SET` to `IP6T_HL_DEC`.
const IPT_TTL_SET: u8 = 0;
const IPT_TTL_INC: u8 = 1;
const IPT_TTL_DEC: u8 = 2;

/// Changes: set, increment and decrement.
pub(super) type Changes = (Option<u8>, Option<u8>, Option<u8>);

/// Writes `struct ipt_TTL_info` or `struct ip6t_HL_info`.
pub(super) fn write(changes: Changes, out: &mut Writer<'_>) -> Option<()> {
    let (mode, value) = match changes {
        (Some(value), None, None) => (IPT_TTL_SET, value),
        (None, Some(value), None) => (IPT_TTL_INC, value),
        (None, None, Some(value)) => (IPT_TTL_DEC, value),
        _ => return None,
    };
    out.u8(mode).u8(value);
    Some(())
}

/// Reads `struct ipt_TTL_info` or `struct ip6t_HL_info`.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Changes> {
    let (mode, value) = (reader.u8()?, reader.u8()?);
    Some(match mode {
        IPT_TTL_SET => (Some(value), None, None),
        IPT_TTL_INC => (None, Some(value), None),
        IPT_TTL_DEC => (None, None, Some(value)),
        _ => return None,
    })
}

/// `struct ipt_TTL_info`.
impl Structure for Ttl {
    const NAME: &'static str = "TTL";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        write((self.set, self.inc, self.dec), out)?;
        (out.family() == Family::V4).then_some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (set, inc, dec) = read(reader)?;
        Some(Self { set, dec, inc })
    }
}
