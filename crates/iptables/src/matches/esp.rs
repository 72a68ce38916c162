//! `-m esp`: encapsulating security payload of IPsec.

use crate::field::extension;
use crate::matches::ids::forget;
use crate::negatable::Negatable;
use crate::number::Range;

extension! {
    /// Matches the encapsulating security payload: `-p esp -m esp --espspi 500`.
    pub struct Esp = "-m esp" {
        /// Security parameter index.
        spi: Option<Negatable<Range<u32>>> = "--espspi",
    }
    complete |_| true;
    normalize |it| forget(&mut it.spi, Range::<u32>::ALL);
}
