//! The configuration, turned into what the parts of the program are told.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use proxy_core::{Config, Intervals, Iptables, Mark, Mode};
use vipline_service_model::{
    DetectLocal, ExternalIps, NodePortAddresses, parse_address, parse_network,
};

use crate::cli::Flags;
use crate::config::{Configuration, Effective, Gate, Gates};
use crate::failure::Failure;

/// When the kernel is compared with the plan although nothing changed.
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
            gates,
            file,
            warnings: _,
        } = effective;
        let mut warnings = Vec::new();
        let mut reasons = Vec::new();
        let mut take = |reason: String| reasons.push(reason);
        let mode = mode(&configuration.mode).map_err(&mut take);
        let node_name = node_name(&configuration, hostname).map_err(&mut take);
        let detect_local = detect_local(&configuration).map_err(&mut take);
        let (Ok(mode), Ok(node_name), Ok(detect_local)) = (mode, node_name, detect_local) else {
            return Err(Failure::Input(reasons));
        };
        let (retry, min) = configuration.sync_periods();
        let external_ips = match gates.is_open(Gate::AllowServiceExternalIPs) {
            true => ExternalIps::Serve,
            false => ExternalIps::Ignore,
        };
        let bind_address = parse_address(&configuration.bind_address);
        Ok(Self {
            source: source(flags, &configuration, &mut warnings),
            config: Config {
                mode,
                node_name,
                masquerade_mark: mark(&configuration),
                masquerade_all: configuration.masquerade_all(),
                detect_local,
                node_port_addresses: node_port_addresses(&configuration.node_port_addresses),
                iptables: Iptables {
                    localhost_node_ports: configuration.iptables.localhost_node_ports,
                    ..Iptables::default()
                },
                external_ips,
                intervals: Intervals {
                    min: min.positive(),
                    retry: retry.positive(),
                    max: MAX_INTERVAL,
                },
                ..Config::default()
            },
            bind_address: bind_address.filter(|address| !address.is_unspecified()),
            healthz: socket_address(&configuration.healthz_bind_address),
            metrics: socket_address(&configuration.metrics_bind_address),
            bind_address_hard_fail: configuration.bind_address_hard_fail,
            oom_score_adj: configuration.oom_score_adj,
            config_file: file,
            sync_period: retry.positive(),
            config_sync_period: configuration.config_sync_period.positive(),
            feature_gates: gates,
            warnings,
            configuration,
        })
    }
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
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn settings(line: &str) -> Result<Settings, String> {
        let line = format!("kube-proxy {line}");
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let flags = &cli.flags;
        Effective::new(flags)
            .and_then(|effective| Settings::new(flags, effective, " Machine\n"))
            .map_err(|failure| failure.to_string())
    }

    /// The settings of flags that go with what is always needed.
    fn good(line: &str) -> Settings {
        settings(&format!("--proxy-mode nftables {line}")).unwrap()
    }

    fn bad(line: &str) -> String {
        settings(&format!("--proxy-mode nftables {line}")).unwrap_err()
    }

    #[test]
    fn the_node_is_named_by_flag_or_machine() {
        assert_eq!(&*good("").config.node_name, "machine");
        let named = good("--hostname-override Node-1");
        assert_eq!(&*named.config.node_name, "node-1");
    }

    #[test]
    fn an_empty_mode_is_iptables_and_the_modes_built_in_are_named() {
        let names: Vec<_> = Mode::BUILT_IN.iter().map(|mode| mode.name()).collect();
        for (flag, mode) in [
            ("", "iptables"),
            ("--proxy-mode=", "iptables"),
            ("--proxy-mode=iptables", "iptables"),
            ("--proxy-mode=ipvs", "ipvs"),
            ("--proxy-mode=nftables", "nftables"),
        ] {
            match settings(flag) {
                Ok(settings) => assert_eq!(settings.config.mode.name(), mode),
                Err(reason) => {
                    assert!(!names.contains(&mode), "{reason}");
                    let built_in = names.join(", ");
                    let expected = format!(
                        "--proxy-mode: {mode} is not built in; the modes built in are: {built_in}"
                    );
                    assert_eq!(reason, expected);
                }
            }
        }
        assert!(
            settings("--proxy-mode x")
                .unwrap_err()
                .contains("Mode.ProxyMode")
        );
    }

    #[test]
    fn objects_come_from_manifests_or_a_server() {
        let Source::Api(access) = good("--kubeconfig k --master m --kube-api-qps 7").source else {
            panic!("no API server")
        };
        assert_eq!(access.kubeconfig, Some("k".into()));
        assert_eq!(
            (access.master.as_deref(), access.qps, access.burst),
            (Some("m"), 7.0, 10)
        );
        let Source::Api(access) = good("--kubeconfig= --master=").source else {
            panic!("no API server")
        };
        assert_eq!((access.kubeconfig, access.master), (None, None));
        let both = good("--kubeconfig k --manifests m");
        assert_eq!(both.source, Source::Manifests("m".into()));
        assert_eq!(both.warnings.len(), 1);
    }

    #[test]
    fn local_traffic_is_told_as_upstream_does() {
        let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        for (line, expected) in [
            ("", DetectLocal::ClusterCidr(Vec::new())),
            (
                "--cluster-cidr fd00:1::/64,10.1.0.0/16",
                DetectLocal::ClusterCidr(networks(&["fd00:1::/64", "10.1.0.0/16"])),
            ),
            (
                "--detect-local-mode NodeCIDR --cluster-cidr x",
                DetectLocal::NodeCidr,
            ),
            (
                "--detect-local-mode BridgeInterface --pod-bridge-interface cni0",
                DetectLocal::Interface("cni0".into()),
            ),
            (
                "--detect-local-mode InterfaceNamePrefix --pod-interface-name-prefix veth",
                DetectLocal::InterfacePrefix("veth".into()),
            ),
        ] {
            assert_eq!(good(line).config.detect_local, expected, "{line}");
        }
        assert_eq!(
            bad("--detect-local-mode BridgeInterface --pod-bridge-interface sixteen-letters!"),
            "detectLocal.bridgeInterface: no interface can be called \"sixteen-letters!\""
        );
    }

    #[test]
    fn node_port_addresses_are_networks_or_primary() {
        for line in ["", "--nodeport-addresses primary"] {
            let addresses = good(line).config.node_port_addresses;
            assert_eq!(addresses, NodePortAddresses::Primary, "{line}");
        }
        let within = NodePortAddresses::Within(vec!["10.0.0.0/8".parse().unwrap()]);
        let addresses = good("--nodeport-addresses 10.0.0.0/8")
            .config
            .node_port_addresses;
        assert_eq!(addresses, within);
    }

    #[test]
    fn mode_iptables_has_settings_of_its_own() {
        let iptables = |line: &str| settings(line).unwrap().config;
        let usual = iptables("");
        assert_eq!(usual.mode, Mode::Iptables);
        assert_eq!(usual.node_port_addresses, NodePortAddresses::All);
        assert!(usual.serves_localhost());
        assert_eq!(usual.intervals.min, Duration::from_secs(1));
        let other = iptables(
            "--iptables-localhost-nodeports=false --iptables-masquerade-bit 3 --masquerade-all \
             --iptables-min-sync-period 5s --nodeport-addresses primary",
        );
        assert!(!other.iptables.localhost_node_ports && other.masquerade_all);
        assert_eq!(other.masquerade_mark.value(), 8);
        assert_eq!(other.intervals.min, Duration::from_secs(5));
        assert_eq!(other.node_port_addresses, NodePortAddresses::Primary);
        assert!(!iptables("--iptables-localhost-nodeports=false").serves_localhost());
        let nftables = good("--iptables-masquerade-bit 3").config.masquerade_mark;
        assert_eq!(nftables, Mark::default(), "the flag is not its");
    }

    #[test]
    fn periods_addresses_and_the_rest_are_taken_over() {
        let set = good(
            "--iptables-sync-period 10s --iptables-min-sync-period 0s --masquerade-all \
             --feature-gates AllowServiceExternalIPs=false --config-sync-period 1m",
        );
        assert_eq!(set.config.intervals.min, Duration::ZERO);
        assert_eq!(set.config.intervals.retry, Duration::from_secs(10));
        assert_eq!(set.sync_period, Duration::from_secs(10));
        assert_eq!(set.config_sync_period, Duration::from_secs(60));
        assert!(set.config.masquerade_all);
        assert_eq!(set.config.external_ips, ExternalIps::Ignore);
        assert_eq!(good("").config.external_ips, ExternalIps::Serve);
        assert_eq!(set.bind_address, None);
        let bound = good("--bind-address fd00::7");
        assert_eq!(bound.bind_address, Some("fd00::7".parse().unwrap()));
    }

    #[test]
    fn servers_are_where_flags_say() {
        let places = |line: &str| {
            let settings = good(line);
            [settings.healthz, settings.metrics]
                .map(|place| place.map_or_else(String::new, |place| place.to_string()))
        };
        for (line, expected) in [
            ("", ["0.0.0.0:10256", "127.0.0.1:10249"]),
            // The defaults were made before this flag was read.
            ("--bind-address ::", ["0.0.0.0:10256", "127.0.0.1:10249"]),
            (
                "--healthz-bind-address ::1 --metrics-bind-address=",
                ["[::1]:10256", "127.0.0.1:10249"],
            ),
            ("--healthz-port 0", ["", "127.0.0.1:10249"]),
            (
                "--healthz-port 5 --metrics-port 6 --metrics-bind-address 1.2.3.4",
                ["0.0.0.0:10256", "1.2.3.4:6"],
            ),
        ] {
            assert_eq!(places(line), expected, "{line}");
        }
        let reason = bad("--metrics-port 0");
        assert!(
            reason.contains("KubeProxyConfiguration.MetricsBindAddress: "),
            "{reason}"
        );
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let reasons = settings("--cluster-cidr x --nodeport-addresses y").unwrap_err();
        assert_eq!(reasons.lines().count(), 2, "{reasons}");
    }
}
