//! Validation of a configuration, with upstream's rules, paths and messages.
//!
//! Paths name the fields of upstream's internal types, so they differ from
//! those of the file.

use std::fmt;

use vipline_service_model::{Family, parse_address, parse_network};

use super::{Configuration, Conntrack, Gate, Gates, Ipvs, KERNELSPACE, Logging, OutputRouting};
use crate::cli::split_port;
use daemon::duration::GoDuration;

/// The version whose hidden metrics can be shown: the previous one.
const PREVIOUS_VERSION: &str = "1.35";

/// Methods to detect traffic of local pods.
const DETECT_LOCAL_MODES: [&str; 5] = [
    "ClusterCIDR",
    "NodeCIDR",
    "BridgeInterface",
    "InterfaceNamePrefix",
    "",
];

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const POSITIVE: &str = "must be greater than 0";
const BIT: &str = "must be within the range [0, 31]";
const PAIR: &str = "must be a either a single CIDR or dual-stack pair of CIDRs \
                    (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]";

/// Validates a configuration and returns its feature gates.
///
/// # Errors
///
/// All invalid values, one line each.
pub fn check(configuration: &Configuration) -> Result<Gates, Vec<String>> {
    let mut problems = Problems(Vec::new());
    let gates = feature_gates(configuration, &mut problems);
    modes(configuration, &mut problems);
    conntrack(&configuration.conntrack, &mut problems);
    if !(-1000..=1000).contains(&configuration.oom_score_adj) {
        let path = "KubeProxyLinuxConfiguration.OOMScoreAdj";
        let reason = "must be within the range [-1000, 1000]";
        problems.invalid(path, configuration.oom_score_adj, reason);
    }
    let burst = configuration.client_connection.burst;
    if burst < 0 {
        problems.invalid("ClientConnection.Burst", burst, NOT_NEGATIVE);
    }
    periods(configuration, &mut problems);
    addresses(configuration, &mut problems);
    node_port_addresses(&configuration.node_port_addresses, &mut problems);
    let version = &configuration.show_hidden_metrics_for_version;
    if !matches!(&**version, "" | PREVIOUS_VERSION) {
        let reason = format!(
            "--show-hidden-metrics-for-version must be omitted or have the value \
             '{PREVIOUS_VERSION}'. Only the previous minor version is allowed"
        );
        problems.invalid("ShowHiddenMetricsForVersion", Quoted(version), reason);
    }
    detect_local(configuration, &mut problems);
    logging(&configuration.logging, &gates, &mut problems);
    match problems.0.is_empty() {
        true => Ok(gates),
        false => Err(problems.0),
    }
}

/// Problems, one line each.
struct Problems(Vec<String>);

impl Problems {
    fn push(&mut self, path: &str, what: impl fmt::Display) {
        let line = format!("KubeProxyConfiguration.{path}: {what}");
        if !self.0.contains(&line) {
            self.0.push(line);
        }
    }

    fn invalid(&mut self, path: &str, value: impl fmt::Display, reason: impl fmt::Display) {
        self.push(path, format_args!("Invalid value: {value}: {reason}"));
    }

    fn forbidden(&mut self, path: &str, reason: impl fmt::Display) {
        self.push(path, format_args!("Forbidden: {reason}"));
    }

    fn not_negative(&mut self, path: &str, value: GoDuration) {
        if value < GoDuration::ZERO {
            self.invalid(path, value, NOT_NEGATIVE);
        }
    }

    fn positive(&mut self, path: &str, value: GoDuration) {
        if value <= GoDuration::ZERO {
            self.invalid(path, value, POSITIVE);
        }
    }
}

/// A quoted string.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A list of strings in Go's format.
struct GoList<'a>(&'a [&'a str]);

impl fmt::Display for GoList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(|text| format!("{text:?}")).collect();
        write!(f, "[]string{{{}}}", texts.join(", "))
    }
}

fn feature_gates(configuration: &Configuration, problems: &mut Problems) -> Gates {
    let turned = &configuration.feature_gates;
    Gates::new(turned).unwrap_or_else(|reasons| {
        let shown: Vec<_> = turned
            .iter()
            .map(|(name, open)| format!("{name:?}:{open}"))
            .collect();
        let shown = format!("map[string]bool{{{}}}", shown.join(", "));
        for reason in reasons {
            problems.invalid("featureGates", &shown, reason);
        }
        Gates::default()
    })
}

