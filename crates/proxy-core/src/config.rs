//! Configuration of a proxy: the mode with its settings, and what all modes have in common.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use vipline_service_model::{
    DetectLocal, ExternalIps, Family, NodePortAddresses, Scheduler, Timestamp,
};

use crate::{EngineConfig, Intervals, Mark, Mode};

/// Configuration of a proxy, fixed at start.
///
/// The default equals kube-proxy with `--proxy-mode nftables`, except for the empty node
/// name. The default mode of kube-proxy itself is iptables, in which node ports are
/// served on all addresses.
///
/// ```
/// use proxy_core::{Config, Family, Mode};
///
/// let config = Config::new("node-1")
///     .with_mode(Mode::Iptables)
///     .with_families([Family::V4]);
/// let engine = config.plan_only()?;
/// assert_eq!(engine.config().families, [Family::V4]);
/// # Ok::<(), proxy_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Config {
    /// The proxy mode.
    pub mode: Mode,
    /// What all modes have in common.
    pub engine: EngineConfig,
    /// Settings of mode iptables. Mode ipvs has some of its rules.
    pub iptables: Iptables,
    /// Settings of mode ipvs.
    pub ipvs: Ipvs,
}

impl Config {
    /// Returns the default configuration for a node.
    pub fn new(node_name: impl Into<Arc<str>>) -> Self {
        Self::default().with_node_name(node_name)
    }

    /// Sets the proxy mode.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the settings of mode iptables.
    #[must_use]
    pub fn with_iptables(mut self, iptables: Iptables) -> Self {
        self.iptables = iptables;
        self
    }

    /// Sets the settings of mode ipvs.
    #[must_use]
    pub fn with_ipvs(mut self, ipvs: Ipvs) -> Self {
        self.ipvs = ipvs;
        self
    }

    /// Sets the IP families to program.
    #[must_use]
    pub fn with_families(mut self, families: impl Into<Vec<Family>>) -> Self {
        self.engine = self.engine.with_families(families);
        self
    }

    /// Sets the name of this node.
    #[must_use]
    pub fn with_node_name(mut self, node_name: impl Into<Arc<str>>) -> Self {
        self.engine = self.engine.with_node_name(node_name);
        self
    }

    /// Sets the packet mark of connections to masquerade.
    #[must_use]
    pub fn with_masquerade_mark(mut self, masquerade_mark: Mark) -> Self {
        self.engine = self.engine.with_masquerade_mark(masquerade_mark);
        self
    }

    /// Sets whether all traffic to cluster IPs is masqueraded.
    #[must_use]
    pub fn with_masquerade_all(mut self, masquerade_all: bool) -> Self {
        self.engine = self.engine.with_masquerade_all(masquerade_all);
        self
    }

    /// Sets how to detect traffic of pods of this node.
    #[must_use]
    pub fn with_detect_local(mut self, detect_local: DetectLocal) -> Self {
        self.engine = self.engine.with_detect_local(detect_local);
        self
    }

    /// Sets the node addresses on which node ports are served.
    #[must_use]
    pub fn with_node_port_addresses(mut self, node_port_addresses: NodePortAddresses) -> Self {
        self.engine = self.engine.with_node_port_addresses(node_port_addresses);
        self
    }

    /// Sets whether external IPs of Services are served.
    #[must_use]
    pub fn with_external_ips(mut self, external_ips: ExternalIps) -> Self {
        self.engine = self.engine.with_external_ips(external_ips);
        self
    }

    /// Sets the intervals between syncs.
    #[must_use]
    pub fn with_intervals(mut self, intervals: Intervals) -> Self {
        self.engine = self.engine.with_intervals(intervals);
        self
    }

    /// Sets the start time of the process.
    #[must_use]
    pub fn with_start_time(mut self, start_time: Timestamp) -> Self {
        self.engine = self.engine.with_start_time(start_time);
        self
    }

    /// Returns whether node ports are served on IPv4 loopback addresses. Only mode
    /// iptables supports this.
    ///
    /// The kernel routes such packets only if the sysctl
    /// `net/ipv4/conf/all/route_localnet` is 1.
    pub fn serves_localhost(&self) -> bool {
        self.iptables.localhost_node_ports && self.engine.nodeport_on_loopback()
    }
}

