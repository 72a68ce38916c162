//! `-m sctp`: ports and chunks of SCTP.

use std::fmt;

use crate::matches::ports::{self, setters};
use crate::negatable::Negatable;
use crate::number::Ports;
use crate::options::{Extension, Parsed, Unsupported, Values, set_once};

/// Ports and chunks of SCTP: `-m sctp --dport 80`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sctp {
    /// The source port.
    pub sport: Option<Negatable<Ports>>,
    /// The destination port.
    pub dport: Option<Negatable<Ports>>,
    /// The chunks of the packet.
    pub chunks: Option<Negatable<Chunks>>,
}

/// Types of chunks, and how many of them have to be there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Chunks {
    /// How many of them have to be there.
    pub mode: ChunksMode,
    /// The types, in the order of [`Chunk::NAMES`].
    pub chunks: Vec<Chunk>,
}

/// How many of the types have to be there.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ChunksMode {
    /// All of them.
    All,
    /// One of them.
    Any,
    /// No others.
    Only,
}

/// A type of chunks, and bits of it that have to be set or not.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Chunk {
    /// Its place among the names.
    kind: u8,
    /// The bits that are looked at.
    mask: u8,
    /// Those of them that have to be set.
    set: u8,
}

impl ChunksMode {
    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Any => "any",
            Self::Only => "only",
        }
    }
}

impl Chunk {
    /// The names of the types, in the order in which they are printed.
    pub const NAMES: [&'static str; 18] = [
        "DATA",
        "INIT",
        "INIT_ACK",
        "SACK",
        "HEARTBEAT",
        "HEARTBEAT_ACK",
        "ABORT",
        "SHUTDOWN",
        "SHUTDOWN_ACK",
        "ERROR",
        "COOKIE_ECHO",
        "COOKIE_ACK",
        "ECN_ECNE",
        "ECN_CWR",
        "SHUTDOWN_COMPLETE",
        "ASCONF_ACK",
        "FORWARD_TSN",
        "ASCONF",
    ];

    /// Reads a type, such as `DATA`, or with letters of its bits `DATA:Be`.
    ///
    /// A capital letter wants the bit to be set, a small one not to be.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, letters) = text.split_once(':').unwrap_or((text, ""));
        let kind = Self::NAMES
            .iter()
            .position(|known| known.eq_ignore_ascii_case(name))?;
        let mut chunk = Self {
            kind: kind.try_into().ok()?,
            mask: 0,
            set: 0,
        };
        for letter in letters.bytes() {
            let bit = chunk
                .letters()
                .iter()
                .position(|(known, _)| known.eq_ignore_ascii_case(&letter))?;
            let bit = chunk.letters()[bit].1;
            chunk.mask |= bit;
            if letter.is_ascii_uppercase() {
                chunk.set |= bit;
            }
        }
        (text.len() > name.len() + 1 || letters.is_empty() && !text.ends_with(':')).then_some(chunk)
    }

    /// Returns the letters of the bits that the type has, in printed order.
    fn letters(self) -> &'static [(u8, u8)] {
        match Self::NAMES[usize::from(self.kind)] {
            "DATA" => &[(b'I', 8), (b'U', 4), (b'B', 2), (b'E', 1)],
            "ABORT" | "SHUTDOWN_COMPLETE" => &[(b'T', 1)],
            _ => &[],
        }
    }
}

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES[usize::from(self.kind)])?;
        if self.mask != 0 {
            f.write_str(":")?;
        }
        for (letter, bit) in self.letters() {
            if self.mask & bit != 0 {
                let letter = if self.set & bit == 0 {
                    letter.to_ascii_lowercase()
                } else {
                    *letter
                };
                write!(f, "{}", char::from(letter))?;
            }
        }
        Ok(())
    }
}

