//! Flows: what the kernel remembers of a connection.

use std::fmt;

use crate::{Key, State, Status, Tuple};

/// The family of the addresses of a flow.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the number of the kernel, `NFPROTO_*`.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        })
    }
}

/// A flow, as the kernel tells it.
///
/// Which addresses are translated follows from the tuples: answers go to where
/// packets came from, unless the kernel translates them.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Flow {
    /// Packets of whoever began it.
    pub original: Tuple,
    /// Answers, as they come in.
    pub reply: Tuple,
    /// The zone, if it is that of both directions and not 0.
    pub zone: Option<u16>,
    /// What the kernel knows of it.
    pub status: Status,
    /// In how many seconds it will be forgotten.
    pub timeout: Option<u32>,
    /// What the protocol knows of it.
    pub state: Option<State>,
    /// The mark.
    pub mark: Option<u32>,
    /// What tells it from flows of the same tuples.
    pub id: Option<u32>,
    /// How many parts of the kernel hold it.
    pub uses: Option<u32>,
    /// What passed in the original direction, where that is counted.
    pub original_counters: Option<Counters>,
    /// What passed in the reply direction, where that is counted.
    pub reply_counters: Option<Counters>,
    /// What few flows have.
    pub extension: Option<Box<Extension>>,
}

/// What few flows have.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Extension {
    /// The original tuple of the flow that announced it.
    pub master: Option<Tuple>,
    /// When it began and ended, where that is remembered.
    pub timestamps: Option<Timestamps>,
    /// The name of its helper.
    pub helper: Option<Box<str>>,
    /// What the helper knows of it, as the helper says it.
    pub helper_info: Option<Vec<u8>>,
    /// Its labels.
    pub labels: Option<Labels>,
    /// The security context.
    pub security: Option<Box<str>>,
    /// How sequence numbers of the original direction are changed.
    pub original_adjustment: Option<Adjustment>,
    /// How sequence numbers of the reply direction are changed.
    pub reply_adjustment: Option<Adjustment>,
    /// What a proxy of SYN packets knows of it.
    pub synproxy: Option<Synproxy>,
    /// What else the kernel said, as it said it.
    pub other: Vec<Other>,
}

/// How much passed in one direction.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Bytes, with those of headers from IP on.
    pub bytes: u64,
}

/// When a flow began and ended, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Timestamps {
    /// When it began.
    pub start: u64,
    /// When it ended, if it did.
    pub stop: Option<u64>,
}

/// How sequence numbers of TCP are changed: `CTA_SEQADJ_*`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Adjustment {
    /// From which number on.
    pub position: u32,
    /// By how much before.
    pub before: u32,
    /// By how much from there on.
    pub after: u32,
}

/// What a proxy of SYN packets knows of a flow: `CTA_SYNPROXY_*`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Synproxy {
    /// The initial sequence number.
    pub isn: u32,
    /// The initial timestamp.
    pub its: u32,
    /// The offset of timestamps.
    pub tsoff: u32,
}

/// Labels of a flow: a set of bits, in the bytes of the kernel.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Labels(pub Vec<u8>);

/// The kernel keeps labels in words of this many bytes, of its own byte order.
const WORD: usize = size_of::<usize>();

impl Labels {
    /// Tells whether a label is set.
    pub fn contains(&self, label: u16) -> bool {
        let (word, bit) = (usize::from(label) / (8 * WORD), u32::from(label));
        let words = self.0.chunks_exact(WORD);
        let word = words.map(TryInto::try_into).nth(word);
        let Some(Ok(word)) = word else {
            return false;
        };
        usize::from_ne_bytes(word) >> (bit % usize::BITS) & 1 == 1
    }
}

/// An attribute that this crate does not know.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Other {
    /// The type, without its flags.
    pub kind: u16,
    /// What it holds.
    pub value: Vec<u8>,
}

impl Flow {
    /// Returns a flow of which nothing but the tuples is known, as of one that
    /// is to be made.
    ///
    /// To be made it needs a timeout, too.
    pub fn new(original: Tuple, reply: Tuple) -> Self {
        Self {
            original,
            reply,
            zone: None,
            status: Status::default(),
            timeout: None,
            state: None,
            mark: None,
            id: None,
            uses: None,
            original_counters: None,
            reply_counters: None,
            extension: None,
        }
    }

    /// Returns the family of the addresses.
    pub fn family(&self) -> Family {
        self.original.family()
    }

    /// Returns what the flow is deleted by.
    pub fn key(&self) -> Key {
        Key {
            original: self.original,
            zone: self.zone,
            id: self.id,
        }
    }

    /// Returns the zone, be it of both directions or of one; without one, 0.
    pub fn zone_id(&self) -> u16 {
        let zones = [self.zone, self.original.zone, self.reply.zone];
        zones.into_iter().flatten().next().unwrap_or(0)
    }

    /// Tells whether answers do not simply come from where packets went.
    pub fn is_translated(&self) -> bool {
        !self.reply.is_between_the_same(&self.original.inverted())
    }

    /// Returns what few flows have, to be filled in.
    pub fn extension_mut(&mut self) -> &mut Extension {
        self.extension.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bits_of_words() {
        let mut word = [0; 2 * WORD];
        word[..WORD].copy_from_slice(&(1_usize << 5 | 1 << 17).to_ne_bytes());
        word[WORD..].copy_from_slice(&1_usize.to_ne_bytes());
        let labels = Labels(word.to_vec());
        let set: Vec<u16> = (0..300).filter(|label| labels.contains(*label)).collect();
        assert_eq!(set, [5, 17, u16::try_from(usize::BITS).unwrap()]);
    }
}
