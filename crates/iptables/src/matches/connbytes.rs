//! `-m connbytes`: bytes or packets of a connection.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer, at, position};
use crate::options::field::{extension, names, word_values};
use crate::options::negatable::Negatable;
use crate::options::number;

extension! {
    /// Matches the transferred bytes or packets of a connection: `-m connbytes --connbytes
    /// 1000 --connbytes-mode bytes --connbytes-dir both`.
    ///
    /// iptables requires all options.
    pub struct Connbytes = "-m connbytes" {
        /// Number of bytes or packets.
        count: Option<Negatable<CountRange>> = "--connbytes",
        /// What is counted.
        mode: Option<ConnbytesMode> = "--connbytes-mode",
        /// Direction in which is counted.
        direction: Option<ConnbytesDirection> = "--connbytes-dir",
    }
    complete |it| it.count.is_some() && it.mode.is_some() && it.direction.is_some();
}

names! {
    /// Units of `-m connbytes`.
    pub enum ConnbytesMode by str::eq {
        /// Packets.
        Packets = "packets",
        /// Bytes.
        Bytes = "bytes",
        /// Average bytes of a packet.
        AveragePacket = "avgpkt",
    }
}

names! {
    /// Directions of `-m connbytes`.
    pub enum ConnbytesDirection by str::eq {
        /// Packets of the client.
        Original = "original",
        /// Packets of the server.
        Reply = "reply",
        /// All packets.
        Both = "both",
    }
}

/// A range of numbers with an optional end, printed as `1000` or `1000:2000`.
///
/// Exhaustive: first and last number are the whole range.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CountRange {
    /// First number.
    pub first: u64,
    /// Last number; `None` for no end.
    pub last: Option<u64>,
}

impl CountRange {
    /// Parses `1`, `1:`, `1:5` or `:5`.
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once(':').unwrap_or((text, ""));
        let first = match first {
            "" => 0,
            first => number::parse(first)?,
        };
        let last = match last {
            "" => None,
            last => Some(number::parse(last)?).filter(|last| *last != u64::MAX),
        };
        Some(Self { first, last })
            .filter(|_| !text.is_empty() && last.is_none_or(|last| first <= last))
    }
}

impl fmt::Display for CountRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        match self.last {
            Some(last) => write!(f, ":{last}"),
            None => Ok(()),
        }
    }
}

word_values! { CountRange = CountRange::parse, }

/// `enum xt_connbytes_what`: `XT_CONNBYTES_PKTS`, `XT_CONNBYTES_BYTES`,
/// `XT_CONNBYTES_AVGPKT`.
const WHAT: [ConnbytesMode; 3] = [
    ConnbytesMode::Packets,
    ConnbytesMode::Bytes,
    ConnbytesMode::AveragePacket,
];

/// `enum xt_connbytes_direction`: `XT_CONNBYTES_DIR_ORIGINAL`, `XT_CONNBYTES_DIR_REPLY`,
/// `XT_CONNBYTES_DIR_BOTH`.
const DIRECTIONS: [ConnbytesDirection; 3] = [
    ConnbytesDirection::Original,
    ConnbytesDirection::Reply,
    ConnbytesDirection::Both,
];

/// `struct xt_connbytes_info`. A negated range has its ends swapped.
impl Structure for Connbytes {
    const NAME: &'static str = "connbytes";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let count = self.count?;
        let CountRange { first, last } = *count.value();
        let last = last.unwrap_or(u64::MAX);
        match count {
            Negatable::Is(_) => out.u64(first).u64(last),
            Negatable::Not(_) => out.u64(last).u64(first),
        };
        out.u8(position(&WHAT, &self.mode?)?);
        out.u8(position(&DIRECTIONS, &self.direction?)?);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (from, to) = (reader.u64()?, reader.u64()?);
        let range = CountRange {
            first: from.min(to),
            last: Some(from.max(to)).filter(|last| *last != u64::MAX),
        };
        Some(Self {
            count: Some(Negatable::new(from > to, range)),
            mode: Some(at(&WHAT, reader.u8()?)?),
            direction: Some(at(&DIRECTIONS, reader.u8()?)?),
        })
    }
}
