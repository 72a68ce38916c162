//! `-m dst`: destination options header of IPv6.

use crate::field::extension;
use crate::matches::hbh::HeaderOptions;
use crate::negatable::Negatable;

extension! {
    /// Matches the destination options header: `-m dst --dst-opts 4:2`.
    pub struct Dst = "-m dst" {
        /// Length of the header in bytes.
        length: Option<Negatable<u32>> = "--dst-len",
        /// Options of the header.
        options: Option<HeaderOptions> = "--dst-opts",
    }
    complete |_| true;
}
