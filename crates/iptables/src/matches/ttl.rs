//! `-m ttl`: time to live.

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;
use crate::options::negatable::Negatable;

extension! {
    /// Matches the time to live of IPv4 packets: `-m ttl --ttl-lt 64`.
    ///
    /// iptables requires exactly one option.
    pub struct Ttl = "-m ttl" {
        /// Equal to the value.
        eq: Option<Negatable<u8>> = "--ttl-eq" | "--ttl",
        /// Less than the value.
        lt: Option<u8> = "--ttl-lt",
        /// Greater than the value.
        gt: Option<u8> = "--ttl-gt",
    }
    complete |it| [it.eq.is_some(), it.lt.is_some(), it.gt.is_some()] == [true, false, false]
        || it.eq.is_none() && it.lt.is_some() != it.gt.is_some();
}

// Modes of `struct ipt_ttl_info`, which equal `IP6T_HL_EQ` to `IP6T_HL_GT`.
const IPT_TTL_EQ: u8 = 0;
const IPT_TTL_NE: u8 = 1;
const IPT_TTL_LT: u8 = 2;
const IPT_TTL_GT: u8 = 3;

/// Conditions equal, less and greater.
pub(super) type Comparisons = (Option<Negatable<u8>>, Option<u8>, Option<u8>);

/// Writes `struct ipt_ttl_info` or `struct ip6t_hl_info`.
pub(super) fn write(comparisons: Comparisons, out: &mut Writer<'_>) -> Option<()> {
    let (mode, value) = match comparisons {
        (Some(Negatable::Is(value)), None, None) => (IPT_TTL_EQ, value),
        (Some(Negatable::Not(value)), None, None) => (IPT_TTL_NE, value),
        (None, Some(value), None) => (IPT_TTL_LT, value),
        (None, None, Some(value)) => (IPT_TTL_GT, value),
        _ => return None,
    };
    out.u8(mode).u8(value);
    Some(())
}

/// Reads `struct ipt_ttl_info` or `struct ip6t_hl_info`.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Comparisons> {
    let (mode, value) = (reader.u8()?, reader.u8()?);
    Some(match mode {
        IPT_TTL_EQ => (Some(Negatable::Is(value)), None, None),
        IPT_TTL_NE => (Some(Negatable::Not(value)), None, None),
        IPT_TTL_LT => (None, Some(value), None),
        IPT_TTL_GT => (None, None, Some(value)),
        _ => return None,
    })
}

/// `struct ipt_ttl_info`.
impl Structure for Ttl {
    const NAME: &'static str = "ttl";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        write((self.eq, self.lt, self.gt), out)?;
        (out.family() == Family::V4).then_some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (eq, lt, gt) = read(reader)?;
        Some(Self { eq, lt, gt })
    }
}
