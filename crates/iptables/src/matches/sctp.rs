//! `-m sctp`: SCTP ports and chunk types.

use std::fmt;

use crate::extensions::structure::{Conditions, Reader, Structure, Writer};
use crate::matches::ports::{self, setters};
use crate::options::negatable::Negatable;
use crate::options::number::Ports;
use crate::options::{Extension, Parsed, Unsupported, Values, set_once};

/// Matches SCTP ports and chunk types: `-m sctp --dport 80`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sctp {
    /// Source port.
    pub sport: Option<Negatable<Ports>>,
    /// Destination port.
    pub dport: Option<Negatable<Ports>>,
    /// Chunk types of the packet.
    pub chunks: Option<Negatable<Chunks>>,
}

/// A condition on chunk types.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Chunks {
    /// How the types are compared.
    pub mode: ChunksMode,
    /// Chunk types, in the order of [`Chunk::NAMES`].
    pub chunks: Vec<Chunk>,
}

/// Comparison of chunk types.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ChunksMode {
    /// The packet has all of these types.
    All,
    /// The packet has any of these types.
    Any,
    /// The packet has no other types.
    Only,
}

/// A chunk type with conditions on its flags.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Chunk {
    /// Index in [`Chunk::NAMES`].
    kind: u8,
    /// Flags to compare.
    mask: u8,
    /// Flags that must be set.
    set: u8,
}

