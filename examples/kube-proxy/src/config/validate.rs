//! What is wrong with a configuration: upstream's rules, paths and words.
//!
//! The paths are those of upstream's inner types, which is why they read
//! otherwise than the file.

use std::fmt;

use vipline_service_model::{Family, parse_address, parse_network};

use super::{Configuration, Conntrack, Gate, Gates, Ipvs, Logging, OutputRouting};
use crate::cli::split_port;
use crate::duration::GoDuration;

/// The version whose hidden metrics may be shown: the one before ours.
const PREVIOUS_VERSION: &str = "1.35";

/// How traffic of pods is told from other.
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

/// Returns the feature gates of a configuration.
///
/// # Errors
///
/// All that is wrong with the configuration.
pub fn check(configuration: &Configuration) -> Result<Gates, Vec<String>> {
    let mut faults = Faults(Vec::new());
    let gates = feature_gates(configuration, &mut faults);
    modes(configuration, &mut faults);
    conntrack(&configuration.conntrack, &mut faults);
    if !(-1000..=1000).contains(&configuration.oom_score_adj) {
        let path = "KubeProxyLinuxConfiguration.OOMScoreAdj";
        let reason = "must be within the range [-1000, 1000]";
        faults.invalid(path, configuration.oom_score_adj, reason);
    }
    let burst = configuration.client_connection.burst;
    if burst < 0 {
        faults.invalid("ClientConnection.Burst", burst, NOT_NEGATIVE);
    }
    periods(configuration, &mut faults);
    addresses(configuration, &mut faults);
    node_port_addresses(&configuration.node_port_addresses, &mut faults);
    let version = &configuration.show_hidden_metrics_for_version;
    if !matches!(&**version, "" | PREVIOUS_VERSION) {
        let reason = format!(
            "--show-hidden-metrics-for-version must be omitted or have the value \
             '{PREVIOUS_VERSION}'. Only the previous minor version is allowed"
        );
        faults.invalid("ShowHiddenMetricsForVersion", Text(version), reason);
    }
    detect_local(configuration, &mut faults);
    logging(&configuration.logging, &gates, &mut faults);
    match faults.0.is_empty() {
        true => Ok(gates),
        false => Err(faults.0),
    }
}

/// What is wrong, a line each.
struct Faults(Vec<String>);

impl Faults {
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

/// A text in quotes.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Texts as Go shows them.
struct Texts<'a>(&'a [&'a str]);

impl fmt::Display for Texts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(|text| format!("{text:?}")).collect();
        write!(f, "[]string{{{}}}", texts.join(", "))
    }
}

fn feature_gates(configuration: &Configuration, faults: &mut Faults) -> Gates {
    let turned = &configuration.feature_gates;
    Gates::new(turned).unwrap_or_else(|reasons| {
        let shown: Vec<_> = turned
            .iter()
            .map(|(name, open)| format!("{name:?}:{open}"))
            .collect();
        let shown = format!("map[string]bool{{{}}}", shown.join(", "));
        for reason in reasons {
            faults.invalid("featureGates", &shown, reason);
        }
        Gates::default()
    })
}

fn modes(configuration: &Configuration, faults: &mut Faults) {
    let bit = configuration.iptables.masquerade_bit;
    if !(0..=31).contains(&bit) {
        faults.invalid("KubeProxyIPTablesConfiguration.MasqueradeBit", bit, BIT);
    }
    match &*configuration.mode {
        "" | "iptables" => {}
        "ipvs" => ipvs(&configuration.ipvs, faults),
        "nftables" => {
            let bit = configuration.nftables.masquerade_bit;
            if !(0..=31).contains(&bit) {
                faults.invalid("KubeProxyNFTablesConfiguration.MasqueradeBit", bit, BIT);
            }
        }
        word => {
            let reason = "must be iptables, ipvs, nftables or blank \
                          (blank means the best-available proxy [currently iptables])";
            faults.invalid("Mode.ProxyMode", Text(word), reason);
        }
    }
}

fn ipvs(ipvs: &Ipvs, faults: &mut Faults) {
    for (field, value) in [
        ("TCPTimeout", ipvs.tcp_timeout),
        ("TCPFinTimeout", ipvs.tcp_fin_timeout),
        ("UDPTimeout", ipvs.udp_timeout),
    ] {
        faults.not_negative(&format!("KubeProxyIPVSConfiguration.{field}"), value);
    }
    for (index, word) in ipvs.exclude_cidrs.iter().enumerate() {
        if parse_network(word).is_none() {
            let path = format!("KubeProxyIPVSConfiguration.ExcludeCidrs[{index}]");
            faults.invalid(&path, Text(word), "must be a valid CIDR");
        }
    }
}

fn conntrack(conntrack: &Conntrack, faults: &mut Faults) {
    let path =
        |field| format!("KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.{field}");
    for (field, value) in [
        ("MaxPerCore", conntrack.max_per_core),
        ("Min", conntrack.min),
    ] {
        if value < 0 {
            faults.invalid(&path(field), value, NOT_NEGATIVE);
        }
    }
    for (field, value) in [
        ("TCPEstablishedTimeout", conntrack.tcp_established_timeout),
        ("TCPCloseWaitTimeout", conntrack.tcp_close_wait_timeout),
        ("UDPTimeout", conntrack.udp_timeout),
        ("UDPStreamTimeout", conntrack.udp_stream_timeout),
    ] {
        faults.not_negative(&path(field), value);
    }
}

