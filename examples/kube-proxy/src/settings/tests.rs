//! Tests of the conversion from flags and configuration files.

use clap::Parser;
use testkit::scoped::Directory;

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

/// Returns the settings of valid flags.
fn good(line: &str) -> Settings {
    settings(&format!("--proxy-mode nftables {line}")).unwrap()
}

fn bad(line: &str) -> String {
    settings(&format!("--proxy-mode nftables {line}")).unwrap_err()
}

#[test]
fn the_node_name_is_the_flag_or_the_host_name() {
    assert_eq!(&*good("").config.engine.node_name, "machine");
    let named = good("--hostname-override Node-1");
    assert_eq!(&*named.config.engine.node_name, "node-1");
}

#[test]
fn an_empty_mode_is_iptables_and_an_unknown_mode_lists_the_built_in_modes() {
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
fn objects_are_read_from_manifests_or_an_api_server() {
    let Source::Api(access) = good("--kubeconfig k --master m --kube-api-qps 7").source else {
        panic!("no API server")
    };
    assert_eq!(access.kubeconfig, Some("k".into()));
    assert_eq!(
        (access.server.as_deref(), access.qps, access.burst),
        (Some("m"), 7.0, 10)
    );
    let Source::Api(access) = good("--kubeconfig= --master=").source else {
        panic!("no API server")
    };
    assert_eq!((access.kubeconfig, access.server), (None, None));
    let both = good("--kubeconfig k --manifests m");
    assert_eq!(both.source, Source::Manifests("m".into()));
    assert_eq!(both.warnings.len(), 1);
}

#[test]
fn local_traffic_is_detected_as_in_upstream() {
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
        assert_eq!(good(line).config.engine.detect_local, expected, "{line}");
    }
    assert_eq!(
        bad("--detect-local-mode BridgeInterface --pod-bridge-interface sixteen-letters!"),
        "detectLocal.bridgeInterface: \"sixteen-letters!\" is not a valid interface name"
    );
}

#[test]
fn node_port_addresses_are_networks_or_primary() {
    for line in ["", "--nodeport-addresses primary"] {
        let addresses = good(line).config.engine.node_port_addresses;
        assert_eq!(addresses, NodePortAddresses::Primary, "{line}");
    }
    let within = NodePortAddresses::Within(vec!["10.0.0.0/8".parse().unwrap()]);
    let addresses = good("--nodeport-addresses 10.0.0.0/8")
        .config
        .engine
        .node_port_addresses;
    assert_eq!(addresses, within);
}

#[test]
fn mode_iptables_has_its_own_settings() {
    let iptables = |line: &str| settings(line).unwrap().config;
    let usual = iptables("");
    assert_eq!(usual.mode, Mode::Iptables);
    assert_eq!(usual.engine.node_port_addresses, NodePortAddresses::All);
    assert!(usual.serves_localhost());
    assert_eq!(usual.engine.intervals.min, Duration::from_secs(1));
    let other = iptables(
        "--iptables-localhost-nodeports=false --iptables-masquerade-bit 3 --masquerade-all \
         --iptables-min-sync-period 5s --nodeport-addresses primary",
    );
    assert!(!other.iptables.localhost_node_ports && other.engine.masquerade_all);
    assert_eq!(other.engine.masquerade_mark.value(), 8);
    assert_eq!(other.engine.intervals.min, Duration::from_secs(5));
    assert_eq!(other.engine.node_port_addresses, NodePortAddresses::Primary);
    assert!(!iptables("--iptables-localhost-nodeports=false").serves_localhost());
    let nftables = good("--iptables-masquerade-bit 3")
        .config
        .engine
        .masquerade_mark;
    assert_eq!(nftables, Mark::default(), "the flag is not its");
}

