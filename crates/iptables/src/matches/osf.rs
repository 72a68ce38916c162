//! `-m osf`: operating system of the sender.

use std::borrow::Cow;

use crate::field::extension;
use crate::negatable::Negatable;

extension! {
    /// Matches the operating system of the sender: `-p tcp -m osf --genre Linux`.
    pub struct Osf<'a> = "-m osf" {
        /// Name of the operating system.
        genre: Option<Negatable<Cow<'a, str>>> = "--genre",
        /// Comparison of the time to live, 0 to 2.
        ttl: Option<u8> = "--ttl",
        /// Log level, 0 to 2.
        log: Option<u8> = "--log",
    }
    complete |it| it.genre.is_some() && it.ttl.max(it.log).is_none_or(|it| it < 3);
}
