//! `-m esp`: encapsulating security payload of IPsec.

use crate::extensions::structure::{Reader, Structure, Writer, is_not};
use crate::matches::ids::{self, forget};
use crate::options::field::extension;
use crate::options::negatable::Negatable;
use crate::options::number::Range;

extension! {
    /// Matches the encapsulating security payload: `-p esp -m esp --espspi 500`.
    pub struct Esp = "-m esp" {
        /// Security parameter index.
        spi: Option<Negatable<Range<u32>>> = "--espspi",
    }
    complete |_| true;
    normalize |it| forget(&mut it.spi, Range::<u32>::ALL);
}

const XT_ESP_INV_SPI: u8 = 1;

/// `struct xt_esp`.
impl Structure for Esp {
    const NAME: &'static str = "esp";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        ids::write(out, &self.spi, u32::MAX);
        out.u8(if is_not(&self.spi) { XT_ESP_INV_SPI } else { 0 });
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let spi = ids::read(reader)?;
        let is_negated = reader.u8()? & XT_ESP_INV_SPI != 0;
        let spi = ids::condition(spi, u32::MAX, is_negated);
        Some(Self { spi })
    }
}
