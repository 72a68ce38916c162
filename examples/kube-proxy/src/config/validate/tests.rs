//! Tests of each validation rule.

use super::*;
use crate::config::file;

/// Returns a complete configuration from a file with these lines.
fn configuration(lines: &str) -> Configuration {
    let text = format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{lines}"
    );
    let found = file::read(&text).unwrap();
    assert_eq!(found.problems, [""; 0], "{lines}");
    let mut configuration = found.configuration;
    configuration.fill_for_system();
    configuration.reset_other_modes();
    configuration
}

/// Invalid files and the expected messages.
const REFUSED: &[(&str, &str)] = &[
    (
        "featureGates: {Sesame: true}",
        "featureGates: Invalid value: map[string]bool{\"Sesame\":true}: \
         unrecognized feature gate: Sesame",
    ),
    (
        "featureGates: {NFTablesProxyMode: false}",
        "featureGates: Invalid value: map[string]bool{\"NFTablesProxyMode\":false}: cannot set \
         feature gate NFTablesProxyMode to false, feature is locked to true",
    ),
    (
        "clientConnection: {burst: -1}",
        "ClientConnection.Burst: Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "logging: {format: xml}",
        "logging.format: Invalid value: \"xml\": Unsupported log format",
    ),
    (
        "logging: {format: json}\nfeatureGates: {LoggingBetaOptions: false}",
        "logging.format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature",
    ),
    (
        "logging: {verbosity: 2147483648}",
        "logging.verbosity: Invalid value: 2147483648: Must be <= 2147483647",
    ),
    (
        "logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}",
        "logging.vmodule: Forbidden: Only supported for text log format",
    ),
    (
        "logging: {vmodule: [{filePattern: a}, {verbosity: 1}]}",
        "logging.vmodule[1]: Required value: File pattern must not be empty",
    ),
    (
        "logging: {vmodule: [{filePattern: a=b}]}",
        "logging.vmodule[0]: Invalid value: \"a=b\": \
         File pattern must not contain equal sign or comma",
    ),
    (
        "logging: {vmodule: [{filePattern: a, verbosity: 4000000000}]}",
        "logging.vmodule[0]: Invalid value: 4000000000: Must be <= 2147483647",
    ),
    (
        "logging: {options: {text: {splitStream: true}}}",
        "logging.options.text.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled",
    ),
    (
        "logging: {options: {json: {infoBufferSize: 4Ki}}}",
        "logging.options.json.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled",
    ),
    (
        "bindAddress: 10.10.12.11:2000\nhealthzBindAddress: 1.2.3.4\nmetricsBindAddress: 1.2.3.4",
        "BindAddress: Invalid value: \"10.10.12.11:2000\": \
         not a valid textual representation of an IP address",
    ),
    (
        "healthzBindAddress: here",
        "HealthzBindAddress: Invalid value: \"here\": must be IP:port",
    ),
    (
        "healthzBindAddress: localhost:10256",
        "HealthzBindAddress: Invalid value: \"localhost\": must be a valid IP",
    ),
    (
        "healthzBindAddress: 0.0.0.0:http",
        "HealthzBindAddress: Invalid value: \"http\": must be a valid port",
    ),
    (
        "healthzBindAddress: '[::]:0'",
        "HealthzBindAddress: Invalid value: \"0\": must be a valid port",
    ),
    (
        "metricsBindAddress: '::1:10249'",
        "MetricsBindAddress: Invalid value: \"::1:10249\": must be IP:port",
    ),
    (
        "metricsBindAddress: 127.0.0.1:65536",
        "MetricsBindAddress: Invalid value: \"65536\": must be a valid port",
    ),
    (
        "metricsBindAddress: '[127.0.0.1:1'",
        "MetricsBindAddress: Invalid value: \"[127.0.0.1:1\": must be IP:port",
    ),
    (
        "showHiddenMetricsForVersion: '1.34'",
        "ShowHiddenMetricsForVersion: Invalid value: \"1.34\": --show-hidden-metrics-for-version \
         must be omitted or have the value '1.35'. Only the previous minor version is allowed",
    ),
    (
        "mode: userspace",
        "Mode.ProxyMode: Invalid value: \"userspace\": must be iptables, ipvs, nftables or blank \
         (blank means the best-available proxy [currently iptables])",
    ),
    (
        "mode: nftables\niptables: {masqueradeBit: 32}",
        "KubeProxyIPTablesConfiguration.MasqueradeBit: Invalid value: 32: \
         must be within the range [0, 31]",
    ),
    (
        "mode: nftables\nnftables: {masqueradeBit: -1}",
        "KubeProxyNFTablesConfiguration.MasqueradeBit: Invalid value: -1: \
         must be within the range [0, 31]",
    ),
    ("mode: iptables\nnftables: {masqueradeBit: -1}", ""),
    (
        "mode: iptables\niptables: {masqueradeBit: -1}",
        "KubeProxyIPTablesConfiguration.MasqueradeBit: Invalid value: -1: \
         must be within the range [0, 31]",
    ),
    (
        "mode: iptables\nnodePortAddresses: [primary, 10.0.0.0/8]",
        "NodePortAddresses[0]: Invalid value: \"primary\": can't use both 'primary' and CIDRs",
    ),
    (
        "mode: iptables\niptables: {syncPeriod: 500ms}\nnftables: {syncPeriod: -1s}",
        "SyncPeriod: Invalid value: 1s: \
         must be greater than or equal to KubeProxyConfiguration.MinSyncPeriod",
    ),
    (
        "iptables: {syncPeriod: -1s, minSyncPeriod: -2s}",
        "SyncPeriod: Invalid value: -1s: must be greater than 0\n\
         MinSyncPeriod: Invalid value: -2s: must be greater than or equal to 0",
    ),
    (
        "iptables: {syncPeriod: 1s, minSyncPeriod: 1m}",
        "SyncPeriod: Invalid value: 1m0s: \
         must be greater than or equal to KubeProxyConfiguration.MinSyncPeriod",
    ),
    (
        "mode: nftables\nnftables: {syncPeriod: 500ms}",
        "SyncPeriod: Invalid value: 1s: \
         must be greater than or equal to KubeProxyConfiguration.MinSyncPeriod",
    ),
    (
        "mode: ipvs\nipvs: {minSyncPeriod: -1ms}",
        "MinSyncPeriod: Invalid value: -1ms: must be greater than or equal to 0",
    ),
    (
        "mode: nftables\niptables: {syncPeriod: -1s}\nipvs: {syncPeriod: -1s}",
        "",
    ),
    (
        "mode: ipvs\nipvs: {excludeCIDRs: [10.0.0.0/8, 10.0.0.1]}",
        "KubeProxyIPVSConfiguration.ExcludeCidrs[1]: Invalid value: \"10.0.0.1\": \
         must be a valid CIDR",
    ),
    (
        "mode: nftables\nipvs: {excludeCIDRs: [x], tcpTimeout: -1s}",
        "",
    ),
    (
        "mode: ipvs\nipvs: {tcpTimeout: -1s}",
        "KubeProxyIPVSConfiguration.TCPTimeout: Invalid value: -1s: \
         must be greater than or equal to 0",
    ),
    (
        "mode: ipvs\nipvs: {tcpFinTimeout: -1s}",
        "KubeProxyIPVSConfiguration.TCPFinTimeout: Invalid value: -1s: \
         must be greater than or equal to 0",
    ),
    (
        "mode: ipvs\nipvs: {udpTimeout: -1s}",
        "KubeProxyIPVSConfiguration.UDPTimeout: Invalid value: -1s: \
         must be greater than or equal to 0",
    ),
    (
        "detectLocalMode: Guess",
        "DetectLocalMode: Unsupported value: \"Guess\": supported values: \"ClusterCIDR\", \
         \"NodeCIDR\", \"BridgeInterface\", \"InterfaceNamePrefix\", \"\"",
    ),
    (
        "detectLocalMode: BridgeInterface\ndetectLocal: {interfaceNamePrefix: veth}",
        "DetectLocalConfiguration.InterfaceName: Invalid value: \"\": must not be empty",
    ),
    (
        "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {bridgeInterface: cni0}",
        "DetectLocalConfiguration.InterfacePrefix: Invalid value: \"\": must not be empty",
    ),
    (
        "clusterCIDR: 10.0.0.0",
        "DetectLocalConfiguration.ClusterCIDRs[0]: Invalid value: \"10.0.0.0\": must be a valid \
         CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)",
    ),
    (
        "clusterCIDR: 10.0.0.0/8,11.0.0.0/8",
        "DetectLocalConfiguration.ClusterCIDRs: Invalid value: \
         []string{\"10.0.0.0/8\", \"11.0.0.0/8\"}: must be a either a single CIDR or dual-stack \
         pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]",
    ),
    (
        "clusterCIDR: 10.0.0.0/8,fd00::/64,fd01::/64",
        "DetectLocalConfiguration.ClusterCIDRs: Invalid value: \
         []string{\"10.0.0.0/8\", \"fd00::/64\", \"fd01::/64\"}: must be a either a single CIDR \
         or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]",
    ),
    ("clusterCIDR: x\ndetectLocalMode: NodeCIDR", ""),
    (
        "nodePortAddresses: [10.0.0.0/8, 10.0.0.1]",
        "NodePortAddresses[1]: Invalid value: \"10.0.0.1\": must be a valid CIDR",
    ),
    (
        "nodePortAddresses: [primary, 10.0.0.0/8]",
        "NodePortAddresses[0]: Invalid value: \"primary\": can't use both 'primary' and CIDRs",
    ),
    (
        "nodePortAddresses: [10.0.0.0/8, primary]",
        "NodePortAddresses[1]: Invalid value: \"primary\": can't use both 'primary' and CIDRs",
    ),
    (
        "oomScoreAdj: 1001",
        "KubeProxyLinuxConfiguration.OOMScoreAdj: Invalid value: 1001: \
         must be within the range [-1000, 1000]",
    ),
    (
        "oomScoreAdj: -1001",
        "KubeProxyLinuxConfiguration.OOMScoreAdj: Invalid value: -1001: \
         must be within the range [-1000, 1000]",
    ),
    (
        "configSyncPeriod: -1s",
        "ConfigSyncPeriod: Invalid value: -1s: must be greater than 0",
    ),
];

