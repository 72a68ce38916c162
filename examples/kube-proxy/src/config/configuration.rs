//! `KubeProxyConfiguration` of `kubeproxy.config.k8s.io/v1alpha1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::Quantity;
use daemon::duration::GoDuration;

/// Supported API version.
pub const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";

/// Supported kind.
pub const KIND: &str = "KubeProxyConfiguration";

/// The configuration, with upstream's field names and order. Omitted fields
/// have upstream's defaults.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default = "Configuration::bare", rename_all = "camelCase")]
pub struct Configuration {
    /// Always [`KIND`].
    pub kind: String,
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Feature gates that are set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub feature_gates: BTreeMap<String, bool>,
    /// Access to the API server.
    pub client_connection: ClientConnection,
    /// Logging.
    pub logging: Logging,
    /// Name of this node. Empty: the host name.
    pub hostname_override: String,
    /// Address of this node, unless it is the unspecified address.
    pub bind_address: String,
    /// Address of the health server. Empty: no server.
    pub healthz_bind_address: String,
    /// Address of the metrics server. Empty: no server.
    pub metrics_bind_address: String,
    /// Whether the process ends if the health or metrics server cannot listen.
    pub bind_address_hard_fail: bool,
    /// Whether `/debug` is served.
    pub enable_profiling: bool,
    /// The previous version, whose hidden metrics are shown.
    pub show_hidden_metrics_for_version: String,
    /// Proxy mode.
    pub mode: String,
    /// Settings of mode iptables.
    pub iptables: Iptables,
    /// Settings of mode ipvs.
    pub ipvs: Ipvs,
    /// Settings of mode nftables.
    pub nftables: Nftables,
    /// Settings of mode kernelspace.
    pub winkernel: Winkernel,
    /// Method to detect traffic of local pods.
    pub detect_local_mode: String,
    /// Interfaces for the detection of local traffic.
    pub detect_local: DetectLocal,
    /// CIDRs of the pods, separated by a comma.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    /// CIDRs of the addresses that serve node ports, or `primary`.
    #[serde(serialize_with = "list")]
    pub node_port_addresses: Vec<String>,
    /// OOM score adjustment of this process.
    pub oom_score_adj: i32,
    /// Conntrack sysctls.
    pub conntrack: Conntrack,
    /// Interval of resyncs with the API. No effect.
    pub config_sync_period: GoDuration,
    /// No effect.
    pub port_range: String,
    /// No effect on Linux.
    #[serde(skip_serializing_if = "is_false")]
    pub windows_run_as_service: bool,
}

/// Access to the API server.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientConnection {
    /// Path of the kubeconfig.
    pub kubeconfig: String,
    /// Accepted content types of responses. Empty: the content type of
    /// requests.
    pub accept_content_types: String,
    /// Content type of requests.
    pub content_type: String,
    /// Requests per second.
    #[serde(serialize_with = "number")]
    pub qps: f32,
    /// Burst of requests.
    pub burst: i32,
}

/// Logging.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Logging {
    /// `text` or `json`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub format: String,
    /// Flush interval. No effect: the log is not buffered.
    #[serde(deserialize_with = "super::quantity::text_or_nanos")]
    pub flush_frequency: GoDuration,
    /// Verbosity.
    pub verbosity: u32,
    /// Verbosity of single source files. No effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vmodule: Vec<Vmodule>,
    /// Options of log formats.
    pub options: FormatOptions,
}

/// Verbosity of source files.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Vmodule {
    /// Pattern of file names.
    pub file_pattern: String,
    /// Verbosity.
    pub verbosity: u32,
}

/// Options of log formats.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FormatOptions {
    /// Options of format text.
    pub text: OutputRouting,
    /// Options of format JSON.
    pub json: OutputRouting,
}

/// Output of a log format.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OutputRouting {
    /// Whether only errors are written to stderr. No effect.
    #[serde(skip_serializing_if = "is_false")]
    pub split_stream: bool,
    /// Size of the output buffer. No effect.
    pub info_buffer_size: Quantity,
}

/// Settings of mode iptables.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Iptables {
    /// Bit of the packet mark that requests masquerading.
    pub masquerade_bit: i32,
    /// Whether all traffic to cluster IPs is masqueraded.
    pub masquerade_all: bool,
    /// Whether node ports are served on 127.0.0.0/8.
    pub localhost_node_ports: bool,
    /// Retry interval of failed syncs.
    pub sync_period: GoDuration,
    /// Minimum interval between two syncs.
    pub min_sync_period: GoDuration,
}

