//! Conversion of flags into a configuration.

use super::Configuration;
use super::configuration::Winkernel;
use super::defaults::{HEALTHZ_PORT, METRICS_PORT, add_port};
use crate::cli::{Flags, KernelspaceFlags, LogFlags};
use daemon::duration::GoDuration;

impl Configuration {
    /// Returns the configuration of the flags, without a file.
    pub(super) fn from_flags(flags: &Flags) -> Self {
        let mut configuration = Self::default();
        configuration.apply(flags);
        configuration.apply_modes(flags);
        configuration.apply_conntrack(flags);
        configuration.winkernel.apply(&flags.kernelspace);
        let is_service = &flags.kernelspace.windows_service;
        set(&mut configuration.windows_run_as_service, is_service);
        configuration.logging.apply(&flags.log);
        if flags.write_config_to.is_none() {
            configuration.apply_deprecated_ports(flags);
        }
        configuration
    }

    /// Replaces what flags state in the configuration of a running proxy.
    pub(super) fn overlay(&mut self, flags: &Flags) {
        self.client_connection = Self::default().client_connection;
        let node_port_addresses = std::mem::take(&mut self.node_port_addresses);
        self.apply(flags);
        if flags.nodeport_addresses.is_empty() {
            self.node_port_addresses = node_port_addresses;
        }
        self.apply_modes(flags);
        self.logging = Self::default().logging;
        self.logging.apply(&flags.log);
    }

    fn apply(&mut self, flags: &Flags) {
        self.feature_gates
            .extend(flags.feature_gates.iter().flatten().cloned());
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
        self.node_port_addresses = without_empty(&flags.nodeport_addresses);
        set(&mut self.oom_score_adj, &flags.oom_score_adj);
        set(&mut self.config_sync_period, &flags.config_sync_period);
    }

    fn apply_modes(&mut self, flags: &Flags) {
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
        // The default is 1 s for the flag, and 0 for the field of a file.
        ipvs.min_sync_period = GoDuration::from_secs(1);
        set(&mut ipvs.sync_period, &flags.ipvs_sync_period);
        set(&mut ipvs.min_sync_period, &flags.ipvs_min_sync_period);
        set(&mut ipvs.scheduler, &flags.ipvs_scheduler);
        ipvs.exclude_cidrs = without_empty(&flags.ipvs_exclude_cidrs);
        set(&mut ipvs.strict_arp, &flags.ipvs_strict_arp);
        set(&mut ipvs.tcp_timeout, &flags.ipvs_tcp_timeout);
        set(&mut ipvs.tcp_fin_timeout, &flags.ipvs_tcpfin_timeout);
        set(&mut ipvs.udp_timeout, &flags.ipvs_udp_timeout);
    }

