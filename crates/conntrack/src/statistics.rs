//! What the kernel counts.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::Attrs;

use crate::{Other, wire};

/// What one processor counted since the start of the network namespace.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CpuStatistics {
    /// The number of the processor.
    pub cpu: u16,
    /// Lookups that found a flow.
    pub found: u32,
    /// Packets that could not be tracked.
    pub invalid: u32,
    /// Flows that were put into the table.
    pub insert: u32,
    /// Flows that could not be put into the table, as it had the same.
    pub insert_failed: u32,
    /// Packets dropped as the table was full, or memory lacked.
    pub drop: u32,
    /// Flows dropped to make room in a full table.
    pub early_drop: u32,
    /// Packets of ICMP that could not be tracked.
    pub error: u32,
    /// Lookups that began again as the table had changed.
    pub search_restart: u32,
    /// Races between flows of the same tuple that were resolved.
    pub clash_resolve: u32,
    /// Flows that found too many others in their place of the table.
    pub chain_too_long: u32,
    /// What else the kernel said, as it said it.
    pub other: Vec<Other>,
}

impl CpuStatistics {
    /// Reads the payload of a message.
    ///
    /// # Errors
    ///
    /// Bytes that are no statistics.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let attributes = wire::attributes(payload)?;
        // The header has the number of the processor in place of a resource.
        let cpu = match payload {
            [_, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
            _ => 0,
        };
        let mut statistics = Self {
            cpu,
            ..Self::default()
        };
        for attr in Attrs::new(attributes) {
            let attr = attr?;
            let count = match attr.kind {
                2 => &mut statistics.found,
                4 => &mut statistics.invalid,
                8 => &mut statistics.insert,
                9 => &mut statistics.insert_failed,
                10 => &mut statistics.drop,
                11 => &mut statistics.early_drop,
                12 => &mut statistics.error,
                13 => &mut statistics.search_restart,
                14 => &mut statistics.clash_resolve,
                15 => &mut statistics.chain_too_long,
                kind => {
                    statistics.other.push(Other {
                        kind,
                        value: attr.value.to_vec(),
                    });
                    continue;
                }
            };
            *count = attr.be32()?;
        }
        Ok(statistics)
    }
}

/// How full the table of a network namespace is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// How many flows there are.
    pub entries: u32,
    /// How many there can be, where the kernel says so (since Linux 5.12).
    pub max_entries: Option<u32>,
}

impl Usage {
    /// Reads the payload of a message.
    ///
    /// # Errors
    ///
    /// Bytes that are no usage.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut usage = Self::default();
        for attr in Attrs::new(wire::attributes(payload)?) {
            let attr = attr?;
            match attr.kind {
                1 => usage.entries = attr.be32()?,
                2 => usage.max_entries = Some(attr.be32()?),
                _ => {}
            }
        }
        Ok(usage)
    }
}
