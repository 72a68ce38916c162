//! `-m length`: packet length.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;
use crate::options::negatable::Negatable;
use crate::options::number::Range;

extension! {
    /// Matches the packet length: `-m length --length 0:1500`.
    pub struct Length = "-m length" {
        /// Length in bytes, with the IPv4 header or without the IPv6 header.
        length: Option<Negatable<Range<u16>>> = "--length",
    }
}

/// Writes `struct xt_length_info` or `struct xt_tcpmss_match_info`.
pub(super) fn write(range: &Negatable<Range<u16>>, out: &mut Writer<'_>) {
    let Range { first, last } = range.value();
    out.u16(*first).u16(*last).u8(range.is_negated().into());
}

/// Reads `struct xt_length_info` or `struct xt_tcpmss_match_info`.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Negatable<Range<u16>>> {
    let (first, last) = (reader.u16()?, reader.u16()?);
    Some(Negatable::new(reader.u8()? != 0, Range { first, last }))
}

/// `struct xt_length_info`.
impl Structure for Length {
    const NAME: &'static str = "length";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        write(self.length.as_ref()?, out);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let length = Some(read(reader)?);
        Some(Self { length })
    }
}
