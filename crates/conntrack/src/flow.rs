//! Flows: conntrack entries.

use crate::{Family, Key, Labels, State, Status, Tuple};

/// A flow: one conntrack entry.
///
/// Without address translation the reply tuple is the inverted original tuple.
///
/// A table has millions of flows, so what few of them have is in a `Box`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Flow {
    /// Tuple of the original direction.
    pub original: Tuple,
    /// Tuple of the reply direction, as replies arrive.
    pub reply: Tuple,
    /// Zone of both directions, if not 0.
    pub zone: Option<u16>,
    /// Status bits.
    pub status: Status,
    /// Remaining timeout, in seconds.
    pub timeout: Option<u32>,
    /// Protocol state.
    pub state: Option<State>,
    /// Mark of the flow (`ct mark` of nft, `connmark` of iptables).
    pub mark: Option<u32>,
    /// ID that the kernel assigned (`CTA_ID`).
    pub id: Option<u32>,
    /// Reference count in the kernel.
    pub use_count: Option<u32>,
    /// Counters of both directions, if accounting is enabled (`net.netfilter.nf_conntrack_acct`,
    /// which is off by default).
    pub counters: Option<Box<FlowCounters>>,
    /// Optional extensions.
    pub extension: Option<Box<Extension>>,
}

/// Optional extensions of a conntrack entry.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Extension {
    /// Original tuple of the master flow.
    pub master: Option<Tuple>,
    /// Start and end time, if timestamps are enabled.
    pub timestamps: Option<Timestamps>,
    /// Name of the helper.
    pub helper: Option<Box<str>>,
    /// Data of the helper, in its own format.
    pub helper_info: Option<Vec<u8>>,
    /// Labels (`ct label` of nft).
    pub labels: Option<Labels>,
    /// Security context, such as that of SELinux.
    pub security: Option<Box<str>>,
    /// Adjustment of sequence numbers of the original direction.
    pub original_seq_adj: Option<SeqAdj>,
    /// Adjustment of sequence numbers of the reply direction.
    pub reply_seq_adj: Option<SeqAdj>,
    /// SYNPROXY data. `None` if all of it is zero, as in flows that a program created.
    pub synproxy: Option<Synproxy>,
    /// Unknown attributes.
    pub other: Vec<Other>,
}

/// Counters of both directions of a flow.
///
/// Exhaustive: a flow has two directions.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct FlowCounters {
    /// Counters of the original direction.
    pub original: Counters,
    /// Counters of the reply direction.
    pub reply: Counters,
}

/// Packet and byte counters of one direction.
///
/// Exhaustive: the kernel counts packets and bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Counters {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes, including IP headers.
    pub bytes: u64,
}

/// Start and end time of a flow, in nanoseconds since the Unix epoch.
///
/// Exhaustive: these are the attributes of the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Timestamps {
    /// Start time.
    pub start: u64,
    /// End time of a destroyed flow.
    pub stop: Option<u64>,
}

/// Adjustment of TCP sequence numbers (`CTA_SEQADJ_*`).
///
/// Exhaustive: these are the attributes of the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct SeqAdj {
    /// Sequence number from which `offset_after` applies.
    pub correction_pos: u32,
    /// Offset before `correction_pos`.
    pub offset_before: u32,
    /// Offset from `correction_pos` on.
    pub offset_after: u32,
}

/// SYNPROXY data of a flow (`CTA_SYNPROXY_*`).
///
/// Exhaustive: these are the attributes of the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Synproxy {
    /// Initial sequence number.
    pub isn: u32,
    /// Initial timestamp.
    pub its: u32,
    /// Timestamp offset.
    pub tsoff: u32,
}

/// An unknown attribute.
///
/// Exhaustive: an attribute is a type and a value.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Other {
    /// Type without flags.
    pub kind: u16,
    /// Value.
    pub value: Vec<u8>,
}

impl Flow {
    /// Creates a flow with only its tuples.
    ///
    /// [`Client::create`](crate::Client::create) also requires a timeout.
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
            use_count: None,
            counters: None,
            extension: None,
        }
    }

    /// Sets the zone of both directions; 0 is the default zone.
    #[must_use]
    pub fn with_zone(mut self, zone: u16) -> Self {
        self.zone = Some(zone).filter(|zone| *zone != 0);
        self
    }

    /// Adds status bits.
    #[must_use]
    pub fn with_status(mut self, status: Status) -> Self {
        self.status |= status;
        self
    }

    /// Sets the timeout, in seconds.
    #[must_use]
    pub fn with_timeout(mut self, seconds: u32) -> Self {
        self.timeout = Some(seconds);
        self
    }

    /// Sets the protocol state.
    #[must_use]
    pub fn with_state(mut self, state: State) -> Self {
        self.state = Some(state);
        self
    }

    /// Sets the mark.
    #[must_use]
    pub fn with_mark(mut self, mark: u32) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Sets the labels.
    #[must_use]
    pub fn with_labels(mut self, labels: Labels) -> Self {
        self.extension_mut().labels = Some(labels);
        self
    }

    /// Returns the address family.
    pub fn family(&self) -> Family {
        self.original.family()
    }

    /// Returns the key of the flow.
    pub fn key(&self) -> Key {
        Key {
            original: self.original,
            zone: self.zone,
            id: self.id,
        }
    }

    /// Returns the zone of both directions, otherwise that of one direction, otherwise 0.
    pub fn zone_id(&self) -> u16 {
        let zones = [self.zone, self.original.zone, self.reply.zone];
        zones.into_iter().flatten().next().unwrap_or(0)
    }

    /// Returns the labels as bits: bit `n` is label `n`.
    pub fn label_bits(&self) -> u128 {
        let labels = self.extension.as_ref().and_then(|it| it.labels.as_ref());
        labels.map_or(0, Labels::bits)
    }

    /// Returns whether the kernel translates addresses or ports of the flow.
    pub fn is_translated(&self) -> bool {
        !self.reply.equals_ignoring_zone(&self.original.inverted())
    }

    /// Returns the extensions mutably, creating them if necessary.
    pub fn extension_mut(&mut self) -> &mut Extension {
        self.extension.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_without_counters_and_extensions_takes_little_memory() {
        // A dump of a table of a million flows has as many of them.
        assert!(size_of::<Flow>() <= 176, "{}", size_of::<Flow>());
    }
}
