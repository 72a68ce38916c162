//! The configuration, turned into what the parts of the program are told.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use proxy_core::{Config, Intervals, Iptables, Ipvs, Mark, Mode};
use vipline_service_model::{
    DetectLocal, ExternalIps, NodePortAddresses, Scheduler, parse_address, parse_network,
};

use crate::cli::Flags;
use crate::config::{Configuration, Effective, Gate, Gates};
use crate::failure::Failure;

/// When the kernel is compared with the plan although nothing changed, and nobody
/// was heard or seen to change anything.
const MAX_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The longest name of an interface: `IFNAMSIZ - 1` of linux/if.h.
const MAX_INTERFACE_NAME: usize = 15;

/// What the parts of the program are told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the objects come from.
    pub source: Source,
    /// What the engine is told.
    pub config: Config,
    /// The address of this node, whatever its Node object says.
    pub bind_address: Option<IpAddr>,
    /// The effective configuration.
    pub configuration: Configuration,
    /// Where health is served; `None` is nowhere.
    pub healthz: Option<SocketAddr>,
    /// Where metrics are served; `None` is nowhere.
    pub metrics: Option<SocketAddr>,
    /// Whether the process ends if it cannot serve health or metrics.
    pub bind_address_hard_fail: bool,
    /// How readily the kernel kills this process for want of memory.
    pub oom_score_adj: i32,
    /// The file that the configuration came from; its change ends the process.
    pub config_file: Option<PathBuf>,
    /// When a failed sync is tried again; health waits for twice that.
    pub sync_period: Duration,
    /// How often all objects are looked at again.
    pub config_sync_period: Duration,
    /// Features that can be turned off.
    pub feature_gates: Gates,
    /// What is odd besides what is odd about the configuration itself.
    pub warnings: Vec<String>,
    /// What to do where the kernel cannot do mode ipvs.
    pub fallback: Option<Box<Self>>,
}

/// Where the objects come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A file or a directory of them.
    Manifests(PathBuf),
    /// An API server.
    Api(Access),
}

/// How the API server is reached.
///
/// With neither kubeconfig nor master it is that of the cluster this runs in.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The file that names the server and what to show it.
    pub kubeconfig: Option<PathBuf>,
    /// The address of the server, instead of that in the file.
    pub master: Option<String>,
    /// Requests a second.
    pub qps: f32,
    /// Requests at once.
    pub burst: i32,
    /// The format of requests.
    pub content_type: String,
    /// The formats of answers; empty for that of requests.
    pub accept_content_types: String,
}

impl Settings {
    /// Turns a configuration into settings; `hostname` is the machine's name.
    ///
    /// # Errors
    ///
    /// All that this build cannot do, each in a line.
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
        let config = config(&configuration, &gates, hostname).map_err(Failure::Input)?;
        let bind_address = parse_address(&configuration.bind_address);
        Ok(Self {
            source: source(flags, &configuration, &mut warnings),
            sync_period: config.intervals.retry,
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

/// Returns what the engine is told, or all that this build cannot do.
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
    Ok(Config {
        mode,
        node_name,
        masquerade_mark: mark(configuration),
        masquerade_all: configuration.masquerade_all(),
        detect_local,
        node_port_addresses: node_port_addresses(&configuration.node_port_addresses),
        iptables: Iptables {
            localhost_node_ports: configuration.iptables.localhost_node_ports,
            ..Iptables::default()
        },
        ipvs: Ipvs {
            scheduler,
            excluded: excluded(configuration),
        },
        external_ips: match gates.is_open(Gate::AllowServiceExternalIPs) {
            true => ExternalIps::Serve,
            false => ExternalIps::Ignore,
        },
        intervals: intervals(configuration),
        ..Config::default()
    })
}

/// Returns how far apart syncs are.
fn intervals(configuration: &Configuration) -> Intervals {
    let (retry, min) = configuration.sync_periods();
    Intervals {
        min: min.positive(),
        retry: retry.positive(),
        max: MAX_INTERVAL,
    }
}

/// Returns the networks whose virtual servers are not touched, in any mode.
pub fn excluded(configuration: &Configuration) -> Vec<IpNet> {
    networks(configuration.ipvs.exclude_cidrs.iter().map(String::as_str))
}

/// Finds the scheduler that mode ipvs is told of; empty is the usual one.
fn scheduler(configuration: &Configuration) -> Result<Scheduler, String> {
    let name = &*configuration.ipvs.scheduler;
    if configuration.mode != Mode::Ipvs.name() || name.is_empty() {
        return Ok(Scheduler::default());
    }
    Scheduler::from_name(name).ok_or_else(|| {
        let known = Scheduler::ALL.map(Scheduler::name).join(", ");
        format!(
            "--ipvs-scheduler (ipvs.scheduler): the kernel has no scheduler {name:?}; \
             it has: {known}"
        )
    })
}

fn source(flags: &Flags, configuration: &Configuration, warnings: &mut Vec<String>) -> Source {
    let connection = &configuration.client_connection;
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let access = Access {
        kubeconfig: given(&connection.kubeconfig).map(PathBuf::from),
        master: flags.master.as_deref().and_then(given),
        qps: connection.qps,
        burst: connection.burst,
        content_type: connection.content_type.clone(),
        accept_content_types: connection.accept_content_types.clone(),
    };
    let Some(path) = &flags.manifests else {
        return Source::Api(access);
    };
    if access.kubeconfig.is_some() || access.master.is_some() {
        let words = "objects come from --manifests, and no API server is asked";
        warnings.push(words.to_owned());
    }
    Source::Manifests(path.clone())
}

fn mode(word: &str) -> Result<Mode, String> {
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

/// Reads the name of an interface, or how one begins, as the kernel has them.
fn interface(field: &str, name: &str) -> Result<Arc<str>, String> {
    let refused = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    match name.len() > MAX_INTERFACE_NAME || name.contains(refused) {
        true => Err(format!(
            "detectLocal.{field}: no interface can be called {name:?}"
        )),
        false => Ok(name.into()),
    }
}

/// Reads networks, all of which are known to be good.
fn networks<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpNet> {
    texts.filter_map(parse_network).collect()
}

fn node_port_addresses(words: &[String]) -> NodePortAddresses {
    match words {
        [] => NodePortAddresses::All,
        [word] if word == "primary" => NodePortAddresses::Primary,
        _ => NodePortAddresses::Within(networks(words.iter().map(String::as_str))),
    }
}

/// Reads an address that is known to be good, or empty.
fn socket_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = crate::cli::split_port(text)?;
    Some(SocketAddr::new(parse_address(address)?, port.parse().ok()?))
}

#[cfg(test)]
mod tests;
