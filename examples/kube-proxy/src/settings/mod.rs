//! The configuration in the types of the other modules.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use proxy_core::{Config, Intervals, Iptables, Ipvs, Mark, Mode};
use vipline_kube_source::api::Access;
use vipline_service_model::{
    DetectLocal, ExternalIps, NodePortAddresses, Scheduler, parse_address, parse_network,
};

use crate::cli::Flags;

use crate::config::{Configuration, Effective, Gate, Gates, KERNELSPACE};
use crate::failure::Failure;

/// Maximum interval between two comparisons of the kernel with the plan.
const MAX_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Maximum length of an interface name: `IFNAMSIZ - 1` of linux/if.h.
const MAX_INTERFACE_NAME: usize = 15;

/// The settings of all modules.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Source of the objects.
    pub source: Source,
    /// Configuration of the engine.
    pub config: Config,
    /// Value of `--bind-address`, if it is not the unspecified address.
    pub bind_address: Option<IpAddr>,
    /// The effective configuration.
    pub configuration: Configuration,
    /// Address of the health server; `None` disables it.
    pub healthz: Option<SocketAddr>,
    /// Address of the metrics server; `None` disables it.
    pub metrics: Option<SocketAddr>,
    /// Whether the process ends if it cannot serve health or metrics.
    pub bind_address_hard_fail: bool,
    /// OOM score adjustment of this process.
    pub oom_score_adj: i32,
    /// Configuration file. A change of the file ends the process.
    pub config_file: Option<PathBuf>,
    /// Retry interval of failed syncs. The health check allows twice this time.
    pub sync_period: Duration,
    /// Value of `--config-sync-period`.
    pub config_sync_period: Duration,
    /// Feature gates.
    pub feature_gates: Gates,
    /// Warnings that arise from flags besides the configuration.
    pub warnings: Vec<String>,
    /// Settings of mode iptables, for a kernel without mode ipvs.
    pub fallback: Option<Box<Self>>,
}

/// Source of the objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A file, or a directory of files.
    Manifests(PathBuf),
    /// An API server.
    Api(Access),
}

impl Settings {
    /// Returns the mode. `None` is mode kernelspace.
    pub fn mode(&self) -> Option<Mode> {
        let is_kernelspace = self.configuration.mode == KERNELSPACE;
        (!is_kernelspace).then_some(self.config.mode)
    }

    /// Returns the name of the mode.
    pub fn mode_name(&self) -> &'static str {
        self.mode().map_or(KERNELSPACE, Mode::name)
    }

    /// Converts a configuration. `hostname` is the default node name.
    ///
    /// # Errors
    ///
    /// The configuration has values that this build does not support: one line
    /// each.
    pub fn new(flags: &Flags, effective: Effective, hostname: &str) -> Result<Self, Failure> {
        let Effective {
            configuration,
            fallback,
            gates,
            file,
            warnings: _,
        } = effective;
        let of = |configuration| {
            let settings = Self::of(flags, configuration, gates.clone(), hostname)?;
            let config_file = file.clone();
            Ok(Self {
                config_file,
                ..settings
            })
        };
        let fallback = fallback.map(of).transpose();
        let settings = of(configuration)?;
        Ok(Self {
            fallback: fallback?.map(Box::new),
            ..settings
        })
    }

    fn of(
        flags: &Flags,
        configuration: Configuration,
        gates: Gates,
        hostname: &str,
    ) -> Result<Self, Failure> {
        let mut warnings = Vec::new();
        let mut config = config(&configuration, &gates, hostname).map_err(Failure::Input)?;
        // The configuration file of upstream has no field for this.
        config.iptables.backend = flags.iptables_backend.unwrap_or_default();
        let bind_address = parse_address(&configuration.bind_address);
        Ok(Self {
            source: source(flags, &configuration, &gates, &mut warnings),
            sync_period: config.engine.intervals.retry,
            config,
            bind_address: bind_address.filter(|address| !address.is_unspecified()),
            healthz: socket_address(&configuration.healthz_bind_address),
            metrics: socket_address(&configuration.metrics_bind_address),
            bind_address_hard_fail: configuration.bind_address_hard_fail,
            oom_score_adj: configuration.oom_score_adj,
            config_file: None,
            config_sync_period: configuration.config_sync_period.positive(),
            feature_gates: gates,
            warnings,
            fallback: None,
            configuration,
        })
    }
}

/// Returns the configuration of the engine, or a line per unsupported value.
fn config(
    configuration: &Configuration,
    gates: &Gates,
    hostname: &str,
) -> Result<Config, Vec<String>> {
    let mut reasons = Vec::new();
    let mut take = |reason: String| reasons.push(reason);
    let mode = mode(&configuration.mode).map_err(&mut take);
    let node_name = node_name(configuration, hostname).map_err(&mut take);
    let detect_local = detect_local(configuration).map_err(&mut take);
    let scheduler = scheduler(configuration).map_err(&mut take);
    let (Ok(mode), Ok(node_name), Ok(detect_local), Ok(scheduler)) =
        (mode, node_name, detect_local, scheduler)
    else {
        return Err(reasons);
    };
    let mut iptables = Iptables::default();
    iptables.localhost_node_ports = configuration.iptables.localhost_node_ports;
    let mut ipvs = Ipvs::default();
    ipvs.scheduler = scheduler;
    ipvs.excluded = excluded(configuration);
    ipvs.strict_arp = configuration.ipvs.strict_arp;
    ipvs.tcp_timeout = configuration.ipvs.tcp_timeout.positive();
    ipvs.tcp_fin_timeout = configuration.ipvs.tcp_fin_timeout.positive();
    ipvs.udp_timeout = configuration.ipvs.udp_timeout.positive();
    Ok(Config::new(node_name)
        .with_mode(mode)
        .with_masquerade_mark(mark(configuration))
        .with_masquerade_all(configuration.masquerade_all())
        .with_detect_local(detect_local)
        .with_node_port_addresses(node_port_addresses(&configuration.node_port_addresses))
        .with_iptables(iptables)
        .with_ipvs(ipvs)
        .with_external_ips(match gates.is_enabled(Gate::AllowServiceExternalIPs) {
            true => ExternalIps::Serve,
            false => ExternalIps::Ignore,
        })
        .with_intervals(intervals(configuration)))
}

