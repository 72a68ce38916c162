//! `-m connmark`: connection mark.

use crate::field::extension;
use crate::negatable::Negatable;
use crate::number::MaskedMatch;

extension! {
    /// Matches the connection mark: `-m connmark --mark 0x1/0xff`.
    pub struct Connmark = "-m connmark" {
        /// Value and mask.
        mark: Option<Negatable<MaskedMatch>> = "--mark",
    }
}