impl Chunks {
    fn parse(values: &mut Values<'_, '_>) -> Result<Self, Unsupported> {
        let mode = values.parse(|text| {
            let modes = [ChunksMode::All, ChunksMode::Any, ChunksMode::Only];
            modes
                .into_iter()
                .find(|mode| mode.name().eq_ignore_ascii_case(text))
        })?;
        let mut chunks: Vec<Chunk> = values.parse(|text| match text {
            "ALL" => Chunk::NAMES.iter().map(|name| Chunk::parse(name)).collect(),
            "NONE" => Some(Vec::new()),
            _ => text.split(',').map(Chunk::parse).collect(),
        })?;
        chunks.sort_by_key(|chunk| chunk.kind);
        let twice = chunks.windows(2).any(|pair| pair[0].kind == pair[1].kind);
        if twice {
            Err(Unsupported)
        } else {
            Ok(Self { mode, chunks })
        }
    }
}

impl fmt::Display for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.mode.name())?;
        if self.chunks.is_empty() {
            return f.write_str("NONE");
        }
        if self.chunks.len() == Chunk::NAMES.len()
            && self.chunks.iter().all(|chunk| chunk.mask == 0)
        {
            return f.write_str("ALL");
        }
        for (at, chunk) in self.chunks.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            chunk.fmt(f)?;
        }
        Ok(())
    }
}

impl Sctp {
    setters!();

    /// Wants these chunks.
    #[must_use]
    pub fn chunks(mut self, mode: ChunksMode, chunks: impl IntoIterator<Item = Chunk>) -> Self {
        let mut chunks: Vec<_> = chunks.into_iter().collect();
        chunks.sort_by_key(|chunk| chunk.kind);
        self.chunks = Some(Negatable::Is(Chunks { mode, chunks }));
        self
    }
}

impl<'a> Extension<'a> for Sctp {
    fn open() -> Self {
        Self::default()
    }

    fn min_options(&self) -> usize {
        0
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        if option != "--chunk-types" {
            return ports::take(&mut self.sport, &mut self.dport, option, values);
        }
        let negated = values.negated();
        set_once(
            &mut self.chunks,
            Negatable::new(negated, Chunks::parse(values)?),
        )
    }
}

impl fmt::Display for Sctp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m sctp")?;
        ports::write(&self.sport, &self.dport, f)?;
        match &self.chunks {
            Some(chunks) => chunks.write(f, "--chunk-types"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn it_is_read_and_printed() {
        let chunk = |text| Chunk::parse(text).unwrap();
        let all = Chunk::NAMES.map(chunk);
        let negated = Sctp {
            chunks: Some(Negatable::Not(Chunks {
                mode: ChunksMode::Only,
                chunks: all.into(),
            })),
            ..Sctp::new()
        };
        let bits = [chunk("ABORT:T"), chunk("DATA:IuBe")];
        let table = [
            ("-m sctp", Sctp::new()),
            (
                "-m sctp --sport 1 ! --dport 2:3",
                Sctp::new().sport(1).not_dport(2..=3),
            ),
            ("-m sctp --dport 0:65535", Sctp::new().dport(Ports::ALL)),
            (
                "-m sctp --dport 5 --chunk-types any DATA:IuBe,ABORT:T",
                Sctp::new().dport(5).chunks(ChunksMode::Any, bits),
            ),
            ("-m sctp ! --chunk-types only ALL", negated),
            (
                "-m sctp --chunk-types all NONE",
                Sctp::new().chunks(ChunksMode::All, []),
            ),
        ];
        for (text, sctp) in table {
            let rule = Rule::new().matching(sctp);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
    }

    #[test]
    fn chunks_are_sorted_and_odd_ones_kept() {
        let table = [
            ("ANY init,data:eb", "any DATA:be,INIT"),
            ("any DATA,DATA", "any DATA,DATA"),
            ("any DATA:", "any DATA:"),
            ("any INIT:B", "any INIT:B"),
            ("some DATA", "some DATA"),
        ];
        for (types, printed) in table {
            let text = format!("-m sctp --chunk-types {types}");
            let rule = Rule::parse(&text).unwrap();
            assert_eq!(rule.to_string(), format!("-m sctp --chunk-types {printed}"));
        }
    }
}
