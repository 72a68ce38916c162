//! Flags of all commands.

use std::path::PathBuf;

use clap::Args;
use proxy_core::IptablesBackend;

use super::value;
use crate::config::{KERNELSPACE, Quantity, Vmodule};
use daemon::duration::GoDuration;

/// Flags of all commands. An omitted flag has no value.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// Path of a KubeProxyConfiguration file, which takes precedence over most
    /// flags
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Write the effective configuration to this file, then exit
    #[arg(long, global = true, value_name = "FILE")]
    pub write_config_to: Option<PathBuf>,
    /// File or directory with Services, EndpointSlices, Nodes and ServiceCIDRs
    /// in YAML or JSON, instead of an API server
    #[arg(long, global = true, value_name = "PATH")]
    pub manifests: Option<PathBuf>,
    /// Path of a kubeconfig; without it and --master, the service account of
    /// the pod is used
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<String>,
    /// URL of the API server, which replaces that of the kubeconfig
    #[arg(long, global = true, value_name = "URL")]
    pub master: Option<String>,
    /// Content type of requests to the API server; JSON is always used
    /// [default: application/vnd.kubernetes.protobuf]
    #[arg(long, global = true, value_name = "TYPE")]
    pub kube_api_content_type: Option<String>,
    /// Requests per second to the API server [default: 5]
    #[arg(long, global = true, value_name = "NUMBER")]
    pub kube_api_qps: Option<f32>,
    /// Burst of requests to the API server [default: 10]
    #[arg(
        long,
        global = true,
        value_name = "NUMBER",
        allow_negative_numbers = true
    )]
    pub kube_api_burst: Option<i32>,
    /// Interval of resyncs with the API; no effect [default: 15m]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub config_sync_period: Option<GoDuration>,
    /// Name of this node; default is the host name
    #[arg(long, global = true, value_name = "NAME")]
    pub hostname_override: Option<String>,
    /// Address of this node, which precedes those of its Node object; no socket
    /// is bound to it [default: 0.0.0.0]
    #[arg(long, global = true, value_name = "IP", value_parser = value::ip)]
    pub bind_address: Option<String>,
    /// Address of the health server [default: 0.0.0.0:10256]
    #[arg(long, global = true, value_name = "IP[:PORT]", value_parser = value::ip_port)]
    pub healthz_bind_address: Option<String>,
    /// Deprecated: port of --healthz-bind-address; 0 disables the health server
    /// [default: 10256]
    #[arg(
        long,
        global = true,
        value_name = "PORT",
        allow_negative_numbers = true
    )]
    pub healthz_port: Option<i32>,
    /// Address of the metrics server [default: 127.0.0.1:10249]
    #[arg(long, global = true, value_name = "IP[:PORT]", value_parser = value::ip_port)]
    pub metrics_bind_address: Option<String>,
    /// Deprecated: port of --metrics-bind-address; 0 disables the metrics server
    /// [default: 10249]
    #[arg(
        long,
        global = true,
        value_name = "PORT",
        allow_negative_numbers = true
    )]
    pub metrics_port: Option<i32>,
    /// Exit if the health or metrics server cannot listen
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub bind_address_hard_fail: Option<bool>,
    /// Serve /debug/flags/v on the metrics port, which changes the verbosity, and
    /// /debug/explain also to other hosts; profiles are not served
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub profiling: Option<bool>,
    /// Show metrics that are hidden since this version, which must be the
    /// previous one
    #[arg(long, global = true, value_name = "VERSION")]
    pub show_hidden_metrics_for_version: Option<String>,
    /// Feature gates, as NAME=true or NAME=false
    #[arg(long, global = true, value_name = "NAME=BOOL", value_delimiter = ',', value_parser = value::gate)]
    pub feature_gates: Vec<Option<(String, bool)>>,
    /// Proxy mode: iptables, ipvs or nftables; empty is iptables; kernelspace
    /// for render and diff of Windows nodes
    #[arg(long, global = true, value_name = "MODE")]
    pub proxy_mode: Option<String>,
    /// Masquerade all traffic to cluster IPs
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub masquerade_all: Option<bool>,
    /// CIDRs of the node's addresses that serve node ports, or primary
    #[arg(long, global = true, value_name = "CIDR", value_delimiter = ',')]
    pub nodeport_addresses: Vec<String>,
    /// CIDRs of the pods, at most one per IP family, separated by a comma
    #[arg(long, global = true, value_name = "CIDR")]
    pub cluster_cidr: Option<String>,
    /// Method to detect traffic of local pods: ClusterCIDR, NodeCIDR,
    /// BridgeInterface or InterfaceNamePrefix; empty is ClusterCIDR
    #[arg(long, global = true, value_name = "MODE")]
    pub detect_local_mode: Option<String>,
    /// Bridge of the pods, for BridgeInterface
    #[arg(long, global = true, value_name = "NAME")]
    pub pod_bridge_interface: Option<String>,
    /// Prefix of the names of the pods' interfaces, for InterfaceNamePrefix
    #[arg(long, global = true, value_name = "PREFIX")]
    pub pod_interface_name_prefix: Option<String>,
    /// Retry interval of failed syncs, in modes iptables and nftables [default:
    /// 30s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub iptables_sync_period: Option<GoDuration>,
    /// Minimum interval between two syncs, in modes iptables and nftables
    /// [default: 1s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub iptables_min_sync_period: Option<GoDuration>,
    /// Bit of the packet mark that requests masquerading, in modes iptables and
    /// ipvs [default: 14]
    #[arg(long, global = true, value_name = "BIT", allow_negative_numbers = true)]
    pub iptables_masquerade_bit: Option<i32>,
    /// Serve node ports on 127.0.0.0/8, in mode iptables [default: true]
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub iptables_localhost_nodeports: Option<bool>,
    /// Access to the tables of iptables, in modes iptables and ipvs: programs,
    /// netlink or auto; not in upstream [default: auto]
    #[arg(long, global = true, value_name = "BACKEND", value_parser = value::iptables_backend)]
    pub iptables_backend: Option<IptablesBackend>,
    /// Retry interval of failed syncs, in mode ipvs [default: 30s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub ipvs_sync_period: Option<GoDuration>,
    /// Minimum interval between two syncs, in mode ipvs [default: 1s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub ipvs_min_sync_period: Option<GoDuration>,
    /// Scheduler of mode ipvs; empty is rr
    #[arg(long, global = true, value_name = "NAME")]
    pub ipvs_scheduler: Option<String>,
    /// CIDRs whose virtual servers mode ipvs does not change
    #[arg(long, global = true, value_name = "CIDR", value_delimiter = ',')]
    pub ipvs_exclude_cidrs: Vec<String>,
    /// Restrict ARP replies to addresses of the receiving interface, in mode
    /// ipvs
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub ipvs_strict_arp: Option<bool>,
    /// Timeout of idle TCP connections in mode ipvs; 0 leaves it unchanged
    /// [default: 0s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub ipvs_tcp_timeout: Option<GoDuration>,
    /// Timeout of TCP connections after a FIN in mode ipvs; 0 leaves it
    /// unchanged [default: 0s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub ipvs_tcpfin_timeout: Option<GoDuration>,
    /// Timeout of idle UDP flows in mode ipvs; 0 leaves it unchanged [default:
    /// 0s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub ipvs_udp_timeout: Option<GoDuration>,
    /// OOM score adjustment of this process [default: -999]
    #[arg(
        long,
        global = true,
        value_name = "SCORE",
        allow_negative_numbers = true
    )]
    pub oom_score_adj: Option<i32>,
    /// Maximum number of tracked connections per CPU; 0 leaves it unchanged
    /// [default: 32768]
    #[arg(
        long,
        global = true,
        value_name = "NUMBER",
        allow_negative_numbers = true
    )]
    pub conntrack_max_per_core: Option<i32>,
    /// Minimum of the maximum number of tracked connections [default: 131072]
    #[arg(
        long,
        global = true,
        value_name = "NUMBER",
        allow_negative_numbers = true
    )]
    pub conntrack_min: Option<i32>,
    /// Conntrack timeout of idle TCP connections; 0 leaves it unchanged
    /// [default: 24h]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub conntrack_tcp_timeout_established: Option<GoDuration>,
    /// Conntrack timeout of TCP connections in state CLOSE_WAIT; 0 leaves it
    /// unchanged [default: 1h]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub conntrack_tcp_timeout_close_wait: Option<GoDuration>,
    /// Accept out-of-window TCP packets as part of their connection in
    /// conntrack
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub conntrack_tcp_be_liberal: Option<bool>,
    /// Conntrack timeout of unanswered UDP flows; 0 leaves it unchanged
    /// [default: 0s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub conntrack_udp_timeout: Option<GoDuration>,
    /// Conntrack timeout of answered UDP flows; 0 leaves it unchanged [default:
    /// 0s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub conntrack_udp_timeout_stream: Option<GoDuration>,
    /// Flags of mode kernelspace.
    #[command(flatten)]
    pub kernelspace: KernelspaceFlags,
    /// Flags of the log.
    #[command(flatten)]
    pub log: LogFlags,
    /// Flags without effect.
    #[command(flatten)]
    pub unused: UnusedFlags,
}

