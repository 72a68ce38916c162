//! `-m quota`: a number of bytes.

use crate::field::extension;
use crate::negatable::Negatable;

extension! {
    /// Matches until a number of bytes has passed: `-m quota --quota 1000000`.
    pub struct Quota = "-m quota" {
        /// Number of bytes.
        quota: Option<Negatable<u64>> = "--quota",
    }
}