/// Returns the intervals between syncs.
fn intervals(configuration: &Configuration) -> Intervals {
    let (retry, min) = configuration.sync_periods();
    Intervals {
        min: min.positive(),
        retry: retry.positive(),
        max: MAX_INTERVAL,
    }
}

/// Returns the networks of `--ipvs-exclude-cidrs`, in any mode.
pub fn excluded(configuration: &Configuration) -> Vec<IpNet> {
    networks(configuration.ipvs.exclude_cidrs.iter().map(String::as_str))
}

/// Returns the scheduler of mode ipvs. Empty is the default scheduler.
fn scheduler(configuration: &Configuration) -> Result<Scheduler, String> {
    let name = &*configuration.ipvs.scheduler;
    if configuration.mode != Mode::Ipvs.name() || name.is_empty() {
        return Ok(Scheduler::RoundRobin);
    }
    Scheduler::known(name).ok_or_else(|| {
        let known = Scheduler::KNOWN
            .each_ref()
            .map(Scheduler::as_str)
            .join(", ");
        format!(
            "--ipvs-scheduler (ipvs.scheduler): the kernel has no scheduler {name:?}; \
             it has: {known}"
        )
    })
}

fn source(
    flags: &Flags,
    configuration: &Configuration,
    gates: &Gates,
    warnings: &mut Vec<String>,
) -> Source {
    let connection = &configuration.client_connection;
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let mut access = Access::default();
    access.kubeconfig = given(&connection.kubeconfig).map(PathBuf::from);
    access.server = flags.master.as_deref().and_then(given);
    access.qps = connection.qps;
    access.burst = connection.burst;
    access.watch_lists = gates.is_enabled(Gate::WatchListClient);
    let Some(path) = &flags.manifests else {
        return Source::Api(access);
    };
    if access.kubeconfig.is_some() || access.server.is_some() {
        let message = "objects are read from --manifests; ignoring --kubeconfig and --master";
        warnings.push(message.to_owned());
    }
    Source::Manifests(path.clone())
}

fn mode(word: &str) -> Result<Mode, String> {
    if word == KERNELSPACE {
        // An engine with kernels of its own does not use the mode.
        return Ok(Mode::default());
    }
    let names: Vec<_> = Mode::BUILT_IN.iter().map(|mode| mode.name()).collect();
    word.parse().map_err(|_| {
        let built_in = names.join(", ");
        format!("--proxy-mode: {word} is not built in; the modes built in are: {built_in}")
    })
}

fn node_name(configuration: &Configuration, hostname: &str) -> Result<Arc<str>, String> {
    let name = match &*configuration.hostname_override {
        "" => hostname,
        name => name,
    };
    match name.trim().to_lowercase() {
        name if name.is_empty() => Err("--hostname-override: empty host name".to_owned()),
        name => Ok(name.into()),
    }
}

fn mark(configuration: &Configuration) -> Mark {
    let bit = match &*configuration.mode {
        "nftables" => configuration.nftables.masquerade_bit,
        _ => configuration.iptables.masquerade_bit,
    };
    let mark = u8::try_from(bit)
        .ok()
        .and_then(|bit| Mark::from_bit(bit).ok());
    mark.unwrap_or_default()
}

fn detect_local(configuration: &Configuration) -> Result<DetectLocal, String> {
    let interfaces = &configuration.detect_local;
    match &*configuration.detect_local_mode {
        "NodeCIDR" => Ok(DetectLocal::NodeCidr),
        "BridgeInterface" => {
            interface("bridgeInterface", &interfaces.bridge_interface).map(DetectLocal::Interface)
        }
        "InterfaceNamePrefix" => {
            interface("interfaceNamePrefix", &interfaces.interface_name_prefix)
                .map(DetectLocal::InterfacePrefix)
        }
        _ => Ok(DetectLocal::ClusterCidr(networks(
            configuration.cluster_cidr.split(','),
        ))),
    }
}

/// Validates the name, or prefix of a name, of an interface.
fn interface(field: &str, name: &str) -> Result<Arc<str>, String> {
    let refused = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    match name.len() > MAX_INTERFACE_NAME || name.contains(refused) {
        true => Err(format!(
            "detectLocal.{field}: {name:?} is not a valid interface name"
        )),
        false => Ok(name.into()),
    }
}

/// Parses networks that were validated before.
fn networks<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpNet> {
    texts.filter_map(parse_network).collect()
}

fn node_port_addresses(values: &[String]) -> NodePortAddresses {
    match values {
        [] => NodePortAddresses::All,
        [word] if word == "primary" => NodePortAddresses::Primary,
        _ => NodePortAddresses::Within(networks(values.iter().map(String::as_str))),
    }
}

/// Parses an address that was validated before, or is empty.
fn socket_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = crate::cli::split_port(text)?;
    Some(SocketAddr::new(parse_address(address)?, port.parse().ok()?))
}

#[cfg(test)]
mod tests;