/// Flags of mode kernelspace.
#[derive(Args, Clone, Debug, Default)]
pub struct KernelspaceFlags {
    /// State of HNS in JSON, for render and diff in mode kernelspace; not in
    /// upstream
    #[arg(long, global = true, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Name of the HNS network, in mode kernelspace; default is the variable
    /// KUBE_NETWORK
    #[arg(long, global = true, value_name = "NAME")]
    pub network_name: Option<String>,
    /// Source address of translated packets in overlay networks, in mode
    /// kernelspace
    #[arg(long, global = true, value_name = "IP")]
    pub source_vip: Option<String>,
    /// Use Direct Server Return, in mode kernelspace
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub enable_dsr: Option<bool>,
    /// Name of the endpoint that receives health checks, in mode kernelspace
    /// [default: cbr0]
    #[arg(long, global = true, value_name = "NAME")]
    pub root_hnsendpoint_name: Option<String>,
    /// Forward health checks of load balancer IPs, in mode kernelspace
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub forward_healthcheck_vip: Option<bool>,
    /// Run as a service of Windows, which logs to the Event Log
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL")]
    pub windows_service: Option<bool>,
}

impl KernelspaceFlags {
    /// Returns the names of the flags that are set.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        let flags = [
            ("--against", self.against.is_some()),
            ("--network-name", self.network_name.is_some()),
            ("--source-vip", self.source_vip.is_some()),
            ("--enable-dsr", self.enable_dsr.is_some()),
            (
                "--root-hnsendpoint-name",
                self.root_hnsendpoint_name.is_some(),
            ),
            (
                "--forward-healthcheck-vip",
                self.forward_healthcheck_vip.is_some(),
            ),
            ("--windows-service", self.windows_service.is_some()),
        ];
        let given = flags.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(flag, _)| flag)
    }
}

