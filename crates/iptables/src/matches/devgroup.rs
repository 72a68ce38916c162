//! `-m devgroup`: groups of interfaces.

use crate::field::extension;
use crate::negatable::Negatable;
use crate::number::MaskedMatch;

extension! {
    /// Matches the groups of interfaces: `-m devgroup --src-group 5`.
    ///
    /// Only numbers are supported, not names of groups.
    pub struct Devgroup = "-m devgroup" {
        /// Group of the input interface.
        source: Option<Negatable<MaskedMatch>> = "--src-group",
        /// Group of the output interface.
        destination: Option<Negatable<MaskedMatch>> = "--dst-group",
    }
}
