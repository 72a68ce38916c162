//! `-m realm`: routing realms.

use crate::field::extension;
use crate::negatable::Negatable;
use crate::number::MaskedMatch;

extension! {
    /// Matches the routing realm: `-m realm --realm 0x1`.
    ///
    /// Only numbers are supported, not names of realms.
    pub struct Realm = "-m realm" {
        /// Realm.
        realm: Option<Negatable<MaskedMatch>> = "--realm",
    }
}
