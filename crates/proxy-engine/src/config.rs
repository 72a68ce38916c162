//! Configuration of the engine in any mode, fixed at start.

use std::sync::Arc;

use vipline_service_model::{DetectLocal, ExternalIps, Family, NodePortAddresses, Timestamp};

use crate::{Error, Intervals};

/// Configuration of the engine in any mode, fixed at start.
///
/// The default equals kube-proxy with `--proxy-mode nftables`, except for the empty node
/// name.
///
/// ```
/// use proxy_engine::{Config, Family};
///
/// let config = Config::new("node-1").with_families([Family::V4]);
/// assert_eq!(config.masquerade_mark.value(), 0x4000);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The IP families to program, each at most once.
    pub families: Vec<Family>,
    /// Name of this node. With an empty name no endpoint is local.
    pub node_name: Arc<str>,
    /// Packet mark of connections to masquerade. Default: bit 14, 0x4000.
    pub masquerade_mark: Mark,
    /// Whether all traffic to cluster IPs is masqueraded.
    pub masquerade_all: bool,
    /// How to detect traffic of pods of this node. Default: by no network, so no traffic
    /// is detected.
    pub detect_local: DetectLocal,
    /// Node addresses on which node ports are served. Default: the first node address of
    /// each family.
    pub node_port_addresses: NodePortAddresses,
    /// Whether external IPs of Services are served. Default: they are.
    pub external_ips: ExternalIps,
    /// Intervals between syncs.
    pub intervals: Intervals,
    /// Start time of the process. Latencies of changes before this time are not measured.
    pub start_time: Option<Timestamp>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            families: Family::ALL.to_vec(),
            node_name: Arc::from(""),
            masquerade_mark: Mark::default(),
            masquerade_all: false,
            detect_local: DetectLocal::ClusterCidr(Vec::new()),
            node_port_addresses: NodePortAddresses::Primary,
            external_ips: ExternalIps::default(),
            intervals: Intervals::default(),
            start_time: None,
        }
    }
}

impl Config {
    /// Returns the default configuration for a node.
    pub fn new(node_name: impl Into<Arc<str>>) -> Self {
        Self::default().with_node_name(node_name)
    }

    /// Sets the IP families to program.
    #[must_use]
    pub fn with_families(mut self, families: impl Into<Vec<Family>>) -> Self {
        self.families = families.into();
        self
    }

    /// Sets the name of this node.
    #[must_use]
    pub fn with_node_name(mut self, node_name: impl Into<Arc<str>>) -> Self {
        self.node_name = node_name.into();
        self
    }

    /// Sets the packet mark of connections to masquerade.
    #[must_use]
    pub fn with_masquerade_mark(mut self, masquerade_mark: Mark) -> Self {
        self.masquerade_mark = masquerade_mark;
        self
    }

    /// Sets whether all traffic to cluster IPs is masqueraded.
    #[must_use]
    pub fn with_masquerade_all(mut self, masquerade_all: bool) -> Self {
        self.masquerade_all = masquerade_all;
        self
    }

    /// Sets how to detect traffic of pods of this node.
    #[must_use]
    pub fn with_detect_local(mut self, detect_local: DetectLocal) -> Self {
        self.detect_local = detect_local;
        self
    }

    /// Sets the node addresses on which node ports are served.
    #[must_use]
    pub fn with_node_port_addresses(mut self, node_port_addresses: NodePortAddresses) -> Self {
        self.node_port_addresses = node_port_addresses;
        self
    }

    /// Sets whether external IPs of Services are served.
    #[must_use]
    pub fn with_external_ips(mut self, external_ips: ExternalIps) -> Self {
        self.external_ips = external_ips;
        self
    }

    /// Sets the intervals between syncs.
    #[must_use]
    pub fn with_intervals(mut self, intervals: Intervals) -> Self {
        self.intervals = intervals;
        self
    }

    /// Sets the start time of the process.
    #[must_use]
    pub fn with_start_time(mut self, start_time: Timestamp) -> Self {
        self.start_time = Some(start_time);
        self
    }

    /// Returns whether [`node_port_addresses`](Self::node_port_addresses) contain IPv4
    /// loopback addresses.
    pub fn nodeport_on_loopback(&self) -> bool {
        match &self.node_port_addresses {
            NodePortAddresses::Primary => false,
            all_or_within => all_or_within
                .filter(Family::V4, &[])
                .contains_ipv4_loopback(),
        }
    }
}

/// One bit of the packet mark.
///
/// All programs on the node share the packet mark, so the proxy changes only this bit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Mark(u32);

impl Mark {
    /// Returns the mark with bit `bit` set; bits count from 0.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchBit`] if `bit` is above 31.
    pub fn from_bit(bit: u8) -> Result<Self, Error> {
        let mark = 1u32.checked_shl(bit.into());
        mark.map(Self).ok_or(Error::NoSuchBit(bit))
    }

    /// Returns the mark as a number with one bit set.
    pub const fn value(self) -> u32 {
        self.0
    }
}

/// Bit 14, 0x4000.
impl Default for Mark {
    fn default() -> Self {
        Self(1 << 14)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_one_of_32_bits() {
        assert_eq!(Mark::from_bit(0).unwrap().value(), 1);
        assert_eq!(Mark::from_bit(14).unwrap(), Mark::default());
        assert_eq!(Mark::from_bit(31).unwrap().value(), 0x8000_0000);
        assert_eq!(
            Mark::from_bit(32).unwrap_err().to_string(),
            "a packet mark has no bit 32"
        );
    }
}
