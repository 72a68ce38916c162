//! `-j TOS`: type of service.

use crate::field::extension;
use crate::matches::TosValue;

extension! {
    /// Changes the type of service: `-j TOS --set-tos 0x10/0x3f`.
    ///
    /// Clears the bits of the mask, then flips the bits of the value.
    pub struct Tos = "-j TOS" {
        /// Value and mask; iptables requires them.
        tos: Option<TosValue> = "--set-tos" | "--and-tos" | "--or-tos" | "--xor-tos",
    }
}
