//! `-m ah`: authentication header of IPsec.

use crate::field::extension;
use crate::matches::ids::forget;
use crate::negatable::Negatable;
use crate::number::Range;

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
