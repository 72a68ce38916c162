//! Default values, as in upstream.

use vipline_service_model::parse_address;

use super::configuration::{
    API_VERSION, ClientConnection, Configuration, Conntrack, DetectLocal, Iptables, Ipvs, KIND,
    Logging, Nftables, Winkernel,
};
use daemon::duration::GoDuration;

/// Name of the mode of Windows nodes.
pub const KERNELSPACE: &str = "kernelspace";

/// Default port of the health server.
pub const HEALTHZ_PORT: u16 = 10256;

/// Default port of the metrics server.
pub const METRICS_PORT: u16 = 10249;

/// The configuration with all defaults.
impl Default for Configuration {
    fn default() -> Self {
        let mut configuration = Self::bare();
        configuration.fill();
        configuration
    }
}

impl Configuration {
    /// Returns the value of an empty file, before [`fill`](Self::fill).
    pub(super) fn bare() -> Self {
        Self {
            kind: KIND.to_owned(),
            api_version: API_VERSION.to_owned(),
            feature_gates: std::collections::BTreeMap::new(),
            client_connection: ClientConnection::default(),
            logging: Logging::default(),
            hostname_override: String::new(),
            bind_address: String::new(),
            healthz_bind_address: String::new(),
            metrics_bind_address: String::new(),
            bind_address_hard_fail: false,
            enable_profiling: false,
            show_hidden_metrics_for_version: String::new(),
            mode: String::new(),
            iptables: Iptables::default(),
            ipvs: Ipvs::default(),
            nftables: Nftables::default(),
            winkernel: Winkernel::default(),
            detect_local_mode: String::new(),
            detect_local: DetectLocal::default(),
            cluster_cidr: String::new(),
            node_port_addresses: Vec::new(),
            oom_score_adj: -999,
            conntrack: Conntrack::default(),
            config_sync_period: GoDuration::ZERO,
            port_range: String::new(),
            windows_run_as_service: false,
        }
    }

    /// Sets the defaults of empty and zero fields.
    pub(super) fn fill(&mut self) {
        text(&mut self.bind_address, "0.0.0.0");
        let v4 = parse_address(&self.bind_address).is_some_and(|address| address.is_ipv4());
        let (healthz, metrics) = match v4 {
            true => ("0.0.0.0", "127.0.0.1"),
            false => ("::", "::1"),
        };
        text(&mut self.healthz_bind_address, healthz);
        text(&mut self.metrics_bind_address, metrics);
        add_port(&mut self.healthz_bind_address, HEALTHZ_PORT.into());
        add_port(&mut self.metrics_bind_address, METRICS_PORT.into());
        period(&mut self.iptables.sync_period, 30);
        period(&mut self.iptables.min_sync_period, 1);
        period(&mut self.ipvs.sync_period, 30);
        period(&mut self.nftables.sync_period, 30);
        period(&mut self.nftables.min_sync_period, 1);
        period(&mut self.config_sync_period, 15 * 60);
        let connection = &mut self.client_connection;
        text(
            &mut connection.content_type,
            "application/vnd.kubernetes.protobuf",
        );
        if connection.qps == 0.0 {
            connection.qps = 5.0;
        }
        if connection.burst == 0 {
            connection.burst = 10;
        }
        text(&mut self.logging.format, "text");
        period(&mut self.logging.flush_frequency, 5);
    }

    /// Sets the defaults that are specific to the system, or to mode kernelspace.
    pub(super) fn fill_for_system(&mut self) {
        if cfg!(windows) {
            text(&mut self.mode, KERNELSPACE);
        } else {
            text(&mut self.mode, "iptables");
            text(&mut self.detect_local_mode, "ClusterCIDR");
        }
        if self.mode == "nftables" && self.node_port_addresses.is_empty() {
            self.node_port_addresses = vec!["primary".to_owned()];
        }
        if self.mode == KERNELSPACE {
            text(&mut self.winkernel.root_hns_endpoint_name, "cbr0");
        }
    }