/// Flags of the log, which apply even with a configuration file.
#[derive(Args, Clone, Debug, Default)]
pub struct LogFlags {
    /// Format of the log: text or json [default: text]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub logging_format: Option<String>,
    /// Verbosity of the log: 0 for normal operation, 2 for a line for each sync,
    /// 4 for debugging, 6 for everything [default: 0]
    #[arg(short, long = "v", global = true, value_name = "LEVEL")]
    pub v: Option<u32>,
    /// Verbosity of single source files; no effect
    #[arg(long, global = true, value_name = "PATTERN=LEVEL", value_delimiter = ',', value_parser = value::vmodule)]
    pub vmodule: Vec<Option<Vmodule>>,
    /// Flush interval of the log; no effect [default: 5s]
    #[arg(long, global = true, value_name = "TIME", allow_hyphen_values = true)]
    pub log_flush_frequency: Option<GoDuration>,
    /// Requires feature gate LoggingAlphaOptions; no effect
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL", hide = true)]
    pub log_text_split_stream: Option<bool>,
    /// Requires feature gate LoggingAlphaOptions; no effect
    #[arg(long, global = true, value_name = "SIZE", hide = true)]
    pub log_text_info_buffer_size: Option<Quantity>,
    /// Requires feature gate LoggingAlphaOptions; no effect
    #[arg(long, global = true, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL", hide = true)]
    pub log_json_split_stream: Option<bool>,
    /// Requires feature gate LoggingAlphaOptions; no effect
    #[arg(long, global = true, value_name = "SIZE", hide = true)]
    pub log_json_info_buffer_size: Option<Quantity>,
}

/// Flags of upstream without effect.
#[derive(Args, Clone, Debug, Default)]
pub struct UnusedFlags {
    /// No effect
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub boot_id_file: Option<String>,
    /// No effect
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub machine_id_file: Option<String>,
}

impl Flags {
    /// Returns a warning for each flag that is deprecated or has no effect in a mode.
    pub fn warnings(&self, mode: &str) -> Vec<String> {
        let UnusedFlags {
            boot_id_file,
            machine_id_file,
        } = &self.unused;
        let given = [
            ("--boot-id-file", boot_id_file.is_some()),
            ("--machine-id-file", machine_id_file.is_some()),
            ("--vmodule", self.log.vmodule.iter().any(Option::is_some)),
        ];
        let given = given.into_iter().filter(|(_, is_given)| *is_given);
        let of_mode = self.kernelspace.given().filter(|_| mode != KERNELSPACE);
        let unused = given.map(|(flag, _)| flag).chain(of_mode);
        let unused = unused.map(|flag| format!("{flag} has no effect"));
        let deprecated = [
            ("healthz", self.healthz_port),
            ("metrics", self.metrics_port),
        ];
        let deprecated = deprecated.iter().filter_map(|(what, port)| {
            port.map(|_| format!("--{what}-port is deprecated; use --{what}-bind-address"))
        });
        unused.chain(deprecated).collect()
    }
}
