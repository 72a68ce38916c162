//! Counters of rules and policies.

use std::fmt;

/// Counters of a rule or policy: `[packets:bytes]`.
///
/// Exhaustive: iptables counts packets and bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Counters {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Counters {
    /// Parses counters with brackets.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::split(text).and_then(|(counters, rest)| rest.is_empty().then_some(counters))
    }

    /// Parses the leading counters and returns the remaining text.
    pub(crate) fn split(text: &str) -> Option<(Self, &str)> {
        let (counters, rest) = text.strip_prefix('[')?.split_once(']')?;
        let (packets, bytes) = counters.split_once(':')?;
        Some((Self::of_numbers(packets, bytes)?, rest))
    }

    /// Parses the numbers of packets and bytes.
    pub(crate) fn of_numbers(packets: &str, bytes: &str) -> Option<Self> {
        Some(Self {
            packets: packets.parse().ok()?,
            bytes: bytes.parse().ok()?,
        })
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}:{}]", self.packets, self.bytes)
    }
}