    /// Resets fields of other modes' sections that apply to all modes.
    pub(super) fn reset_other_modes(&mut self) {
        let forgotten = |periods: [&mut GoDuration; 2]| {
            for period in periods {
                *period = GoDuration::ZERO;
            }
        };
        let Self {
            iptables,
            ipvs,
            nftables,
            ..
        } = self;
        if self.mode != "ipvs" {
            forgotten([&mut ipvs.sync_period, &mut ipvs.min_sync_period]);
        }
        if self.mode == "nftables" {
            iptables.masquerade_all = false;
        } else {
            forgotten([&mut nftables.sync_period, &mut nftables.min_sync_period]);
            nftables.masquerade_all = false;
        }
        if matches!(&*self.mode, "ipvs" | "nftables") {
            forgotten([&mut iptables.sync_period, &mut iptables.min_sync_period]);
        }
    }

    /// Returns the configuration of mode iptables that replaces mode ipvs, if
    /// the mode is ipvs.
    pub(super) fn fallback(&self) -> Option<Self> {
        let mut instead = Self {
            mode: "iptables".to_owned(),
            ..self.clone()
        };
        instead.reset_other_modes();
        (self.mode == "ipvs").then_some(instead)
    }

    /// Returns the retry interval of failed syncs, and the minimum interval
    /// between two syncs.
    pub fn sync_periods(&self) -> (GoDuration, GoDuration) {
        match &*self.mode {
            "ipvs" => (self.ipvs.sync_period, self.ipvs.min_sync_period),
            "nftables" => (self.nftables.sync_period, self.nftables.min_sync_period),
            _ => (self.iptables.sync_period, self.iptables.min_sync_period),
        }
    }

    /// Returns whether all traffic to cluster IPs is masqueraded.
    pub fn masquerade_all(&self) -> bool {
        match &*self.mode {
            "nftables" => self.nftables.masquerade_all,
            _ => self.iptables.masquerade_all,
        }
    }
}

fn text(field: &mut String, default: &str) {
    if field.is_empty() {
        default.clone_into(field);
    }
}

fn period(field: &mut GoDuration, seconds: i32) {
    if *field == GoDuration::ZERO {
        *field = GoDuration::from_secs(seconds);
    }
}

/// Adds a port to an address without one. Leaves an invalid address to the
/// validation.
pub(super) fn add_port(address: &mut String, port: i32) {
    match parse_address(address) {
        Some(_) if address.contains(':') => *address = format!("[{address}]:{port}"),
        Some(_) => *address = format!("{address}:{port}"),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_addresses_have_the_family_of_the_node() {
        for (bind, healthz, metrics) in [
            ("", "0.0.0.0:10256", "127.0.0.1:10249"),
            ("192.0.2.7", "0.0.0.0:10256", "127.0.0.1:10249"),
            ("::", "[::]:10256", "[::1]:10249"),
        ] {
            let mut configuration = Configuration::bare();
            bind.clone_into(&mut configuration.bind_address);
            configuration.fill();
            assert_eq!(configuration.healthz_bind_address, healthz);
            assert_eq!(configuration.metrics_bind_address, metrics);
        }
    }

    #[test]
    fn bare_addresses_get_a_port() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7:1"),
            ("fd00::7", "[fd00::7]:1"),
            ("192.0.2.7:2", "192.0.2.7:2"),
            ("[::]:2", "[::]:2"),
            ("here", "here"),
        ] {
            let mut address = address.to_owned();
            add_port(&mut address, 1);
            assert_eq!(address, expected);
        }
    }

    #[test]
    fn only_the_periods_of_the_mode_are_kept() {
        for (mode, periods) in [
            ("iptables", ["30s 1s", "0s 0s", "0s 0s"]),
            ("ipvs", ["0s 0s", "30s 0s", "0s 0s"]),
            ("nftables", ["0s 0s", "0s 0s", "30s 1s"]),
        ] {
            let mut configuration = Configuration {
                mode: mode.to_owned(),
                ..Configuration::default()
            };
            configuration.iptables.masquerade_all = true;
            configuration.nftables.masquerade_all = true;
            configuration.reset_other_modes();
            let Configuration {
                iptables,
                ipvs,
                nftables,
                ..
            } = &configuration;
            let shown = [
                (iptables.sync_period, iptables.min_sync_period),
                (ipvs.sync_period, ipvs.min_sync_period),
                (nftables.sync_period, nftables.min_sync_period),
            ]
            .map(|(period, min)| format!("{period} {min}"));
            assert_eq!(shown, periods, "{mode}");
            assert!(configuration.masquerade_all());
            assert_ne!(iptables.masquerade_all, nftables.masquerade_all);
        }
    }
}
