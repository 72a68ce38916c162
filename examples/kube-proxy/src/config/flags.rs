//! Flags turned into a configuration.

use super::Configuration;
use super::defaults::{HEALTHZ_PORT, METRICS_PORT, add_port};
use crate::cli::{Flags, LogFlags};

impl Configuration {
    /// Returns what flags say, for want of a file.
    pub(super) fn from_flags(flags: &Flags) -> Self {
        let mut configuration = Self::default();
        configuration.take(flags);
        configuration.take_of_modes(flags);
        configuration.take_conntrack(flags);
        configuration.logging.take(&flags.log);
        if flags.write_config_to.is_none() {
            configuration.take_ports(flags);
        }
        configuration
    }

    fn take(&mut self, flags: &Flags) {
        self.feature_gates
            .extend(flags.feature_gates.iter().cloned());
        let connection = &mut self.client_connection;
        set(&mut connection.kubeconfig, &flags.kubeconfig);
        set(&mut connection.content_type, &flags.kube_api_content_type);
        set(&mut connection.qps, &flags.kube_api_qps);
        set(&mut connection.burst, &flags.kube_api_burst);
        set_text(&mut self.bind_address, &flags.bind_address);
        set_text(&mut self.healthz_bind_address, &flags.healthz_bind_address);
        set_text(&mut self.metrics_bind_address, &flags.metrics_bind_address);
        set(
            &mut self.bind_address_hard_fail,
            &flags.bind_address_hard_fail,
        );
        set(&mut self.enable_profiling, &flags.profiling);
        let version = &mut self.show_hidden_metrics_for_version;
        set(version, &flags.show_hidden_metrics_for_version);
        set(&mut self.mode, &flags.proxy_mode);
        set(&mut self.detect_local_mode, &flags.detect_local_mode);
        let interfaces = &mut self.detect_local;
        set(
            &mut interfaces.bridge_interface,
            &flags.pod_bridge_interface,
        );
        set(
            &mut interfaces.interface_name_prefix,
            &flags.pod_interface_name_prefix,
        );
        set(&mut self.cluster_cidr, &flags.cluster_cidr);
        self.node_port_addresses
            .clone_from(&flags.nodeport_addresses);
        set(&mut self.oom_score_adj, &flags.oom_score_adj);
        set(&mut self.config_sync_period, &flags.config_sync_period);
    }

    fn take_of_modes(&mut self, flags: &Flags) {
        let (iptables, ipvs, nftables) = (&mut self.iptables, &mut self.ipvs, &mut self.nftables);
        set(&mut iptables.masquerade_bit, &flags.iptables_masquerade_bit);
        set(
            &mut iptables.localhost_node_ports,
            &flags.iptables_localhost_nodeports,
        );
        set(&mut iptables.masquerade_all, &flags.masquerade_all);
        set(&mut nftables.masquerade_all, &flags.masquerade_all);
        for (period, min) in [
            (&mut iptables.sync_period, &mut iptables.min_sync_period),
            (&mut nftables.sync_period, &mut nftables.min_sync_period),
        ] {
            set(period, &flags.iptables_sync_period);
            set(min, &flags.iptables_min_sync_period);
        }
        // The default is that of all flags here, and 0 in a file.
        ipvs.min_sync_period = iptables_default();
        set(&mut ipvs.sync_period, &flags.ipvs_sync_period);
        set(&mut ipvs.min_sync_period, &flags.ipvs_min_sync_period);
        set(&mut ipvs.scheduler, &flags.ipvs_scheduler);
        ipvs.exclude_cidrs.clone_from(&flags.ipvs_exclude_cidrs);
        set(&mut ipvs.strict_arp, &flags.ipvs_strict_arp);
        set(&mut ipvs.tcp_timeout, &flags.ipvs_tcp_timeout);
        set(&mut ipvs.tcp_fin_timeout, &flags.ipvs_tcpfin_timeout);
        set(&mut ipvs.udp_timeout, &flags.ipvs_udp_timeout);
    }

    fn take_conntrack(&mut self, flags: &Flags) {
        let conntrack = &mut self.conntrack;
        set(&mut conntrack.max_per_core, &flags.conntrack_max_per_core);
        set(&mut conntrack.min, &flags.conntrack_min);
        set(
            &mut conntrack.tcp_established_timeout,
            &flags.conntrack_tcp_timeout_established,
        );
        set(
            &mut conntrack.tcp_close_wait_timeout,
            &flags.conntrack_tcp_timeout_close_wait,
        );
        set(
            &mut conntrack.tcp_be_liberal,
            &flags.conntrack_tcp_be_liberal,
        );
        set(&mut conntrack.udp_timeout, &flags.conntrack_udp_timeout);
        set(
            &mut conntrack.udp_stream_timeout,
            &flags.conntrack_udp_timeout_stream,
        );
    }

    /// Minds the flags that were there before addresses had ports.
    fn take_ports(&mut self, flags: &Flags) {
        for (address, port, default) in [
            (
                &mut self.healthz_bind_address,
                flags.healthz_port,
                HEALTHZ_PORT,
            ),
            (
                &mut self.metrics_bind_address,
                flags.metrics_port,
                METRICS_PORT,
            ),
        ] {
            match port.unwrap_or_else(|| default.into()) {
                0 => address.clear(),
                port => add_port(address, port),
            }
        }
    }
}

impl super::Logging {
    /// Takes what flags say over what there is.
    pub(super) fn take(&mut self, flags: &LogFlags) {
        set(&mut self.format, &flags.logging_format);
        set(&mut self.verbosity, &flags.v);
        set(&mut self.flush_frequency, &flags.log_flush_frequency);
        let own = std::mem::take(&mut self.vmodule);
        self.vmodule = flags.vmodule.iter().cloned().chain(own).collect();
        let text = &mut self.options.text;
        set(&mut text.split_stream, &flags.log_text_split_stream);
        set(&mut text.info_buffer_size, &flags.log_text_info_buffer_size);
        let json = &mut self.options.json;
        set(&mut json.split_stream, &flags.log_json_split_stream);
        set(&mut json.info_buffer_size, &flags.log_json_info_buffer_size);
    }
}

/// What flags say of the log, with defaults.
impl From<&LogFlags> for super::Logging {
    fn from(flags: &LogFlags) -> Self {
        let mut logging = Configuration::default().logging;
        logging.take(flags);
        logging
    }
}

fn iptables_default() -> crate::duration::GoDuration {
    Configuration::default().iptables.min_sync_period
}

fn set<T: Clone>(field: &mut T, flag: &Option<T>) {
    if let Some(value) = flag {
        field.clone_from(value);
    }
}

/// Takes a text unless it is empty.
fn set_text(field: &mut String, flag: &Option<String>) {
    if let Some(value) = flag.as_ref().filter(|value| !value.is_empty()) {
        field.clone_from(value);
    }
}
