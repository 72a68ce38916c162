//! `-j TCPOPTSTRIP`: removal of TCP options.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::{extension, word_values};
use crate::options::number;

extension! {
    /// Replaces TCP options by no operation: `-p tcp -j TCPOPTSTRIP --strip-options 2`.
    pub struct Tcpoptstrip = "-j TCPOPTSTRIP" {
        /// Numbers of options.
        options: Option<TcpOptions> = "--strip-options",
    }
    complete |_| true;
}

/// Numbers of TCP options, printed as `2,3`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TcpOptions(Vec<u8>);

/// Names of TCP options.
const NAMES: [(&str, u8); 6] = [
    ("wscale", 3),
    ("mss", 2),
    ("sack-permitted", 4),
    ("sack", 5),
    ("timestamp", 8),
    ("md5", 19),
];

impl TcpOptions {
    /// Creates a list. Returns `None` for the numbers 0 and 1, which are no options, for
    /// a repeated number and for an empty list.
    pub fn new(options: impl Into<Vec<u8>>) -> Option<Self> {
        let mut options = options.into();
        options.sort_unstable();
        let is_twice = options.windows(2).any(|pair| pair[0] == pair[1]);
        (*options.first()? > 1 && !is_twice).then_some(Self(options))
    }

    /// Returns the numbers in ascending order.
    pub fn get(&self) -> &[u8] {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let option = |text: &str| match NAMES.iter().find(|(name, _)| *name == text) {
            Some((_, option)) => Some(*option),
            None => number::parse_as(text),
        };
        Self::new(text.split(',').map(option).collect::<Option<Vec<_>>>()?)
    }
}

impl fmt::Display for TcpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, option) in self.0.iter().enumerate() {
            write!(f, "{}{option}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

word_values! { TcpOptions = TcpOptions::parse, }

/// Number of words of `strip_bmap`.
const WORDS: usize = 8;

/// `struct xt_tcpoptstrip_target_info`.
impl Structure for Tcpoptstrip {
    const NAME: &'static str = "TCPOPTSTRIP";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let mut words = [0_u32; WORDS];
        for option in self.options.as_ref().map_or(&[][..], TcpOptions::get) {
            words[usize::from(option / 32)] |= 1 << (option % 32);
        }
        for word in words {
            out.u32(word);
        }
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut words = [0; WORDS];
        for word in &mut words {
            *word = reader.u32()?;
        }
        let is_set = |option: &u8| words[usize::from(option / 32)] >> (option % 32) & 1 != 0;
        let options: Vec<_> = (0..=u8::MAX).filter(is_set).collect();
        let options = match options.is_empty() {
            true => None,
            false => Some(TcpOptions::new(options)?),
        };
        Some(Self { options })
    }
}