#[test]
fn each_rule_reports_upstreams_path_and_message() {
    for (lines, expected) in REFUSED {
        let problems = check(&configuration(lines)).err().unwrap_or_default();
        let expected: Vec<_> = expected
            .lines()
            .map(|line| format!("KubeProxyConfiguration.{line}"))
            .collect();
        assert_eq!(problems, expected, "{lines}");
    }
}

#[test]
fn each_number_of_conntrack_is_checked() {
    for (field, value, path) in [
        ("maxPerCore", "-1", "MaxPerCore"),
        ("min", "-1", "Min"),
        ("tcpEstablishedTimeout", "-1s", "TCPEstablishedTimeout"),
        ("tcpCloseWaitTimeout", "-1s", "TCPCloseWaitTimeout"),
        ("udpTimeout", "-1s", "UDPTimeout"),
        ("udpStreamTimeout", "-1s", "UDPStreamTimeout"),
    ] {
        let problems = check(&configuration(&format!("conntrack: {{{field}: {value}}}")));
        let path = format!("KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.{path}");
        let reason = "must be greater than or equal to 0";
        let expected = format!("KubeProxyConfiguration.{path}: Invalid value: {value}: {reason}");
        assert_eq!(problems.unwrap_err(), [expected]);
    }
}

#[test]
fn values_that_upstream_accepts_are_accepted() {
    for lines in [
        "",
        "mode: ipvs\nipvs: {excludeCIDRs: [10.0.0.0/8, 'fd00::/8'], minSyncPeriod: 0s}",
        "mode: nftables\nnftables: {masqueradeBit: 31, syncPeriod: 0s, minSyncPeriod: 30s}",
        "bindAddress: '::'\nnodePortAddresses: [primary]\nportRange: nonsense",
        "bindAddress: 010.0.0.1\nhealthzBindAddress: 0.0.0.0\nmetricsBindAddress: '::1'",
        "clusterCIDR: 'fd00:1::/64,10.1.0.0/16'\nshowHiddenMetricsForVersion: '1.35'",
        "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}",
        "featureGates: {AllowServiceExternalIPs: false, AllAlpha: true, NFTablesProxyMode: true}",
        "featureGates: {LoggingAlphaOptions: true}\nlogging: {options: {text: {splitStream: true}}}",
        "logging: {format: json, verbosity: 10}\noomScoreAdj: -1000\nconntrack: {maxPerCore: 0}",
    ] {
        assert_eq!(check(&configuration(lines)).err(), None, "{lines}");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let lines = "mode: x\nbindAddress: x\nhealthzBindAddress: x\nmetricsBindAddress: x\n\
                 oomScoreAdj: 2000\nclusterCIDR: x\nnodePortAddresses: [x, z]\n\
                 featureGates: {X: true, Y: true}\nconfigSyncPeriod: -1s\nlogging: {format: x}\n";
    let problems = check(&configuration(lines)).unwrap_err();
    assert_eq!(problems.len(), 12, "{problems:#?}");
}
