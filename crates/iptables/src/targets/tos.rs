//! `-j TOS`: type of service.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::matches::TosValue;
use crate::options::field::extension;

extension! {
    /// Changes the type of service: `-j TOS --set-tos 0x10/0x3f`.
    ///
    /// Clears the bits of the mask, then flips the bits of the value.
    pub struct Tos = "-j TOS" {
        /// Value and mask; iptables requires them.
        tos: Option<TosValue> = "--set-tos" | "--and-tos" | "--or-tos" | "--xor-tos",
    }
}

/// `struct xt_tos_target_info`.
impl Structure for Tos {
    const NAME: &'static str = "TOS";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let TosValue { value, mask } = self.tos?;
        out.u8(value).u8(mask);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (value, mask) = (reader.u8()?, reader.u8()?);
        let tos = Some(TosValue { value, mask });
        Some(Self { tos })
    }
}
