//! Flags, checked and turned into what the engine is told.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use proxy_core::{Config, Intervals, Mode};
use vipline_service_model::{DetectLocal, Family, NodePortAddresses, parse_network};

use crate::cli::Flags;
use crate::failure::Failure;

/// When the kernel is compared with the plan although nothing changed.
const MAX_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The longest name of an interface: `IFNAMSIZ - 1` of linux/if.h.
const MAX_INTERFACE_NAME: usize = 15;

/// What the flags say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the objects come from.
    pub manifests: PathBuf,
    /// What the engine is told.
    pub config: Config,
    /// The address of this node, whatever its Node object says.
    pub bind_address: Option<IpAddr>,
}

impl Settings {
    /// Checks flags; `hostname` is the machine's name.
    ///
    /// # Errors
    ///
    /// Every flag that is wrong, each in a line.
    pub fn new(flags: &Flags, hostname: &str) -> Result<Self, Failure> {
        let mut reasons = Vec::new();
        let mut take = |reason: String| reasons.push(reason);
        let manifests = manifests(flags).map_err(&mut take);
        let mode = mode(&flags.proxy_mode).map_err(&mut take);
        let node_name = node_name(flags, hostname).map_err(&mut take);
        let detect_local = detect_local(flags).map_err(&mut take);
        let node_port_addresses = node_port_addresses(&flags.nodeport_addresses).map_err(&mut take);
        let intervals = intervals(flags).map_err(&mut take);
        let (Ok(manifests), Ok(mode), Ok(node_name), Ok(detect_local)) =
            (manifests, mode, node_name, detect_local)
        else {
            return Err(Failure::Input(reasons));
        };
        let (Ok(node_port_addresses), Ok(intervals)) = (node_port_addresses, intervals) else {
            return Err(Failure::Input(reasons));
        };
        let masquerade_all = flags.masquerade_all;
        Ok(Self {
            manifests,
            config: Config {
                mode,
                node_name,
                masquerade_all,
                detect_local,
                node_port_addresses,
                intervals,
                ..Config::default()
            },
            bind_address: Some(flags.bind_address).filter(|address| !address.is_unspecified()),
        })
    }
}

fn manifests(flags: &Flags) -> Result<PathBuf, String> {
    let asked = [
        ("--kubeconfig", &flags.kubeconfig),
        ("--master", &flags.master),
    ];
    let asked = asked.iter().find(|(_, value)| !value.is_empty());
    match (asked, &flags.manifests) {
        (Some((flag, _)), _) => Err(format!(
            "{flag}: this build has no Kubernetes API client and reads objects from --manifests only"
        )),
        (None, None) => Err(
            "--manifests: missing; this build has no Kubernetes API client, \
                             so it cannot run in a cluster without it"
                .to_owned(),
        ),
        (None, Some(path)) => Ok(path.clone()),
    }
}

fn mode(word: &str) -> Result<Mode, String> {
    let names: Vec<_> = Mode::BUILT_IN.iter().map(|mode| mode.name()).collect();
    let built_in = format!("the modes built in are: {}", names.join(", "));
    let reason = match word {
        "" => "empty, which means iptables".to_owned(),
        "iptables" | "ipvs" => format!("{word} is not built in"),
        _ => format!("there is no mode {word:?}"),
    };
    word.parse()
        .map_err(|_| format!("--proxy-mode: {reason}; {built_in}"))
}

fn node_name(flags: &Flags, hostname: &str) -> Result<Arc<str>, String> {
    let name = match &*flags.hostname_override {
        "" => hostname,
        name => name,
    };
    match name.trim().to_lowercase() {
        name if name.is_empty() => Err("--hostname-override: empty host name".to_owned()),
        name => Ok(name.into()),
    }
}

fn detect_local(flags: &Flags) -> Result<DetectLocal, String> {
    match &*flags.detect_local_mode {
        "" | "ClusterCIDR" => cluster_cidrs(&flags.cluster_cidr).map(DetectLocal::ClusterCidr),
        "NodeCIDR" => Ok(DetectLocal::NodeCidr),
        "BridgeInterface" => interface("--pod-bridge-interface", &flags.pod_bridge_interface)
            .map(DetectLocal::Interface),
        "InterfaceNamePrefix" => interface(
            "--pod-interface-name-prefix",
            &flags.pod_interface_name_prefix,
        )
        .map(DetectLocal::InterfacePrefix),
        word => Err(format!(
            "--detect-local-mode: {word:?} is none of ClusterCIDR, NodeCIDR, BridgeInterface, \
             InterfaceNamePrefix"
        )),
    }
}

/// Reads the name of an interface, or how one begins, as the kernel has them.
fn interface(flag: &str, name: &str) -> Result<Arc<str>, String> {
    let refused = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if name.is_empty() {
        Err(format!("{flag}: missing, and --detect-local-mode needs it"))
    } else if name.len() > MAX_INTERFACE_NAME || name.contains(refused) {
        Err(format!("{flag}: no interface can be called {name:?}"))
    } else {
        Ok(name.into())
    }
}

fn cluster_cidrs(text: &str) -> Result<Vec<IpNet>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let read = |text: &str| {
        parse_network(text.trim()).ok_or_else(|| format!("--cluster-cidr: not a network: {text:?}"))
    };
    let networks: Vec<_> = text.split(',').map(read).collect::<Result<_, _>>()?;
    let families: Vec<_> = networks
        .iter()
        .map(|&network| Family::of_network(network))
        .collect();
    match families[..] {
        [_] => Ok(networks),
        [first, second] if first != second => Ok(networks),
        _ => Err(format!(
            "--cluster-cidr: one network, or one of each family, not {text:?}"
        )),
    }
}