fn modes(configuration: &Configuration, problems: &mut Problems) {
    let bit = configuration.iptables.masquerade_bit;
    if !(0..=31).contains(&bit) {
        problems.invalid("KubeProxyIPTablesConfiguration.MasqueradeBit", bit, BIT);
    }
    match &*configuration.mode {
        KERNELSPACE => {}
        word if cfg!(windows) => {
            let reason = "must be kernelspace or blank \
                          (blank means the most-available proxy [currently kernelspace])";
            problems.invalid("Mode.ProxyMode", Quoted(word), reason);
        }
        "" | "iptables" => {}
        "ipvs" => ipvs(&configuration.ipvs, problems),
        "nftables" => {
            let bit = configuration.nftables.masquerade_bit;
            if !(0..=31).contains(&bit) {
                problems.invalid("KubeProxyNFTablesConfiguration.MasqueradeBit", bit, BIT);
            }
        }
        word => {
            let reason = "must be iptables, ipvs, nftables or blank \
                          (blank means the best-available proxy [currently iptables])";
            problems.invalid("Mode.ProxyMode", Quoted(word), reason);
        }
    }
}

fn ipvs(ipvs: &Ipvs, problems: &mut Problems) {
    for (field, value) in [
        ("TCPTimeout", ipvs.tcp_timeout),
        ("TCPFinTimeout", ipvs.tcp_fin_timeout),
        ("UDPTimeout", ipvs.udp_timeout),
    ] {
        problems.not_negative(&format!("KubeProxyIPVSConfiguration.{field}"), value);
    }
    for (index, word) in ipvs.exclude_cidrs.iter().enumerate() {
        if parse_network(word).is_none() {
            let path = format!("KubeProxyIPVSConfiguration.ExcludeCidrs[{index}]");
            problems.invalid(&path, Quoted(word), "must be a valid CIDR");
        }
    }
}

fn conntrack(conntrack: &Conntrack, problems: &mut Problems) {
    let path =
        |field| format!("KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.{field}");
    for (field, value) in [
        ("MaxPerCore", conntrack.max_per_core),
        ("Min", conntrack.min),
    ] {
        if value < 0 {
            problems.invalid(&path(field), value, NOT_NEGATIVE);
        }
    }
    for (field, value) in [
        ("TCPEstablishedTimeout", conntrack.tcp_established_timeout),
        ("TCPCloseWaitTimeout", conntrack.tcp_close_wait_timeout),
        ("UDPTimeout", conntrack.udp_timeout),
        ("UDPStreamTimeout", conntrack.udp_stream_timeout),
    ] {
        problems.not_negative(&path(field), value);
    }
}

fn periods(configuration: &Configuration, problems: &mut Problems) {
    let (period, min) = configuration.sync_periods();
    problems.positive("ConfigSyncPeriod", configuration.config_sync_period);
    problems.positive("SyncPeriod", period);
    problems.not_negative("MinSyncPeriod", min);
    if min > period {
        let reason = "must be greater than or equal to KubeProxyConfiguration.MinSyncPeriod";
        problems.invalid("SyncPeriod", min, reason);
    }
}

fn addresses(configuration: &Configuration, problems: &mut Problems) {
    let bind = &configuration.bind_address;
    if parse_address(bind).is_none() {
        let reason = "not a valid textual representation of an IP address";
        problems.invalid("BindAddress", Quoted(bind), reason);
    }
    if !configuration.healthz_bind_address.is_empty() {
        let healthz = &configuration.healthz_bind_address;
        address_and_port("HealthzBindAddress", healthz, problems);
    }
    let metrics = &configuration.metrics_bind_address;
    address_and_port("MetricsBindAddress", metrics, problems);
}

fn address_and_port(path: &str, text: &str, problems: &mut Problems) {
    let Some((address, port)) = split_port(text) else {
        return problems.invalid(path, Quoted(text), "must be IP:port");
    };
    if parse_address(address).is_none() {
        problems.invalid(path, Quoted(address), "must be a valid IP");
    }
    if !matches!(port.parse::<i64>(), Ok(1..=65535)) {
        problems.invalid(path, Quoted(port), "must be a valid port");
    }
}

