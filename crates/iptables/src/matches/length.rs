//! `-m length`: packet length.

use crate::field::extension;
use crate::negatable::Negatable;
use crate::number::Range;

extension! {
    /// Matches the packet length: `-m length --length 0:1500`.
    pub struct Length = "-m length" {
        /// Length in bytes, with the IPv4 header or without the IPv6 header.
        length: Option<Negatable<Range<u16>>> = "--length",
    }
}