/// Settings of mode ipvs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ipvs {
    /// Retry interval of failed syncs.
    pub sync_period: GoDuration,
    /// Minimum interval between two syncs.
    pub min_sync_period: GoDuration,
    /// Scheduler of the kernel. Empty: `rr`.
    pub scheduler: String,
    /// CIDRs whose virtual servers are not changed.
    #[serde(rename = "excludeCIDRs", serialize_with = "list")]
    pub exclude_cidrs: Vec<String>,
    /// Whether ARP replies are restricted to addresses of the receiving
    /// interface.
    #[serde(rename = "strictARP")]
    pub strict_arp: bool,
    /// Timeout of idle TCP connections; 0 leaves it unchanged.
    pub tcp_timeout: GoDuration,
    /// Timeout of TCP connections after a FIN; 0 leaves it unchanged.
    pub tcp_fin_timeout: GoDuration,
    /// Timeout of idle UDP flows; 0 leaves it unchanged.
    pub udp_timeout: GoDuration,
}

/// Settings of mode nftables.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Nftables {
    /// Bit of the packet mark that requests masquerading.
    pub masquerade_bit: i32,
    /// Whether all traffic to cluster IPs is masqueraded.
    pub masquerade_all: bool,
    /// Retry interval of failed syncs.
    pub sync_period: GoDuration,
    /// Minimum interval between two syncs.
    pub min_sync_period: GoDuration,
}

/// Settings of mode kernelspace.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Winkernel {
    /// Name of the HNS network.
    pub network_name: String,
    /// Source address of translated packets.
    pub source_vip: String,
    /// Whether direct server return is enabled.
    #[serde(rename = "enableDSR")]
    pub enable_dsr: bool,
    /// Name of the endpoint that receives health checks.
    pub root_hns_endpoint_name: String,
    /// Whether health checks of load balancer IPs are forwarded.
    pub forward_health_check_vip: bool,
}

/// Interfaces for the detection of local traffic.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DetectLocal {
    /// Bridge of the pods.
    pub bridge_interface: String,
    /// Prefix of the names of the pods' interfaces.
    pub interface_name_prefix: String,
}

/// Conntrack sysctls.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Conntrack {
    /// Maximum number of tracked connections per CPU; 0 leaves it unchanged.
    pub max_per_core: i32,
    /// Minimum of the maximum number of tracked connections.
    pub min: i32,
    /// Timeout of idle TCP connections; 0 leaves it unchanged.
    pub tcp_established_timeout: GoDuration,
    /// Timeout of TCP connections in state CLOSE_WAIT; 0 leaves it unchanged.
    pub tcp_close_wait_timeout: GoDuration,
    /// Whether out-of-window TCP packets are accepted as part of their
    /// connection.
    pub tcp_be_liberal: bool,
    /// Timeout of unanswered UDP flows; 0 leaves it unchanged.
    pub udp_timeout: GoDuration,
    /// Timeout of answered UDP flows; 0 leaves it unchanged.
    pub udp_stream_timeout: GoDuration,
}

impl Default for Iptables {
    fn default() -> Self {
        Self {
            masquerade_bit: 14,
            masquerade_all: false,
            localhost_node_ports: true,
            sync_period: GoDuration::ZERO,
            min_sync_period: GoDuration::ZERO,
        }
    }
}

impl Default for Nftables {
    fn default() -> Self {
        Self {
            masquerade_bit: 14,
            masquerade_all: false,
            sync_period: GoDuration::ZERO,
            min_sync_period: GoDuration::ZERO,
        }
    }
}

impl Default for Conntrack {
    fn default() -> Self {
        Self {
            max_per_core: 32 * 1024,
            min: 128 * 1024,
            tcp_established_timeout: GoDuration::from_secs(24 * 60 * 60),
            tcp_close_wait_timeout: GoDuration::from_secs(60 * 60),
            tcp_be_liberal: false,
            udp_timeout: GoDuration::ZERO,
            udp_stream_timeout: GoDuration::ZERO,
        }
    }
}

/// Serializes an empty list as null, as upstream does.
fn list<S: Serializer>(items: &Vec<String>, serializer: S) -> Result<S::Ok, S::Error> {
    match items.is_empty() {
        true => serializer.serialize_none(),
        false => items.serialize(serializer),
    }
}

/// Serializes a whole number without a fraction.
fn number<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    match value.to_string().parse::<i64>() {
        Ok(whole) => serializer.serialize_i64(whole),
        Err(_) => serializer.serialize_f32(*value),
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !value
}