/// Returns the settings of a configuration file.
fn of_file(text: &str) -> Settings {
    let folder = Directory::new().unwrap();
    let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    folder
        .write("config.yaml", &(head.to_owned() + text))
        .unwrap();
    let file = folder.path().join("config.yaml");
    settings(&format!("--config {}", file.display())).unwrap()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn mode_ipvs_has_its_own_settings() {
    let ipvs = |line: &str| settings(&format!("--proxy-mode ipvs {line}")).unwrap();
    let usual = ipvs("").config;
    assert_eq!((usual.mode, &usual.ipvs), (Mode::Ipvs, &Ipvs::default()));
    assert_eq!(usual.engine.node_port_addresses, NodePortAddresses::All);
    let intervals = |min, retry| Intervals {
        min,
        retry,
        max: MAX_INTERVAL,
    };
    assert_eq!(usual.engine.intervals, intervals(SECOND, 30 * SECOND));
    let other = ipvs(
        "--ipvs-scheduler mh --ipvs-exclude-cidrs 10.0.0.0/8,fd00::/8 --masquerade-all \
         --iptables-masquerade-bit 3 --ipvs-sync-period 9s --ipvs-min-sync-period 2s \
         --iptables-sync-period 7s --nodeport-addresses primary",
    );
    assert_eq!(other.config.ipvs.scheduler, Scheduler::Maglev);
    let excluded = ["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().unwrap());
    assert_eq!(other.config.ipvs.excluded, excluded);
    assert_eq!(other.config.engine.masquerade_mark.value(), 8);
    assert!(other.config.engine.masquerade_all);
    assert_eq!(
        other.config.engine.intervals,
        intervals(2 * SECOND, 9 * SECOND)
    );
    assert_eq!(other.sync_period, 9 * SECOND);
    let primary = NodePortAddresses::Primary;
    assert_eq!(other.config.engine.node_port_addresses, primary);
}

#[test]
fn mode_ipvs_of_a_file_has_no_minimum_sync_period() {
    let ipvs = of_file("mode: ipvs\nipvs: {scheduler: sh, strictARP: true}\n");
    assert_eq!(ipvs.config.engine.intervals.min, Duration::ZERO);
    assert_eq!(ipvs.config.ipvs.scheduler, Scheduler::SourceHash);
    assert!(ipvs.configuration.ipvs.strict_arp);
}

#[test]
fn an_unknown_scheduler_lists_the_available_ones() {
    let reason = settings("--proxy-mode ipvs --ipvs-scheduler RR").unwrap_err();
    let start = "--ipvs-scheduler (ipvs.scheduler): the kernel has no scheduler \"RR\"; it has: \
                 rr, wrr, lc, ";
    assert!(reason.starts_with(start), "{reason}");
    assert_eq!(reason.lines().count(), 1);
    let unused = good("--ipvs-scheduler RR").config.ipvs;
    assert_eq!(unused.scheduler, Scheduler::RoundRobin);
}

#[test]
fn the_fallback_of_mode_ipvs_is_mode_iptables_with_its_section() {
    for settings in [
        settings(
            "--proxy-mode ipvs --iptables-sync-period 7s --iptables-min-sync-period 3s \
             --ipvs-sync-period 9s --masquerade-all --iptables-localhost-nodeports=false",
        )
        .unwrap(),
        of_file(
            "mode: ipvs\nipvs: {syncPeriod: 9s}\niptables: {syncPeriod: 7s, minSyncPeriod: 3s, \
             masqueradeAll: true, localhostNodePorts: false}\n",
        ),
    ] {
        assert_eq!(settings.sync_period, 9 * SECOND);
        let instead = settings.fallback.unwrap();
        assert_eq!(instead.config.mode, Mode::Iptables);
        assert_eq!(instead.configuration.mode, "iptables");
        assert_eq!(instead.sync_period, 7 * SECOND);
        assert_eq!(instead.config.engine.intervals.min, 3 * SECOND);
        assert_eq!(instead.config.engine.intervals.max, MAX_INTERVAL);
        assert!(instead.config.engine.masquerade_all);
        assert!(!instead.config.iptables.localhost_node_ports);
        assert_eq!(instead.config_file, settings.config_file);
        assert!(instead.fallback.is_none());
    }
    assert!(good("").fallback.is_none());
    assert!(settings("").unwrap().fallback.is_none());
}

#[test]
fn periods_addresses_and_other_values_are_converted() {
    let set = good(
        "--iptables-sync-period 10s --iptables-min-sync-period 0s --masquerade-all \
         --feature-gates AllowServiceExternalIPs=false --config-sync-period 1m",
    );
    assert_eq!(set.config.engine.intervals.min, Duration::ZERO);
    assert_eq!(set.config.engine.intervals.retry, Duration::from_secs(10));
    assert_eq!(set.sync_period, Duration::from_secs(10));
    assert_eq!(set.config_sync_period, Duration::from_secs(60));
    assert!(set.config.engine.masquerade_all);
    assert_eq!(set.config.engine.external_ips, ExternalIps::Ignore);
    assert_eq!(good("").config.engine.external_ips, ExternalIps::Serve);
    assert_eq!(set.bind_address, None);
    let bound = good("--bind-address fd00::7");
    assert_eq!(bound.bind_address, Some("fd00::7".parse().unwrap()));
}

#[test]
fn server_addresses_follow_the_flags() {
    let places = |line: &str| {
        let settings = good(line);
        [settings.healthz, settings.metrics]
            .map(|place| place.map_or_else(String::new, |place| place.to_string()))
    };
    for (line, expected) in [
        ("", ["0.0.0.0:10256", "127.0.0.1:10249"]),
        // The defaults are set before this flag is parsed.
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
fn all_problems_are_reported_at_once() {
    let reasons = settings("--cluster-cidr x --nodeport-addresses y").unwrap_err();
    assert_eq!(reasons.lines().count(), 2, "{reasons}");
}
