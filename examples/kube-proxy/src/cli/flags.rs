//! The flags of all commands.

use std::path::PathBuf;

use clap::Args;

use super::value;
use crate::config::{Quantity, Vmodule};
use crate::duration::GoDuration;

/// The flags of all commands; what is not given has no value.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// Read a KubeProxyConfiguration from this file, which then wins over most flags
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Write the effective configuration to this file, and end
    #[arg(long, global = true, value_name = "FILE")]
    pub write_config_to: Option<PathBuf>,
    /// File or directory of Services, EndpointSlices, Nodes and ServiceCIDRs in YAML or JSON, instead
    /// of an API server
    #[arg(long, global = true, value_name = "PATH")]
    pub manifests: Option<PathBuf>,
    /// Kubeconfig of the API server; without it and --master the one of the cluster this runs in
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<String>,
    /// Address of the API server, instead of that in the kubeconfig
    #[arg(long, global = true, value_name = "URL")]
    pub master: Option<String>,
    /// Format of requests to the API server: JSON is used whatever it is [default:
    /// application/vnd.kubernetes.protobuf]
    #[arg(long, global = true, value_name = "TYPE")]
    pub kube_api_content_type: Option<String>,
    /// Requests a second to the API server [default: 5]
    #[arg(long, global = true, value_name = "NUMBER")]
    pub kube_api_qps: Option<f32>,
    /// Requests at once to the API server [default: 10]
    #[arg(
        long,
        global = true,
        value_name = "NUMBER",
        allow_negative_numbers = true
    )]
    pub kube_api_burst: Option<i32>,
    /// How often all objects are looked at again [default: 15m]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub config_sync_period: Option<GoDuration>,
    /// Name of this node instead of the machine's host name
    #[arg(long, global = true, value_name = "NAME")]
    pub hostname_override: Option<String>,
    /// Address of this node instead of what its Node object says; nothing is bound to it [default:
    /// 0.0.0.0]
    #[arg(long, global = true, value_name = "IP", value_parser = value::ip)]
    pub bind_address: Option<String>,
    /// Where health is served [default: 0.0.0.0:10256]
    #[arg(long, global = true, value_name = "IP[:PORT]", value_parser = value::ip_port)]
    pub healthz_bind_address: Option<String>,
    /// Deprecated: port of --healthz-bind-address; 0 for none [default: 10256]
    #[arg(
        long,
        global = true,
        value_name = "PORT",
        allow_negative_numbers = true
    )]
    pub healthz_port: Option<i32>,
    /// Where metrics are served [default: 127.0.0.1:10249]
    #[arg(long, global = true, value_name = "IP[:PORT]", value_parser = value::ip_port)]
    pub metrics_bind_address: Option<String>,
    /// Deprecated: port of --metrics-bind-address [default: 10249]
    #[arg(
        long,
        global = true,
        value_name = "PORT",
        allow_negative_numbers = true
    )]
    pub metrics_port: Option<i32>,
    /// End if health or metrics cannot be served
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub bind_address_hard_fail: Option<bool>,
    /// Serve /debug/flags/v with the metrics, to change the verbosity; there are no profiles
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub profiling: Option<bool>,
    /// Show the metrics that were hidden since this version, the previous one
    #[arg(long, global = true, value_name = "VERSION")]
    pub show_hidden_metrics_for_version: Option<String>,
    /// Features to turn on or off
    #[arg(long, global = true, value_name = "NAME=BOOL", value_delimiter = ',', value_parser = value::gate)]
    pub feature_gates: Vec<(String, bool)>,
    /// How Services are programmed: iptables, ipvs or nftables; empty is iptables
    #[arg(long, global = true, value_name = "MODE")]
    pub proxy_mode: Option<String>,
    /// Give the node's address to all traffic to cluster IPs
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub masquerade_all: Option<bool>,
    /// Networks of the node's addresses that node ports are served on, or primary
    #[arg(long, global = true, value_name = "CIDR", value_delimiter = ',')]
    pub nodeport_addresses: Vec<String>,
    /// Networks of the cluster's pods, at most one per family, separated by a comma
    #[arg(long, global = true, value_name = "CIDR")]
    pub cluster_cidr: Option<String>,
    /// How traffic of pods is told from other: ClusterCIDR, NodeCIDR, BridgeInterface or
    /// InterfaceNamePrefix; empty is ClusterCIDR
    #[arg(long, global = true, value_name = "MODE")]
    pub detect_local_mode: Option<String>,
    /// Bridge of the pods, for BridgeInterface
    #[arg(long, global = true, value_name = "NAME")]
    pub pod_bridge_interface: Option<String>,
    /// How the names of the pods' interfaces begin, for InterfaceNamePrefix
    #[arg(long, global = true, value_name = "PREFIX")]
    pub pod_interface_name_prefix: Option<String>,
    /// When a failed sync is tried again, in modes iptables and nftables [default: 30s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub iptables_sync_period: Option<GoDuration>,
    /// The least time between two syncs, in modes iptables and nftables [default: 1s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub iptables_min_sync_period: Option<GoDuration>,
    /// Bit of the packet mark that says: masquerade, in modes iptables and ipvs [default: 14]
    #[arg(long, global = true, value_name = "BIT", allow_negative_numbers = true)]
    pub iptables_masquerade_bit: Option<i32>,
    /// Serve node ports on 127.0.0.0/8, in mode iptables [default: true]
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub iptables_localhost_nodeports: Option<bool>,
    /// When a failed sync is tried again, in mode ipvs [default: 30s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub ipvs_sync_period: Option<GoDuration>,
    /// The least time between two syncs, in mode ipvs [default: 1s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub ipvs_min_sync_period: Option<GoDuration>,
    /// How endpoints are chosen in mode ipvs; empty is rr
    #[arg(long, global = true, value_name = "NAME")]
    pub ipvs_scheduler: Option<String>,
    /// Networks whose virtual servers mode ipvs does not touch
    #[arg(long, global = true, value_name = "CIDR", value_delimiter = ',')]
    pub ipvs_exclude_cidrs: Vec<String>,
    /// Answer ARP for an interface's own addresses only, in mode ipvs
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub ipvs_strict_arp: Option<bool>,
    /// After how long mode ipvs forgets idle TCP connections; 0 leaves it as it is [default: 0s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub ipvs_tcp_timeout: Option<GoDuration>,
    /// After how long mode ipvs forgets closed TCP connections; 0 leaves it as it is [default: 0s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub ipvs_tcpfin_timeout: Option<GoDuration>,
    /// After how long mode ipvs forgets idle UDP flows; 0 leaves it as it is [default: 0s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub ipvs_udp_timeout: Option<GoDuration>,
    /// How readily the kernel kills this process for want of memory [default: -999]
    #[arg(
        long,
        global = true,
        value_name = "SCORE",
        allow_negative_numbers = true
    )]
    pub oom_score_adj: Option<i32>,
    /// How many connections are tracked for each CPU; 0 leaves it as it is [default: 32768]
    #[arg(
        long,
        global = true,
        value_name = "NUMBER",
        allow_negative_numbers = true
    )]
    pub conntrack_max_per_core: Option<i32>,
    /// How many connections are tracked at least [default: 131072]
    #[arg(
        long,
        global = true,
        value_name = "NUMBER",
        allow_negative_numbers = true
    )]
    pub conntrack_min: Option<i32>,
    /// After how long idle TCP connections are forgotten; 0 leaves it as it is [default: 24h]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub conntrack_tcp_timeout_established: Option<GoDuration>,
    /// After how long half-closed TCP connections are forgotten [default: 1h]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub conntrack_tcp_timeout_close_wait: Option<GoDuration>,
    /// Take packets outside the window for part of a TCP connection
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub conntrack_tcp_be_liberal: Option<bool>,
    /// After how long UDP flows without an answer are forgotten; 0 leaves it as it is [default: 0s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub conntrack_udp_timeout: Option<GoDuration>,
    /// After how long idle UDP flows are forgotten; 0 leaves it as it is [default: 0s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub conntrack_udp_timeout_stream: Option<GoDuration>,
    /// The flags of the log.
    #[command(flatten)]
    pub log: LogFlags,
    /// Flags that are without effect.
    #[command(flatten)]
    pub unused: UnusedFlags,
}

