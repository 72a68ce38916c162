//! What the engine is told once, when it starts.

use std::sync::Arc;

use ipnet::IpNet;
use vipline_service_model::{
    DetectLocal, ExternalIps, Family, NodePortAddresses, Scheduler, Timestamp,
};

use crate::{Error, Intervals, Mode};

/// What the engine is told once, when it starts.
///
/// The default is what kube-proxy does without flags, but for the node's name.
#[derive(Clone, Debug)]
pub struct Config {
    /// How Services are programmed.
    pub mode: Mode,
    /// The families that are programmed, each once.
    pub families: Vec<Family>,
    /// The name of this node; with an empty name no endpoint is local.
    pub node_name: Arc<str>,
    /// The packet mark that says: give this flow the node's address.
    pub masquerade_mark: Mark,
    /// Whether all traffic to cluster IPs gets the node's address.
    pub masquerade_all: bool,
    /// How traffic of pods is told from other traffic.
    pub detect_local: DetectLocal,
    /// On which of the node's addresses node ports are served.
    pub node_port_addresses: NodePortAddresses,
    /// What mode iptables is told besides.
    pub iptables: Iptables,
    /// What mode ipvs is told besides.
    pub ipvs: Ipvs,
    /// Whether the external IPs of Services are served.
    pub external_ips: ExternalIps,
    /// How far apart syncs are.
    pub intervals: Intervals,
    /// When this process started: older causes of changes are not measured.
    pub started: Option<Timestamp>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            families: Family::ALL.to_vec(),
            node_name: Arc::from(""),
            masquerade_mark: Mark::default(),
            masquerade_all: false,
            detect_local: DetectLocal::ClusterCidr(Vec::new()),
            node_port_addresses: NodePortAddresses::Primary,
            iptables: Iptables::default(),
            ipvs: Ipvs::default(),
            external_ips: ExternalIps::default(),
            intervals: Intervals::default(),
            started: None,
        }
    }
}

impl Config {
    /// Tells whether node ports are served on the loopback addresses of IPv4,
    /// as only mode iptables can.
    ///
    /// The kernel routes such packets only if it is told to, by the sysctl
    /// `net/ipv4/conf/all/route_localnet`.
    pub fn serves_localhost(&self) -> bool {
        self.iptables.localhost_node_ports
            && match &self.node_port_addresses {
                NodePortAddresses::Primary => false,
                all_or_within => all_or_within
                    .filter(Family::V4, &[])
                    .contains_ipv4_loopback(),
            }
    }
}

/// What mode iptables is told besides.
///
/// The default is what kube-proxy does without flags.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Iptables {
    /// Whether node ports are served on the loopback addresses of IPv4, if node
    /// ports are served on those at all.
    pub localhost_node_ports: bool,
    /// Whether packets are dropped that conntrack takes for invalid: it does so
    /// with late packets unless `net/netfilter/nf_conntrack_tcp_be_liberal` is set.
    pub drop_invalid: bool,
    /// Whether rules count packets by nfacct; set by what the kernel can do when
    /// an engine is opened.
    pub nfacct: bool,
    /// Whether masqueraded connections get random source ports; set by what
    /// iptables can do when an engine is opened.
    pub random_fully: bool,
}

impl Default for Iptables {
    fn default() -> Self {
        Self {
            localhost_node_ports: true,
            drop_invalid: true,
            nfacct: true,
            random_fully: true,
        }
    }
}

/// What mode ipvs is told besides.
///
/// The default is what kube-proxy does without flags.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ipvs {
    /// How endpoints are chosen, for Services that do not say it themselves.
    pub scheduler: Scheduler,
    /// Networks whose virtual servers are somebody else's: they are not touched,
    /// but where a Service is to be served.
    pub excluded: Vec<IpNet>,
}

/// One bit of the packet mark.
///
/// Marks belong to everybody on the node, so this bit is all we ever change.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Mark(u32);

impl Mark {
    /// Returns the mark that is bit number `bit`, counted from 0.
    ///
    /// # Errors
    ///
    /// There is no bit above 31.
    pub fn from_bit(bit: u8) -> Result<Self, Error> {
        let mark = 1u32.checked_shl(bit.into());
        mark.map(Self).ok_or(Error::NoSuchBit(bit))
    }

    /// Returns the mark as a number in which one bit is set.
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
