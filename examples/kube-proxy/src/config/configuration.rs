//! `KubeProxyConfiguration` of `kubeproxy.config.k8s.io/v1alpha1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::Quantity;
use crate::duration::GoDuration;

/// The API version that is read and written.
pub const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";

/// The kind that is read and written.
pub const KIND: &str = "KubeProxyConfiguration";

/// All that can be configured, in upstream's order and spelling.
///
/// What a file leaves out has upstream's default.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default = "Configuration::bare", rename_all = "camelCase")]
pub struct Configuration {
    /// Always [`KIND`].
    pub kind: String,
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Feature gates that are turned on or off.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub feature_gates: BTreeMap<String, bool>,
    /// How the API server is reached.
    pub client_connection: ClientConnection,
    /// The log.
    pub logging: Logging,
    /// The name of this node; empty for the machine's.
    pub hostname_override: String,
    /// The address of this node, unless it is unspecified.
    pub bind_address: String,
    /// Where health is served; empty for nowhere.
    pub healthz_bind_address: String,
    /// Where metrics are served.
    pub metrics_bind_address: String,
    /// Whether the process ends if it cannot serve health or metrics.
    pub bind_address_hard_fail: bool,
    /// Whether profiles are served.
    pub enable_profiling: bool,
    /// The previous version, of which hidden metrics are shown.
    pub show_hidden_metrics_for_version: String,
    /// How Services are programmed.
    pub mode: String,
    /// Of mode iptables.
    pub iptables: Iptables,
    /// Of mode ipvs.
    pub ipvs: Ipvs,
    /// Of mode nftables.
    pub nftables: Nftables,
    /// Of Windows.
    pub winkernel: Winkernel,
    /// How traffic of pods is told from other.
    pub detect_local_mode: String,
    /// The interfaces by which it is told.
    pub detect_local: DetectLocal,
    /// The networks by which it is told, separated by a comma.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    /// Networks of the addresses that node ports are served on, or `primary`.
    #[serde(serialize_with = "list")]
    pub node_port_addresses: Vec<String>,
    /// How readily the kernel kills this process for want of memory.
    pub oom_score_adj: i32,
    /// Connection tracking.
    pub conntrack: Conntrack,
    /// How often all objects are looked at again.
    pub config_sync_period: GoDuration,
    /// Read, and of no use.
    pub port_range: String,
    /// Of Windows.
    #[serde(skip_serializing_if = "is_false")]
    pub windows_run_as_service: bool,
}

/// How the API server is reached.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientConnection {
    /// The file that names the server and what to show it.
    pub kubeconfig: String,
    /// The formats of answers; empty for that of requests.
    pub accept_content_types: String,
    /// The format of requests.
    pub content_type: String,
    /// Requests a second.
    #[serde(serialize_with = "number")]
    pub qps: f32,
    /// Requests at once.
    pub burst: i32,
}

/// The log.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Logging {
    /// `text` or `json`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub format: String,
    /// How often the log is flushed; ours has nothing to flush.
    #[serde(deserialize_with = "super::quantity::text_or_nanos")]
    pub flush_frequency: GoDuration,
    /// How much is logged.
    pub verbosity: u32,
    /// How much is logged of what source files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vmodule: Vec<Vmodule>,
    /// Of single formats.
    pub options: FormatOptions,
}

/// How much is logged of some source files.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Vmodule {
    /// Which files.
    pub file_pattern: String,
    /// How much.
    pub verbosity: u32,
}

/// Options of single formats.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FormatOptions {
    /// Of format text.
    pub text: OutputRouting,
    /// Of format json.
    pub json: OutputRouting,
}

/// Where a format's lines go.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OutputRouting {
    /// Whether only errors go to stderr.
    #[serde(skip_serializing_if = "is_false")]
    pub split_stream: bool,
    /// How much is kept back before it is written.
    pub info_buffer_size: Quantity,
}

/// Of mode iptables.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Iptables {
    /// The bit of the packet mark that says: masquerade.
    pub masquerade_bit: i32,
    /// Whether all traffic to cluster IPs gets the node's address.
    pub masquerade_all: bool,
    /// Whether node ports are served on 127.0.0.0/8.
    pub localhost_node_ports: bool,
    /// When a failed sync is tried again.
    pub sync_period: GoDuration,
    /// The least time between two syncs.
    pub min_sync_period: GoDuration,
}

/// Of mode ipvs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ipvs {
    /// When a failed sync is tried again.
    pub sync_period: GoDuration,
    /// The least time between two syncs.
    pub min_sync_period: GoDuration,
    /// How endpoints are chosen.
    pub scheduler: String,
    /// Networks whose virtual servers are not touched.
    #[serde(rename = "excludeCIDRs", serialize_with = "list")]
    pub exclude_cidrs: Vec<String>,
    /// Whether ARP is answered for an interface's own addresses only.
    #[serde(rename = "strictARP")]
    pub strict_arp: bool,
    /// After how long idle TCP connections are forgotten; 0 leaves it as it is.
    pub tcp_timeout: GoDuration,
    /// After how long closed TCP connections are forgotten; 0 leaves it as it is.
    pub tcp_fin_timeout: GoDuration,
    /// After how long idle UDP flows are forgotten; 0 leaves it as it is.
    pub udp_timeout: GoDuration,
}

/// Of mode nftables.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Nftables {
    /// The bit of the packet mark that says: masquerade.
    pub masquerade_bit: i32,
    /// Whether all traffic to cluster IPs gets the node's address.
    pub masquerade_all: bool,
    /// When a failed sync is tried again.
    pub sync_period: GoDuration,
    /// The least time between two syncs.
    pub min_sync_period: GoDuration,
}

/// Of Windows; read, and without effect.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Winkernel {
    /// The network of the endpoints.
    pub network_name: String,
    /// The address that traffic gets.
    pub source_vip: String,
    /// Whether answers go around the load balancer.
    #[serde(rename = "enableDSR")]
    pub enable_dsr: bool,
    /// The endpoint of the root network.
    pub root_hns_endpoint_name: String,
    /// Whether health checks are forwarded.
    pub forward_health_check_vip: bool,
}

/// The interfaces by which traffic of pods is told from other.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DetectLocal {
    /// The bridge of the pods.
    pub bridge_interface: String,
    /// How the names of the pods' interfaces begin.
    pub interface_name_prefix: String,
}

/// Connection tracking.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Conntrack {
    /// How many connections are tracked for each CPU; 0 leaves it as it is.
    pub max_per_core: i32,
    /// How many are tracked at least.
    pub min: i32,
    /// After how long idle TCP connections are forgotten.
    pub tcp_established_timeout: GoDuration,
    /// After how long half-closed TCP connections are forgotten.
    pub tcp_close_wait_timeout: GoDuration,
    /// Whether packets outside the window are taken for part of the connection.
    pub tcp_be_liberal: bool,
    /// After how long UDP flows without an answer are forgotten; 0 leaves it as it is.
    pub udp_timeout: GoDuration,
    /// After how long idle UDP flows are forgotten; 0 leaves it as it is.
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

/// Writes an empty list as upstream does.
fn list<S: Serializer>(items: &Vec<String>, serializer: S) -> Result<S::Ok, S::Error> {
    match items.is_empty() {
        true => serializer.serialize_none(),
        false => items.serialize(serializer),
    }
}

/// Writes a whole number without a fraction.
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
