//! `-m eui64`: source addresses that are made of the address of the interface.

use crate::field::extension;

extension! {
    /// Matches source addresses that are made of the address of the interface: `-m eui64`.
    pub struct Eui64 = "-m eui64" {}
    complete |_| true;
}