/// Numbers of the types, in the order of [`Chunk::NAMES`].
const TYPES: [u8; 22] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 64, 128, 130, 132, 192, 193, 194,
];

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
    /// Names of the types in printing order.
    pub const NAMES: [&'static str; 22] = [
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
        "I_DATA",
        "ASCONF_ACK",
        "RE_CONFIG",
        "PAD",
        "FORWARD_TSN",
        "ASCONF",
        "I_FORWARD_TSN",
    ];

    /// Parses a chunk type, such as `DATA`, or with flag letters `DATA:Be`.
    ///
    /// An upper-case letter requires the flag to be set, a lower-case letter to be
    /// clear. Returns `None` for an unknown type or flag letter.
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

    /// Returns the number of the type, the flags to compare, and those that must be set.
    pub(crate) fn parts(self) -> (u8, u8, u8) {
        (TYPES[usize::from(self.kind)], self.mask, self.set)
    }

    /// Creates a chunk type from its [`parts`](Self::parts).
    pub(crate) fn from_parts((number, mask, set): (u8, u8, u8)) -> Option<Self> {
        let kind = TYPES.iter().position(|ty| *ty == number)?;
        let kind = kind.try_into().ok()?;
        Some(Self { kind, mask, set })
    }

    /// Returns the flag letters of the type in printing order.
    fn letters(self) -> &'static [(u8, u8)] {
        match Self::NAMES[usize::from(self.kind)] {
            "DATA" | "I_DATA" => &[(b'I', 8), (b'U', 4), (b'B', 2), (b'E', 1)],
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

    /// Matches these chunk types.
    #[must_use]
    pub fn with_chunks(
        mut self,
        mode: ChunksMode,
        chunks: impl IntoIterator<Item = Chunk>,
    ) -> Self {
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

    fn options() -> &'static [&'static str] {
        &[
            "--source-port",
            "--sport",
            "--destination-port",
            "--dport",
            "--chunk-types",
        ]
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

// Flags `flags` and `invflags` of `struct xt_sctp_info`.
const XT_SCTP_SRC_PORTS: u32 = 1;
const XT_SCTP_DEST_PORTS: u32 = 2;
const XT_SCTP_CHUNK_TYPES: u32 = 4;

/// `SCTP_CHUNK_MATCH_ANY`, `SCTP_CHUNK_MATCH_ALL` and `SCTP_CHUNK_MATCH_ONLY`.
const MODES: [(ChunksMode, u32); 3] = [
    (ChunksMode::Any, 1),
    (ChunksMode::All, 2),
    (ChunksMode::Only, 4),
];

/// Length of `chunkmap`: a bit for each of 256 types, eight times repeated.
///
/// The header divides the number of types by the bytes, not the bits, of a word.
const MAP_LEN: usize = 256;
/// Bits of a word of the map.
const WORD_BITS: u8 = 32;
/// Number of entries of `flag_info`.
const XT_NUM_SCTP_FLAGS: usize = 4;
/// An unused `struct xt_sctp_flag_info`.
const UNUSED: [u8; 3] = [0xff, 0, 0];

/// Writes `chunkmap` to `flag_count`. Returns `None` for too many types with flags.
fn write_chunks(chunks: Option<&Chunks>, out: &mut Writer<'_>) -> Option<()> {
    let mut map = [0_u32; MAP_LEN / 4];
    let mut flags = [UNUSED; XT_NUM_SCTP_FLAGS];
    let mut count = 0;
    let is_all = chunks.is_some_and(|it| it.chunks.len() == Chunk::NAMES.len());
    for chunk in chunks.into_iter().flat_map(|it| &it.chunks) {
        let (number, mask, set) = chunk.parts();
        map[usize::from(number / WORD_BITS)] |= 1 << (number % WORD_BITS);
        if mask != 0 {
            *flags.get_mut(count)? = [number, set, mask];
            count += 1;
        }
    }
    if is_all && count == 0 {
        map = [u32::MAX; MAP_LEN / 4];
    }
    for word in map {
        out.u32(word);
    }
    let mode = MODES
        .iter()
        .find(|(mode, _)| chunks.is_some_and(|it| it.mode == *mode));
    out.u32(mode.map_or(0, |(_, number)| *number));
    for entry in flags {
        out.bytes(&entry);
    }
    out.u32(u32::try_from(count).ok()?);
    Some(())
}

/// Reads `chunkmap` to `flag_count`. The inner value is `None` for unknown types.
fn read_chunks(reader: &mut Reader<'_>) -> Option<Option<Chunks>> {
    let mut map = [0; MAP_LEN / 4];
    for word in &mut map {
        *word = reader.u32()?;
    }
    let number = reader.u32()?;
    let mut flags = [UNUSED; XT_NUM_SCTP_FLAGS];
    for entry in &mut flags {
        *entry = reader.array()?;
    }
    let count = usize::try_from(reader.u32()?).ok()?;
    let flags = flags.get(..count)?;
    let is_all = map == [u32::MAX; MAP_LEN / 4];
    let is_set =
        |number: &u8| map[usize::from(number / WORD_BITS)] & 1 << (number % WORD_BITS) != 0;
    let types = (0..=u8::MAX).filter(is_set);
    let chunk = |number| {
        let mut flags = flags.iter();
        let [_, set, mask] = flags.find(|[ty, ..]| *ty == number).unwrap_or(&UNUSED);
        Chunk::from_parts((number, *mask, *set))
    };
    let chunks: Option<Vec<_>> = match is_all {
        true => Some(types.filter_map(chunk).collect()),
        false => types.map(chunk).collect(),
    };
    let mode = MODES.iter().find(|(_, known)| *known == number);
    let parts = mode.map(|(mode, _)| *mode).zip(chunks);
    Some(parts.map(|(mode, chunks)| Chunks { mode, chunks }))
}

/// `struct xt_sctp_info`.
impl Structure for Sctp {
    const NAME: &'static str = "sctp";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let mut conditions = Conditions::default();
        conditions.put(XT_SCTP_SRC_PORTS, &self.sport);
        conditions.put(XT_SCTP_DEST_PORTS, &self.dport);
        let chunks = conditions.put(XT_SCTP_CHUNK_TYPES, &self.chunks);
        ports::write_or(out, &self.dport, ports::NONE);
        ports::write_or(out, &self.sport, ports::NONE);
        write_chunks(chunks.as_ref(), out)?;
        out.u32(conditions.used).u32(conditions.negated);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (dport, sport) = (ports::read(reader)?, ports::read(reader)?);
        let chunks = read_chunks(reader)?;
        let (used, negated) = (reader.u32()?, reader.u32()?);
        let conditions = Conditions { used, negated };
        Some(Self {
            sport: conditions.get(XT_SCTP_SRC_PORTS, sport),
            dport: conditions.get(XT_SCTP_DEST_PORTS, dport),
            chunks: match conditions.has(XT_SCTP_CHUNK_TYPES) {
                true => conditions.get(XT_SCTP_CHUNK_TYPES, chunks?),
                false => None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rule, Transport};

    #[test]
    fn sctp_is_parsed_and_printed() {
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
            ("-p sctp -m sctp", Sctp::new()),
            (
                "-p sctp -m sctp --sport 1 ! --dport 2:3",
                Sctp::new().with_sport(1).with_not_dport(2..=3),
            ),
            (
                "-p sctp -m sctp --dport 0:65535",
                Sctp::new().with_dport(Ports::ALL),
            ),
            (
                "-p sctp -m sctp --dport 5 --chunk-types any DATA:IuBe,ABORT:T",
                Sctp::new().with_dport(5).with_chunks(ChunksMode::Any, bits),
            ),
            ("-p sctp -m sctp ! --chunk-types only ALL", negated),
            (
                "-p sctp -m sctp --chunk-types all NONE",
                Sctp::new().with_chunks(ChunksMode::All, []),
            ),
        ];
        for (text, sctp) in table {
            let rule = Rule::new().with_protocol(Transport::Sctp).with_match(sctp);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
    }

    #[test]
    fn chunk_types_are_sorted_and_unsupported_ones_preserved() {
        let table = [
            ("ANY init,data:eb", "any DATA:be,INIT"),
            ("any DATA,DATA", "any DATA,DATA"),
            ("any DATA:", "any DATA:"),
            ("any INIT:B", "any INIT:B"),
            ("some DATA", "some DATA"),
        ];
        for (types, printed) in table {
            let text = format!("-p sctp -m sctp --chunk-types {types}");
            let rule = Rule::parse(&text).unwrap();
            assert_eq!(
                rule.to_string(),
                format!("-p sctp -m sctp --chunk-types {printed}")
            );
        }
    }
}
