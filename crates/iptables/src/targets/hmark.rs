//! `-j HMARK`: packet mark from a hash of addresses and ports.

use std::fmt;

use crate::extensions::structure::Structure;
use crate::options::field::{extension, names, word_values};
use crate::options::number;

extension! {
    /// Sets the packet mark to a hash: `-j HMARK --hmark-tuple ct --hmark-mod 10
    /// --hmark-rnd 0xfeedcafe`.
    ///
    /// iptables requires a modulus, and either masks of ports or of the SPI.
    pub struct Hmark = "-j HMARK" {
        /// Prefix length of source addresses.
        src_prefix: Option<u8> = "--hmark-src-prefix",
        /// Prefix length of destination addresses.
        dst_prefix: Option<u8> = "--hmark-dst-prefix",
        /// Mask of the source port.
        sport_mask: Option<Hex<4>> = "--hmark-sport-mask",
        /// Mask of the destination port.
        dport_mask: Option<Hex<4>> = "--hmark-dport-mask",
        /// Mask of the security parameter index.
        spi_mask: Option<Hex<8>> = "--hmark-spi-mask",
        /// Bits to set in the source port.
        sport: Option<Hex<4>> = "--hmark-sport",
        /// Bits to set in the destination port.
        dport: Option<Hex<4>> = "--hmark-dport",
        /// Bits to set in the security parameter index.
        spi: Option<Hex<8>> = "--hmark-spi",
        /// Mask of the protocol number.
        proto_mask: Option<Hex<2>> = "--hmark-proto-mask",
        /// Random number of the hash.
        rnd: Option<Hex<8>> = "--hmark-rnd",
        /// Modulus of the hash, not 0.
        modulus: Option<u32> = "--hmark-mod",
        /// Number to add to the hash.
        offset: Option<u32> = "--hmark-offset",
        /// Tuple to use instead of the packet.
        tuple: Option<HmarkTuple> = "--hmark-tuple",
    }
    complete |it| {
        let has_ports = [it.sport_mask, it.dport_mask, it.sport, it.dport].iter().any(Option::is_some);
        let has_spi = it.spi_mask.is_some() || it.spi.is_some();
        it.modulus.is_some_and(|modulus| modulus > 0) && !(has_ports && has_spi)
            && it.src_prefix.max(it.dst_prefix).is_none_or(|len| len <= 128)
            && [it.sport_mask, it.dport_mask, it.sport, it.dport]
                .iter().flatten().all(|mask| mask.0 <= u32::from(u16::MAX))
    };
}

/// A number, printed in hexadecimal with at least this number of digits.
///
/// Exhaustive: a number.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Hex<const DIGITS: usize>(pub u32);

impl<const DIGITS: usize> fmt::Display for Hex<DIGITS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:0DIGITS$x}", self.0)
    }
}

word_values! {
    Hex<2> = |text| number::parse_as(text).map(Self),
    Hex<4> = |text| number::parse_as(text).map(Self),
    Hex<8> = |text| number::parse_as(text).map(Self),
}

names! {
    /// The tuple that `HMARK` hashes.
    pub enum HmarkTuple by str::eq {
        /// The tuple of the connection.
        Connection = "ct",
    }
}

/// `struct xt_hmark_info` is not written yet.
impl Structure for Hmark {
    const NAME: &'static str = "HMARK";
}
