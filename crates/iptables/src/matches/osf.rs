//! `-m osf`: operating system of the sender.

use std::borrow::Cow;

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::field::extension;
use crate::options::negatable::Negatable;

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

/// Length of the name of an operating system with its NUL byte.
const MAXGENRELEN: usize = 32;

// Flags of `struct xt_osf_info`. `XT_OSF_GENRE` is not set.
const XT_OSF_TTL: u32 = 1 << 1;
const XT_OSF_LOG: u32 = 1 << 2;
const XT_OSF_INVERT: u32 = 1 << 3;

/// `struct xt_osf_info`.
impl Structure for Osf<'_> {
    const NAME: &'static str = "osf";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let genre = self.genre.as_ref()?;
        out.text(genre.value(), MAXGENRELEN)?;
        out.u32(genre.value().len().try_into().ok()?);
        out.u32(flags([
            (self.ttl.is_some(), XT_OSF_TTL),
            (self.log.is_some(), XT_OSF_LOG),
            (genre.is_negated(), XT_OSF_INVERT),
        ]));
        out.u32(self.log.unwrap_or(0).into());
        out.u32(self.ttl.unwrap_or(0).into());
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let genre = reader.text(MAXGENRELEN)?;
        reader.u32()?;
        let flags = reader.u32()?;
        let [log, ttl] = [reader.u32()?, reader.u32()?].map(u8::try_from);
        Some(Self {
            genre: Some(Negatable::new(flags & XT_OSF_INVERT != 0, genre.into())),
            ttl: (flags & XT_OSF_TTL != 0).then_some(ttl.ok()?),
            log: (flags & XT_OSF_LOG != 0).then_some(log.ok()?),
        })
    }
}
