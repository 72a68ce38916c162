//! `-m hbh`: hop-by-hop options header of IPv6.

use std::fmt;

use crate::field::{extension, word_values};
use crate::negatable::Negatable;
use crate::number;

extension! {
    /// Matches the hop-by-hop options header: `-m hbh --hbh-opts 5:2`.
    pub struct Hbh = "-m hbh" {
        /// Length of the header in bytes.
        length: Option<Negatable<u32>> = "--hbh-len",
        /// Options of the header.
        options: Option<HeaderOptions> = "--hbh-opts",
    }
    complete |_| true;
}

/// Options of a header, printed as `4:2,5`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HeaderOptions(Vec<(u8, Option<u8>)>);

impl HeaderOptions {
    /// Maximum number of options.
    const MAX: usize = 16;

    /// Creates a list of 1 to 16 option types with an optional length in bytes, otherwise
    /// returns `None`.
    pub fn new(options: impl IntoIterator<Item = (u8, Option<u8>)>) -> Option<Self> {
        let options: Vec<_> = options.into_iter().collect();
        (1..=Self::MAX)
            .contains(&options.len())
            .then_some(Self(options))
    }

    /// Returns the types with their lengths.
    pub fn get(&self) -> &[(u8, Option<u8>)] {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let option = |text: &str| match text.split_once(':') {
            Some((ty, len)) => Some((number::parse_as(ty)?, Some(number::parse_as(len)?))),
            None => Some((number::parse_as(text)?, None)),
        };
        Self::new(text.split(',').map(option).collect::<Option<Vec<_>>>()?)
    }
}

impl fmt::Display for HeaderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (ty, len)) in self.0.iter().enumerate() {
            write!(f, "{}{ty}", if at == 0 { "" } else { "," })?;
            if let Some(len) = len {
                write!(f, ":{len}")?;
            }
        }
        Ok(())
    }
}

word_values! { HeaderOptions = HeaderOptions::parse, }
