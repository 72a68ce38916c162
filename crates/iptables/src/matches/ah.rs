//! `-m ah`: authentication header of IPsec.

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer, flags, is_not};
use crate::matches::ids::{self, forget};
use crate::options::field::extension;
use crate::options::negatable::Negatable;
use crate::options::number::Range;

extension! {
    /// Matches the authentication header: `-m ah --ahspi 500`.
    pub struct Ah = "-m ah" {
        /// Security parameter index.
        spi: Option<Negatable<Range<u32>>> = "--ahspi",
        /// Length of the header. IPv6 only.
        length: Option<Negatable<u32>> = "--ahlen",
        /// Whether the reserved field is zero. IPv6 only.
        reserved: bool = "--ahres",
    }
    complete |_| true;
    normalize |it| forget(&mut it.spi, Range::<u32>::ALL);
}

// Flags `invflags` of `struct ip6t_ah`. The first one is `IPT_AH_INV_SPI`, too.
const IP6T_AH_INV_SPI: u8 = 1;
const IP6T_AH_INV_LEN: u8 = 2;

/// `struct ipt_ah` or `struct ip6t_ah`.
impl Structure for Ah {
    const NAME: &'static str = "ah";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        ids::write(out, &self.spi, u32::MAX);
        let inverted = flags([
            (is_not(&self.spi), IP6T_AH_INV_SPI),
            (is_not(&self.length), IP6T_AH_INV_LEN),
        ]);
        if out.family() == Family::V6 {
            out.u32(self.length.map_or(0, |length| *length.value()));
            out.u8(self.reserved.into());
        } else if self.length.is_some() || self.reserved {
            return None;
        }
        out.u8(inverted);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let spi = ids::read(reader)?;
        let (length, reserved) = match reader.family() {
            Family::V4 => (0, 0),
            Family::V6 => (reader.u32()?, reader.u8()?),
        };
        let inverted = reader.u8()?;
        let not_length = inverted & IP6T_AH_INV_LEN != 0;
        let has_length = length != 0 || not_length;
        Some(Self {
            spi: ids::condition(spi, u32::MAX, inverted & IP6T_AH_INV_SPI != 0),
            length: has_length.then(|| Negatable::new(not_length, length)),
            reserved: reserved != 0,
        })
    }
}