/// The flags of the log, which count beside a configuration file.
#[derive(Args, Clone, Debug, Default)]
pub struct LogFlags {
    /// The format of the log: text or json [default: text]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub logging_format: Option<String>,
    /// How much is logged: 0 is what matters, 4 more, 6 most of all [default: 0]
    #[arg(short, long = "v", global = true, value_name = "LEVEL")]
    pub v: Option<u32>,
    /// How much is logged of single source files; read, and without effect
    #[arg(long, global = true, value_name = "PATTERN=LEVEL", value_delimiter = ',', value_parser = value::vmodule)]
    pub vmodule: Vec<Vmodule>,
    /// How often the log is flushed; read, and without effect [default: 5s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub log_flush_frequency: Option<GoDuration>,
    /// Needs the feature gate LoggingAlphaOptions; read, and without effect
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL", hide = true)]
    pub log_text_split_stream: Option<bool>,
    /// Needs the feature gate LoggingAlphaOptions; read, and without effect
    #[arg(long, global = true, value_name = "SIZE", hide = true)]
    pub log_text_info_buffer_size: Option<Quantity>,
    /// Needs the feature gate LoggingAlphaOptions; read, and without effect
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL", hide = true)]
    pub log_json_split_stream: Option<bool>,
    /// Needs the feature gate LoggingAlphaOptions; read, and without effect
    #[arg(long, global = true, value_name = "SIZE", hide = true)]
    pub log_json_info_buffer_size: Option<Quantity>,
}