fn node_port_addresses(values: &[String], problems: &mut Problems) {
    for (index, word) in values.iter().enumerate() {
        let path = format!("NodePortAddresses[{index}]");
        if word == "primary" {
            if values.len() > 1 {
                problems.invalid(&path, Quoted(word), "can't use both 'primary' and CIDRs");
            }
            return;
        }
        if parse_network(word).is_none() {
            problems.invalid(&path, Quoted(word), "must be a valid CIDR");
        }
    }
}

fn detect_local(configuration: &Configuration, problems: &mut Problems) {
    let interfaces = &configuration.detect_local;
    let mut needed = |path: &str, name: &str| {
        if name.is_empty() {
            let path = format!("DetectLocalConfiguration.{path}");
            problems.invalid(&path, Quoted(name), "must not be empty");
        }
    };
    match &*configuration.detect_local_mode {
        "BridgeInterface" => needed("InterfaceName", &interfaces.bridge_interface),
        "InterfaceNamePrefix" => needed("InterfacePrefix", &interfaces.interface_name_prefix),
        "ClusterCIDR" if !configuration.cluster_cidr.is_empty() => {
            let networks: Vec<_> = configuration.cluster_cidr.split(',').collect();
            cluster_cidrs(&networks, problems);
        }
        word if DETECT_LOCAL_MODES.contains(&word) => {}
        word => {
            let values = DETECT_LOCAL_MODES
                .map(|mode| format!("{mode:?}"))
                .join(", ");
            let what = format_args!("Unsupported value: {word:?}: supported values: {values}");
            problems.push("DetectLocalMode", what);
        }
    }
}

fn cluster_cidrs(values: &[&str], problems: &mut Problems) {
    let path = "DetectLocalConfiguration.ClusterCIDRs";
    if values.len() > 2 {
        return problems.invalid(path, GoList(values), PAIR);
    }
    let networks: Vec<_> = values.iter().map(|word| parse_network(word)).collect();
    for (index, word) in values.iter().enumerate() {
        if networks.get(index) == Some(&None) {
            let reason = "must be a valid CIDR block \
                          (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)";
            problems.invalid(&format!("{path}[{index}]"), Quoted(word), reason);
        }
    }
    if let [Some(first), Some(second)] = networks[..]
        && Family::of_network(first) == Family::of_network(second)
    {
        problems.invalid(path, GoList(values), PAIR);
    }
}

fn logging(logging: &Logging, gates: &Gates, problems: &mut Problems) {
    let format = &*logging.format;
    match format {
        "text" => {}
        "json" if gates.is_enabled(Gate::LoggingBetaOptions) => {}
        "json" => {
            let reason = "Log format json is disabled, see LoggingBetaOptions feature";
            problems.forbidden("logging.format", reason);
        }
        _ => problems.invalid("logging.format", Quoted(format), "Unsupported log format"),
    }
    let too_high = format!("Must be <= {}", i32::MAX);
    let is_too_high = |verbosity: u32| i32::try_from(verbosity).is_err();
    if is_too_high(logging.verbosity) {
        problems.invalid("logging.verbosity", logging.verbosity, &too_high);
    }
    if !logging.vmodule.is_empty() && format != "text" {
        problems.forbidden("logging.vmodule", "Only supported for text log format");
    }
    for (index, item) in logging.vmodule.iter().enumerate() {
        let (path, pattern) = (format!("logging.vmodule[{index}]"), &item.file_pattern);
        if pattern.is_empty() {
            problems.push(&path, "Required value: File pattern must not be empty");
        }
        if pattern.contains(['=', ',']) {
            let reason = "File pattern must not contain equal sign or comma";
            problems.invalid(&path, Quoted(pattern), reason);
        }
        if is_too_high(item.verbosity) {
            problems.invalid(&path, item.verbosity, &too_high);
        }
    }
    if !gates.is_enabled(Gate::LoggingAlphaOptions) {
        routing("text", &logging.options.text, problems);
        routing("json", &logging.options.json, problems);
    }
}

fn routing(format: &str, routing: &OutputRouting, problems: &mut Problems) {
    let closed = "Feature LoggingAlphaOptions is disabled";
    if routing.split_stream {
        problems.forbidden(&format!("logging.options.{format}.splitStream"), closed);
    }
    if !routing.info_buffer_size.is_zero() {
        problems.forbidden(&format!("logging.options.{format}.infoBufferSize"), closed);
    }
}

#[cfg(test)]
mod tests;
