//! `-m eui64`: source addresses that are made of the address of the interface.

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;

extension! {
    /// Matches source addresses that are made of the address of the interface: `-m eui64`.
    pub struct Eui64 = "-m eui64" {}
    complete |_| true;
}

/// An unused number.
impl Structure for Eui64 {
    const NAME: &'static str = "eui64";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u32(0);
        (out.family() == Family::V6).then_some(())
    }

    fn read(_: &mut Reader<'_>) -> Option<Self> {
        Some(Self {})
    }
}
