//! `-m realm`: routing realms.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;
use crate::options::negatable::Negatable;
use crate::options::number::{Masked, MaskedMatch};

extension! {
    /// Matches the routing realm: `-m realm --realm 0x1`.
    ///
    /// Only numbers are supported, not names of realms.
    pub struct Realm = "-m realm" {
        /// Realm.
        realm: Option<Negatable<MaskedMatch>> = "--realm",
    }
}

/// `struct xt_realm_info`.
impl Structure for Realm {
    const NAME: &'static str = "realm";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let realm = self.realm?;
        let MaskedMatch(Masked { value, mask }) = *realm.value();
        out.u32(value).u32(mask).u8(realm.is_negated().into());
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (value, mask) = (reader.u32()?, reader.u32()?);
        let realm = MaskedMatch(Masked { value, mask });
        let realm = Some(Negatable::new(reader.u8()? != 0, realm));
        Some(Self { realm })
    }
}