fn periods(configuration: &Configuration, faults: &mut Faults) {
    let (period, min) = configuration.sync_periods();
    faults.positive("ConfigSyncPeriod", configuration.config_sync_period);
    faults.positive("SyncPeriod", period);
    faults.not_negative("MinSyncPeriod", min);
    if min > period {
        let reason = "must be greater than or equal to KubeProxyConfiguration.MinSyncPeriod";
        faults.invalid("SyncPeriod", min, reason);
    }
}

fn addresses(configuration: &Configuration, faults: &mut Faults) {
    let bind = &configuration.bind_address;
    if parse_address(bind).is_none() {
        let reason = "not a valid textual representation of an IP address";
        faults.invalid("BindAddress", Text(bind), reason);
    }
    if !configuration.healthz_bind_address.is_empty() {
        let healthz = &configuration.healthz_bind_address;
        address_and_port("HealthzBindAddress", healthz, faults);
    }
    let metrics = &configuration.metrics_bind_address;
    address_and_port("MetricsBindAddress", metrics, faults);
}

fn address_and_port(path: &str, text: &str, faults: &mut Faults) {
    let Some((address, port)) = split_port(text) else {
        return faults.invalid(path, Text(text), "must be IP:port");
    };
    if parse_address(address).is_none() {
        faults.invalid(path, Text(address), "must be a valid IP");
    }
    if !matches!(port.parse::<i64>(), Ok(1..=65535)) {
        faults.invalid(path, Text(port), "must be a valid port");
    }
}

fn node_port_addresses(words: &[String], faults: &mut Faults) {
    for (index, word) in words.iter().enumerate() {
        let path = format!("NodePortAddresses[{index}]");
        if word == "primary" {
            if words.len() > 1 {
                faults.invalid(&path, Text(word), "can't use both 'primary' and CIDRs");
            }
            return;
        }
        if parse_network(word).is_none() {
            faults.invalid(&path, Text(word), "must be a valid CIDR");
        }
    }
}

fn detect_local(configuration: &Configuration, faults: &mut Faults) {
    let interfaces = &configuration.detect_local;
    let mut needed = |path: &str, name: &str| {
        if name.is_empty() {
            let path = format!("DetectLocalConfiguration.{path}");
            faults.invalid(&path, Text(name), "must not be empty");
        }
    };
    match &*configuration.detect_local_mode {
        "BridgeInterface" => needed("InterfaceName", &interfaces.bridge_interface),
        "InterfaceNamePrefix" => needed("InterfacePrefix", &interfaces.interface_name_prefix),
        "ClusterCIDR" if !configuration.cluster_cidr.is_empty() => {
            let networks: Vec<_> = configuration.cluster_cidr.split(',').collect();
            cluster_cidrs(&networks, faults);
        }
        word if DETECT_LOCAL_MODES.contains(&word) => {}
        word => {
            let words = DETECT_LOCAL_MODES
                .map(|mode| format!("{mode:?}"))
                .join(", ");
            let what = format_args!("Unsupported value: {word:?}: supported values: {words}");
            faults.push("DetectLocalMode", what);
        }
    }
}

fn cluster_cidrs(words: &[&str], faults: &mut Faults) {
    let path = "DetectLocalConfiguration.ClusterCIDRs";
    if words.len() > 2 {
        return faults.invalid(path, Texts(words), PAIR);
    }
    let networks: Vec<_> = words.iter().map(|word| parse_network(word)).collect();
    for (index, word) in words.iter().enumerate() {
        if networks.get(index) == Some(&None) {
            let reason = "must be a valid CIDR block \
                          (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)";
            faults.invalid(&format!("{path}[{index}]"), Text(word), reason);
        }
    }
    if let [Some(first), Some(second)] = networks[..]
        && Family::of_network(first) == Family::of_network(second)
    {
        faults.invalid(path, Texts(words), PAIR);
    }
}

fn logging(logging: &Logging, gates: &Gates, faults: &mut Faults) {
    let format = &*logging.format;
    match format {
        "text" => {}
        "json" if gates.is_open(Gate::LoggingBetaOptions) => {}
        "json" => {
            let reason = "Log format json is disabled, see LoggingBetaOptions feature";
            faults.forbidden("logging.format", reason);
        }
        _ => faults.invalid("logging.format", Text(format), "Unsupported log format"),
    }
    let too_high = format!("Must be <= {}", i32::MAX);
    let is_too_high = |verbosity: u32| i32::try_from(verbosity).is_err();
    if is_too_high(logging.verbosity) {
        faults.invalid("logging.verbosity", logging.verbosity, &too_high);
    }
    if !logging.vmodule.is_empty() && format != "text" {
        faults.forbidden("logging.vmodule", "Only supported for text log format");
    }
    for (index, item) in logging.vmodule.iter().enumerate() {
        let (path, pattern) = (format!("logging.vmodule[{index}]"), &item.file_pattern);
        if pattern.is_empty() {
            faults.push(&path, "Required value: File pattern must not be empty");
        }
        if pattern.contains(['=', ',']) {
            let reason = "File pattern must not contain equal sign or comma";
            faults.invalid(&path, Text(pattern), reason);
        }
        if is_too_high(item.verbosity) {
            faults.invalid(&path, item.verbosity, &too_high);
        }
    }
    if !gates.is_open(Gate::LoggingAlphaOptions) {
        routing("text", &logging.options.text, faults);
        routing("json", &logging.options.json, faults);
    }
}

fn routing(format: &str, routing: &OutputRouting, faults: &mut Faults) {
    let closed = "Feature LoggingAlphaOptions is disabled";
    if routing.split_stream {
        faults.forbidden(&format!("logging.options.{format}.splitStream"), closed);
    }
    if !routing.info_buffer_size.is_zero() {
        faults.forbidden(&format!("logging.options.{format}.infoBufferSize"), closed);
    }
}

#[cfg(test)]
mod tests;
