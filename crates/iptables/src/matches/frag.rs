//! `-m frag`: fragment header of IPv6.

use crate::field::extension;
use crate::matches::ids::forget;
use crate::negatable::Negatable;
use crate::number::Range;

extension! {
    /// Matches the fragment header: `-m frag --fragmore`.
    pub struct Frag = "-m frag" {
        /// Identification.
        id: Option<Negatable<Range<u32>>> = "--fragid",
        /// Length of the header.
        length: Option<Negatable<u32>> = "--fraglen",
        /// Whether reserved fields are zero.
        reserved: bool = "--fragres",
        /// First fragment.
        first: bool = "--fragfirst",
        /// Not the last fragment. Excludes `last`.
        more: bool = "--fragmore",
        /// Last fragment.
        last: bool = "--fraglast",
    }
    complete |it| !(it.more && it.last);
    normalize |it| forget(&mut it.id, Range::<u32>::ALL);
}
