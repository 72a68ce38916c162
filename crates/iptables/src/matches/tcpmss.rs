//! `-m tcpmss`: maximum segment size of TCP.

use crate::field::extension;
use crate::negatable::Negatable;
use crate::number::Range;

extension! {
    /// Matches the maximum segment size of TCP: `-p tcp -m tcpmss --mss 1400:1500`.
    pub struct Tcpmss = "-m tcpmss" {
        /// Maximum segment size in bytes.
        mss: Option<Negatable<Range<u16>>> = "--mss",
    }
}
