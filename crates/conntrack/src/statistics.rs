//! Statistics of connection tracking.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::Attrs;

use crate::uapi::*;
use crate::{Other, wire};

/// Statistics of one CPU since the creation of the network namespace.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CpuStatistics {
    /// CPU number.
    pub cpu: u16,
    /// Reply tuples that NAT could not use because a flow had them. Old kernels count all
    /// lookups that found a flow.
    pub found: u32,
    /// Packets that could not be tracked.
    pub invalid: u32,
    /// Flows inserted by requests. Old kernels count all inserted flows.
    pub insert: u32,
    /// Failed insertions of flows that existed already.
    pub insert_failed: u32,
    /// Packets dropped because no flow could be allocated or inserted, or because the
    /// protocol tracker dropped the packet.
    pub drop: u32,
    /// Flows dropped to make room in a full table.
    pub early_drop: u32,
    /// ICMP packets that could not be tracked.
    pub error: u32,
    /// Lookups restarted because of a table resize.
    pub search_restart: u32,
    /// Resolved insertion races between flows with the same tuple.
    pub clash_resolve: u32,
    /// Insertions that failed because the hash bucket had too many entries.
    pub chain_too_long: u32,
    /// Unknown attributes.
    pub other: Vec<Other>,
}

impl CpuStatistics {
    /// Decodes the payload of a message.
    ///
    /// # Errors
    ///
    /// The payload is malformed.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let attributes = wire::attributes(payload)?;
        // The resource ID of the header is the CPU number.
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
                CTA_STATS_FOUND => &mut statistics.found,
                CTA_STATS_INVALID => &mut statistics.invalid,
                CTA_STATS_INSERT => &mut statistics.insert,
                CTA_STATS_INSERT_FAILED => &mut statistics.insert_failed,
                CTA_STATS_DROP => &mut statistics.drop,
                CTA_STATS_EARLY_DROP => &mut statistics.early_drop,
                CTA_STATS_ERROR => &mut statistics.error,
                CTA_STATS_SEARCH_RESTART => &mut statistics.search_restart,
                CTA_STATS_CLASH_RESOLVE => &mut statistics.clash_resolve,
                CTA_STATS_CHAIN_TOOLONG => &mut statistics.chain_too_long,
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

/// Number of entries in the table of a network namespace.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// Number of flows.
    pub entries: u32,
    /// Maximum number of flows; `None` if the kernel does not report it.
    pub max_entries: Option<u32>,
}

impl Usage {
    /// Decodes the payload of a message.
    ///
    /// # Errors
    ///
    /// The payload is malformed.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut usage = Self::default();
        for attr in Attrs::new(wire::attributes(payload)?) {
            let attr = attr?;
            match attr.kind {
                CTA_STATS_GLOBAL_ENTRIES => usage.entries = attr.be32()?,
                CTA_STATS_GLOBAL_MAX_ENTRIES => usage.max_entries = Some(attr.be32()?),
                _ => {}
            }
        }
        Ok(usage)
    }
}