fn node_port_addresses(words: &[String]) -> Result<NodePortAddresses, String> {
    match words {
        [] => Ok(NodePortAddresses::Primary),
        [word] if word == "primary" => Ok(NodePortAddresses::Primary),
        _ => {
            let read = |word: &String| {
                parse_network(word)
                    .ok_or_else(|| format!("--nodeport-addresses: not a network: {word:?}"))
            };
            let networks = words.iter().map(read).collect::<Result<_, _>>()?;
            Ok(NodePortAddresses::Within(networks))
        }
    }
}

fn intervals(flags: &Flags) -> Result<Intervals, String> {
    let (period, min) = (flags.iptables_sync_period, flags.iptables_min_sync_period);
    if period.is_zero() {
        return Err("--iptables-sync-period: must be greater than 0".to_owned());
    }
    if min > period {
        return Err(
            "--iptables-min-sync-period: must not be greater than --iptables-sync-period"
                .to_owned(),
        );
    }
    Ok(Intervals {
        min,
        retry: period,
        max: MAX_INTERVAL,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn settings(line: &str) -> Result<Settings, String> {
        let line = format!("kube-proxy {line}");
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        Settings::new(&cli.flags, " Machine\n").map_err(|failure| failure.to_string())
    }

    /// The settings of flags that go with what is always needed.
    fn good(line: &str) -> Settings {
        settings(&format!("--manifests m --proxy-mode nftables {line}")).unwrap()
    }

    fn bad(line: &str) -> String {
        settings(&format!("--manifests m --proxy-mode nftables {line}")).unwrap_err()
    }

    #[test]
    fn the_node_is_named_by_flag_or_machine() {
        assert_eq!(&*good("").config.node_name, "machine");
        assert_eq!(
            &*good("--hostname-override Node-1").config.node_name,
            "node-1"
        );
    }

    #[test]
    fn the_modes_built_in_are_named() {
        for (flag, reason) in [
            ("", "empty, which means iptables"),
            ("--proxy-mode=ipvs", "ipvs is not built in"),
            ("--proxy-mode userspace", "there is no mode \"userspace\""),
        ] {
            let expected = format!("--proxy-mode: {reason}; the modes built in are: nftables");
            assert_eq!(
                settings(&format!("--manifests m {flag}")).unwrap_err(),
                expected
            );
        }
    }

    #[test]
    fn objects_come_from_manifests_only() {
        let only =
            "this build has no Kubernetes API client and reads objects from --manifests only";
        assert_eq!(bad("--kubeconfig k"), format!("--kubeconfig: {only}"));
        assert_eq!(bad("--master m"), format!("--master: {only}"));
        let missing = settings("--proxy-mode nftables").unwrap_err();
        assert!(missing.starts_with("--manifests: missing; "), "{missing}");
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
        for (line, expected) in [
            (
                "--cluster-cidr 10.0.0.0",
                "--cluster-cidr: not a network: \"10.0.0.0\"",
            ),
            (
                "--cluster-cidr 10.0.0.0/8,11.0.0.0/8",
                "--cluster-cidr: one network, or one of each family, not \"10.0.0.0/8,11.0.0.0/8\"",
            ),
            (
                "--detect-local-mode BridgeInterface",
                "--pod-bridge-interface: missing, and --detect-local-mode needs it",
            ),
            (
                "--detect-local-mode BridgeInterface --pod-bridge-interface sixteen-letters!",
                "--pod-bridge-interface: no interface can be called \"sixteen-letters!\"",
            ),
            (
                "--detect-local-mode clustercidr",
                "--detect-local-mode: \"clustercidr\" is none of ClusterCIDR, NodeCIDR, \
                 BridgeInterface, InterfaceNamePrefix",
            ),
        ] {
            assert_eq!(bad(line), expected, "{line}");
        }
    }

    #[test]
    fn node_port_addresses_are_networks_or_primary() {
        assert_eq!(
            good("").config.node_port_addresses,
            NodePortAddresses::Primary
        );
        let primary = good("--nodeport-addresses primary")
            .config
            .node_port_addresses;
        assert_eq!(primary, NodePortAddresses::Primary);
        let within = NodePortAddresses::Within(vec!["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(
            good("--nodeport-addresses 10.0.0.0/8")
                .config
                .node_port_addresses,
            within
        );
        let mixed = bad("--nodeport-addresses primary,10.0.0.0/8");
        assert_eq!(mixed, "--nodeport-addresses: not a network: \"primary\"");
    }

    #[test]
    fn periods_and_addresses_are_taken_over() {
        let set = good("--iptables-sync-period 10s --iptables-min-sync-period 0s --masquerade-all");
        assert_eq!(set.config.intervals.min, Duration::ZERO);
        assert_eq!(set.config.intervals.retry, Duration::from_secs(10));
        assert!(set.config.masquerade_all);
        assert_eq!(set.bind_address, None);
        let bound = good("--bind-address fd00::7").bind_address;
        assert_eq!(bound, Some("fd00::7".parse().unwrap()));
        assert!(bad("--iptables-sync-period 0s").contains("greater than 0"));
        assert!(bad("--iptables-sync-period 500ms").contains("must not be greater"));
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let reasons = settings("--cluster-cidr x --nodeport-addresses y").unwrap_err();
        assert_eq!(reasons.lines().count(), 4, "{reasons}");
    }
}
