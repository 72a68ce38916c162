//! `-m ipcomp`: IP payload compression.

use crate::field::extension;
use crate::matches::ids::forget;
use crate::negatable::Negatable;
use crate::number::Range;

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