/// Flags that upstream has, and that are without effect on Linux.
#[derive(Args, Clone, Debug, Default)]
pub struct UnusedFlags {
    /// Read, and without effect
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub boot_id_file: Option<String>,
    /// Read, and without effect
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub machine_id_file: Option<String>,
    /// Of Windows: read, and without effect
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL", hide = true)]
    pub windows_service: Option<bool>,
    /// Of Windows: read, and without effect
    #[arg(long, global = true, value_name = "IP", hide = true)]
    pub source_vip: Option<String>,
    /// Of Windows: read, and without effect
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub network_name: Option<String>,
    /// Of Windows: read, and without effect
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL", hide = true)]
    pub enable_dsr: Option<bool>,
    /// Of Windows: read, and without effect
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub root_hnsendpoint_name: Option<String>,
    /// Of Windows: read, and without effect
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL", hide = true)]
    pub forward_healthcheck_vip: Option<bool>,
}

impl Flags {
    /// Returns a sentence about each flag that was given and had better not be.
    pub fn remarks(&self) -> Vec<String> {
        let UnusedFlags {
            boot_id_file,
            machine_id_file,
            windows_service,
            source_vip,
            network_name,
            enable_dsr,
            root_hnsendpoint_name,
            forward_healthcheck_vip,
        } = &self.unused;
        let given = [
            ("--boot-id-file", boot_id_file.is_some()),
            ("--machine-id-file", machine_id_file.is_some()),
            ("--windows-service", windows_service.is_some()),
            ("--source-vip", source_vip.is_some()),
            ("--network-name", network_name.is_some()),
            ("--enable-dsr", enable_dsr.is_some()),
            ("--root-hnsendpoint-name", root_hnsendpoint_name.is_some()),
            (
                "--forward-healthcheck-vip",
                forward_healthcheck_vip.is_some(),
            ),
            ("--vmodule", !self.log.vmodule.is_empty()),
        ];
        let given = given.iter().filter(|(_, is_given)| *is_given);
        let useless = given.map(|(flag, _)| format!("{flag} is without effect"));
        let deprecated = [
            ("healthz", self.healthz_port),
            ("metrics", self.metrics_port),
        ];
        let deprecated = deprecated.iter().filter_map(|(what, port)| {
            port.map(|_| format!("--{what}-port is deprecated: --{what}-bind-address has a port"))
        });
        useless.chain(deprecated).collect()
    }
}
