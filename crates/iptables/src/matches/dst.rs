//! `-m dst`: destination options header of IPv6.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::matches::hbh::{self, HeaderOptions};
use crate::options::field::extension;
use crate::options::negatable::Negatable;

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

/// `struct ip6t_opts`.
impl Structure for Dst {
    const NAME: &'static str = "dst";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        hbh::write(&self.length, &self.options, out)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (length, options) = hbh::read(reader)?;
        Some(Self { length, options })
    }
}
