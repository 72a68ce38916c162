//! Matches of connections: `-m connbytes`, `-m connlabel`, `-m connmark` and
//! `-m helper`.

use std::fmt;

use crate::field::{Text, extension, names, word_values};
use crate::negatable::Negatable;
use crate::number::{self, MaskedMatch};

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

extension! {
    /// Matches a label of the connection: `-m connlabel --label "40"`.
    pub struct Connlabel = "-m connlabel" {
        /// Label.
        label: Option<Negatable<ConnectionLabel>> = "--label",
        /// Whether the label is set on the connection.
        set: bool = "--set",
    }
    complete |it| it.label.is_some();
}

/// The number of a label, printed as `"40"`.
///
/// Names of labels are not supported: they depend on a file of the host.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ConnectionLabel(u8);

impl ConnectionLabel {
    /// Creates a label from 0 to 127, otherwise returns `None`.
    pub fn new(number: u8) -> Option<Self> {
        (number < 128).then_some(Self(number))
    }

    /// Returns the number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for ConnectionLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

word_values! { ConnectionLabel = |text| Self::new(number::parse_as(text)?), }

extension! {
    /// Matches the connection mark: `-m connmark --mark 0x1/0xff`.
    pub struct Connmark = "-m connmark" {
        /// Value and mask.
        mark: Option<Negatable<MaskedMatch>> = "--mark",
    }
}

extension! {
    /// Matches connections of a conntrack helper: `-m helper --helper ftp-2121`.
    pub struct Helper<'a> = "-m helper" {
        /// Name of the helper, with an optional port.
        name: Option<Negatable<Text<'a>>> = "--helper",
    }
}