    fn apply_conntrack(&mut self, flags: &Flags) {
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

    /// Applies the deprecated port flags.
    fn apply_deprecated_ports(&mut self, flags: &Flags) {
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

impl Winkernel {
    fn apply(&mut self, flags: &KernelspaceFlags) {
        set(&mut self.network_name, &flags.network_name);
        set(&mut self.source_vip, &flags.source_vip);
        set(&mut self.enable_dsr, &flags.enable_dsr);
        let root = &mut self.root_hns_endpoint_name;
        set(root, &flags.root_hnsendpoint_name);
        let forward = &mut self.forward_health_check_vip;
        set(forward, &flags.forward_healthcheck_vip);
    }
}

impl super::Logging {
    /// Overwrites fields by flags that are set.
    pub(super) fn apply(&mut self, flags: &LogFlags) {
        set(&mut self.format, &flags.logging_format);
        set(&mut self.verbosity, &flags.v);
        set(&mut self.flush_frequency, &flags.log_flush_frequency);
        let own = std::mem::take(&mut self.vmodule);
        self.vmodule = flags.vmodule.iter().flatten().cloned().chain(own).collect();
        let text = &mut self.options.text;
        set(&mut text.split_stream, &flags.log_text_split_stream);
        set(&mut text.info_buffer_size, &flags.log_text_info_buffer_size);
        let json = &mut self.options.json;
        set(&mut json.split_stream, &flags.log_json_split_stream);
        set(&mut json.info_buffer_size, &flags.log_json_info_buffer_size);
    }
}

/// The logging configuration of the flags, with defaults.
impl From<&LogFlags> for super::Logging {
    fn from(flags: &LogFlags) -> Self {
        let mut logging = Configuration::default().logging;
        logging.apply(flags);
        logging
    }
}

fn set<T: Clone>(field: &mut T, flag: &Option<T>) {
    if let Some(value) = flag {
        field.clone_from(value);
    }
}

/// Returns the items of a list. `--nodeport-addresses=` is the empty list, as in upstream.
fn without_empty(items: &[String]) -> Vec<String> {
    let items = items.iter().filter(|item| !item.is_empty());
    items.cloned().collect()
}

/// Sets a field unless the flag is empty.
fn set_text(field: &mut String, flag: &Option<String>) {
    if let Some(value) = flag.as_ref().filter(|value| !value.is_empty()) {
        field.clone_from(value);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::*;
    use crate::cli::Cli;

    /// Flags and the fields that they change.
    const FLAGS: &[(&str, &str)] = &[
        ("kubeconfig=k", r#"/clientConnection/kubeconfig "k""#),
        (
            "kube-api-content-type=t",
            r#"/clientConnection/contentType "t""#,
        ),
        ("kube-api-qps=7", "/clientConnection/qps 7"),
        ("kube-api-burst=-1", "/clientConnection/burst -1"),
        ("config-sync-period=1m", r#"/configSyncPeriod "1m0s""#),
        ("bind-address=::1", r#"/bindAddress "::1""#),
        ("bind-address=", ""),
        (
            "healthz-bind-address=::1",
            r#"/healthzBindAddress "[::1]:10256""#,
        ),
        ("healthz-bind-address=", ""),
        (
            "metrics-bind-address=1.2.3.4:5",
            r#"/metricsBindAddress "1.2.3.4:5""#,
        ),
        ("bind-address-hard-fail", "/bindAddressHardFail true"),
        ("profiling", "/enableProfiling true"),
        (
            "show-hidden-metrics-for-version=1.35",
            r#"/showHiddenMetricsForVersion "1.35""#,
        ),
        ("feature-gates=A=true", r#"/featureGates {"A":true}"#),
        ("feature-gates=A=true,,", r#"/featureGates {"A":true}"#),
        ("feature-gates=", ""),
        ("proxy-mode=ipvs", r#"/mode "ipvs""#),
        (
            "masquerade-all",
            "/iptables/masqueradeAll true, /nftables/masqueradeAll true",
        ),
        (
            "nodeport-addresses=primary",
            r#"/nodePortAddresses ["primary"]"#,
        ),
        ("nodeport-addresses=", ""),
        ("ipvs-exclude-cidrs=", ""),
        ("vmodule=", ""),
        ("cluster-cidr=c", r#"/clusterCIDR "c""#),
        (
            "detect-local-mode=NodeCIDR",
            r#"/detectLocalMode "NodeCIDR""#,
        ),
        (
            "pod-bridge-interface=b",
            r#"/detectLocal/bridgeInterface "b""#,
        ),
        (
            "pod-interface-name-prefix=p",
            r#"/detectLocal/interfaceNamePrefix "p""#,
        ),
        (
            "iptables-sync-period=9s",
            r#"/iptables/syncPeriod "9s", /nftables/syncPeriod "9s""#,
        ),
        (
            "iptables-min-sync-period=0",
            r#"/iptables/minSyncPeriod "0s", /nftables/minSyncPeriod "0s""#,
        ),
        ("iptables-masquerade-bit=3", "/iptables/masqueradeBit 3"),
        (
            "iptables-localhost-nodeports=false",
            "/iptables/localhostNodePorts false",
        ),
        ("ipvs-sync-period=9s", r#"/ipvs/syncPeriod "9s""#),
        ("ipvs-min-sync-period=9s", r#"/ipvs/minSyncPeriod "9s""#),
        ("ipvs-scheduler=sh", r#"/ipvs/scheduler "sh""#),
        ("ipvs-exclude-cidrs=a,b", r#"/ipvs/excludeCIDRs ["a","b"]"#),
        ("ipvs-strict-arp", "/ipvs/strictARP true"),
        ("ipvs-tcp-timeout=9s", r#"/ipvs/tcpTimeout "9s""#),
        ("ipvs-tcpfin-timeout=9s", r#"/ipvs/tcpFinTimeout "9s""#),
        ("ipvs-udp-timeout=9s", r#"/ipvs/udpTimeout "9s""#),
        ("oom-score-adj=-7", "/oomScoreAdj -7"),
        ("conntrack-max-per-core=7", "/conntrack/maxPerCore 7"),
        ("conntrack-min=7", "/conntrack/min 7"),
        (
            "conntrack-tcp-timeout-established=9s",
            r#"/conntrack/tcpEstablishedTimeout "9s""#,
        ),
        (
            "conntrack-tcp-timeout-close-wait=9s",
            r#"/conntrack/tcpCloseWaitTimeout "9s""#,
        ),
        ("conntrack-tcp-be-liberal", "/conntrack/tcpBeLiberal true"),
        ("conntrack-udp-timeout=9s", r#"/conntrack/udpTimeout "9s""#),
        (
            "conntrack-udp-timeout-stream=9s",
            r#"/conntrack/udpStreamTimeout "9s""#,
        ),
        ("logging-format=json", r#"/logging/format "json""#),
        ("v=5", "/logging/verbosity 5"),
        (
            "vmodule=a=3",
            r#"/logging/vmodule [{"filePattern":"a","verbosity":3}]"#,
        ),
        ("log-flush-frequency=9s", r#"/logging/flushFrequency "9s""#),
        (
            "log-text-split-stream",
            "/logging/options/text/splitStream true",
        ),
        (
            "log-text-info-buffer-size=1Ki",
            r#"/logging/options/text/infoBufferSize "1Ki""#,
        ),
        (
            "log-json-split-stream",
            "/logging/options/json/splitStream true",
        ),
        (
            "log-json-info-buffer-size=1Ki",
            r#"/logging/options/json/infoBufferSize "1Ki""#,
        ),
        ("network-name=n", r#"/winkernel/networkName "n""#),
        ("source-vip=::7", r#"/winkernel/sourceVip "::7""#),
        ("enable-dsr", "/winkernel/enableDSR true"),
        (
            "root-hnsendpoint-name=e",
            r#"/winkernel/rootHnsEndpointName "e""#,
        ),
        (
            "forward-healthcheck-vip",
            "/winkernel/forwardHealthCheckVip true",
        ),
        ("against=f", ""),
        ("master=m", ""),
        ("windows-service", "/windowsRunAsService true"),
    ];

    fn fields(line: &str) -> Value {
        let line = format!("kube-proxy {line}");
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        serde_json::to_value(Configuration::from_flags(&cli.flags)).unwrap()
    }

    /// Collects the differences between two values, as paths with new values.
    fn differences(path: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
        match (old, new) {
            (Value::Object(before), Value::Object(after)) => {
                for (name, new) in after {
                    let old = before.get(name).unwrap_or(&Value::Null);
                    differences(&format!("{path}/{name}"), old, new, found);
                }
            }
            _ if old != new => found.push(format!("{path} {new}")),
            _ => {}
        }
    }

    #[test]
    fn each_flag_changes_its_field_only() {
        let defaults = fields("");
        for (flag, expected) in FLAGS {
            let mut found = Vec::new();
            differences("", &defaults, &fields(&format!("--{flag}")), &mut found);
            assert_eq!(found.join(", "), *expected, "--{flag}");
        }
    }
}
