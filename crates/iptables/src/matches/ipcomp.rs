//! `-m ipcomp`: IP payload compression.

use crate::extensions::structure::{Reader, Structure, Writer, is_not};
use crate::matches::ids::{self, forget};
use crate::options::field::extension;
use crate::options::negatable::Negatable;
use crate::options::number::Range;

extension! {
    /// Matches IP payload compression: `-p ipcomp -m ipcomp --ipcompspi 500`.
    pub struct Ipcomp = "-m ipcomp" {
        /// Compression parameter index.
        cpi: Option<Negatable<Range<u32>>> = "--ipcompspi",
        /// Whether the reserved field is zero.
        reserved: bool = "--compres",
    }
    complete |_| true;
    normalize |it| forget(&mut it.cpi, Range::<u32>::ALL);
}

const XT_IPCOMP_INV_SPI: u8 = 1;

/// `struct xt_ipcomp`.
impl Structure for Ipcomp {
    const NAME: &'static str = "ipcomp";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        ids::write(out, &self.cpi, 0);
        out.u8(if is_not(&self.cpi) {
            XT_IPCOMP_INV_SPI
        } else {
            0
        });
        out.u8(self.reserved.into());
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let cpi = ids::read(reader)?;
        let [inverted, reserved] = reader.array()?;
        Some(Self {
            cpi: ids::condition(cpi, 0, inverted & XT_IPCOMP_INV_SPI != 0),
            reserved: reserved != 0,
        })
    }
}
