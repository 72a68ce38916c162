//! `-m helper`: conntrack helpers.

use crate::field::{Text, extension};
use crate::negatable::Negatable;

extension! {
    /// Matches connections of a conntrack helper: `-m helper --helper ftp-2121`.
    pub struct Helper<'a> = "-m helper" {
        /// Name of the helper, with an optional port.
        name: Option<Negatable<Text<'a>>> = "--helper",
    }
}