/// Settings of mode iptables.
///
/// The default equals kube-proxy without flags.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Iptables {
    /// Whether node ports are also served on IPv4 loopback addresses.
    /// [`EngineConfig::node_port_addresses`] must include loopback addresses, too.
    pub localhost_node_ports: bool,
    /// Whether packets that conntrack considers invalid are dropped. Conntrack considers
    /// late packets invalid unless `net/netfilter/nf_conntrack_tcp_be_liberal` is set.
    pub drop_invalid: bool,
    /// Whether rules count packets with nfacct. Cleared on open if the kernel lacks the counters
    /// or the match `nfacct`, or the programs of iptables lack the match.
    pub nfacct: bool,
    /// Whether masqueraded connections get random source ports. Cleared on open if
    /// iptables does not support `--random-fully`.
    pub random_fully: bool,
    /// How tables are read and written.
    pub backend: IptablesBackend,
}

#[cfg(feature = "iptables")]
impl Iptables {
    /// Returns whether node ports are served on IPv4 loopback addresses.
    pub(crate) fn serves_localhost(&self, cx: &crate::Context) -> bool {
        self.localhost_node_ports && cx.nodeport_on_loopback
    }
}

/// How the tables of iptables are read and written.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum IptablesBackend {
    /// Over netlink if the nft variant is in use and the kernel supports its rules,
    /// otherwise by the programs. See [`Mode::choose_iptables_backend`].
    #[default]
    Auto,
    /// By `iptables-save` and `iptables-restore`, of the variant that is installed under
    /// these names.
    Programs,
    /// By requests to nf_tables, in the form of the nft variant. Starts no process.
    Netlink,
}

impl IptablesBackend {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Programs, Self::Netlink];

    /// Returns the value of flag `--iptables-backend`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Programs => "programs",
            Self::Netlink => "netlink",
        }
    }
}

impl fmt::Display for IptablesBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A chosen backend of iptables, which is not [`IptablesBackend::Auto`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct IptablesChoice {
    /// The backend.
    pub backend: IptablesBackend,
    /// The reason, for a log.
    pub reason: Box<str>,
}

#[cfg(feature = "iptables")]
impl IptablesChoice {
    /// Creates a choice.
    pub(crate) fn new(backend: IptablesBackend, reason: impl Into<Box<str>>) -> Self {
        let reason = reason.into();
        Self { backend, reason }
    }
}

impl Default for Iptables {
    fn default() -> Self {
        Self {
            localhost_node_ports: true,
            drop_invalid: true,
            nfacct: true,
            random_fully: true,
            backend: IptablesBackend::default(),
        }
    }
}

/// Settings of mode ipvs.
///
/// The default equals kube-proxy without flags.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Ipvs {
    /// Scheduler of Services that do not select one themselves. Default: `rr`.
    pub scheduler: Scheduler,
    /// Networks whose virtual servers the proxy does not touch, except at the addresses
    /// of Services.
    pub excluded: Vec<IpNet>,
    /// Whether the kernel restricts ARP replies to addresses of the receiving interface.
    /// Default: `false`. See [`Mode::sysctls`].
    pub strict_arp: bool,
    /// Timeout of established TCP connections. Zero, the default, leaves it unchanged.
    /// See [`Mode::prepare`].
    pub tcp_timeout: Duration,
    /// Timeout of TCP connections in state FIN_WAIT. Zero, the default, leaves it
    /// unchanged.
    pub tcp_fin_timeout: Duration,
    /// Timeout of UDP connections. Zero, the default, leaves it unchanged.
    pub udp_timeout: Duration,
}

impl Default for Ipvs {
    fn default() -> Self {
        Self {
            scheduler: Scheduler::RoundRobin,
            excluded: Vec::new(),
            strict_arp: false,
            tcp_timeout: Duration::ZERO,
            tcp_fin_timeout: Duration::ZERO,
            udp_timeout: Duration::ZERO,
        }
    }
}
