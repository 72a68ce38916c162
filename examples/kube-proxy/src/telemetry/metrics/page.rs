//! Names, types and help texts of all metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use proxy_core::{Family, Mode, RuleCount};
use vipline_service_model::{Kind, Timestamp};

use super::{FamilyMetrics, Metrics, ProbeCounts};
use crate::config::KERNELSPACE;
use daemon::metrics::Histogram;
use daemon::metrics::{Page, Type, float};

impl Metrics {
    /// Adds upstream's metrics of the mode, and the proxy's own.
    pub(super) fn add_to(&self, page: &mut Page) {
        self.add_syncs(page);
        self.add_changes(page);
        self.add_conntrack(page);
        match self.mode {
            Some(Mode::Iptables) => self.add_iptables(page),
            Some(Mode::Nftables) => self.add_nftables(page),
            Some(Mode::Ipvs) => self.add_restore_failures(page),
            _ => {}
        }
        self.add_own(page);
        self.requests.add_to(page);
        for (name, probe, answers) in [
            ("kubeproxy_proxy_healthz_total", "healthz", &self.healthz),
            ("kubeproxy_proxy_livez_total", "livez", &self.livez),
        ] {
            let help = format!("[ALPHA] Number of requests to /{probe} by status code");
            answers.add_to(page, name, &help);
        }
    }

    fn add_syncs(&self, page: &mut Page) {
        self.add_histogram(
            page,
            "kubeproxy_sync_proxy_rules_duration_seconds",
            "[ALPHA] Duration of syncs in seconds",
            |family| &family.sync,
        );
        // Upstream has no such metrics in modes ipvs and kernelspace.
        if !matches!(self.mode, Some(Mode::Ipvs) | None) {
            self.add_parts(page);
        }
        self.add_values(
            page,
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
            Type::Gauge,
            "[ALPHA] Time of the last successful sync in seconds since 1970",
            |family| family.last_synced.map(seconds),
        );
        self.add_values(
            page,
            "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
            Type::Gauge,
            "[ALPHA] Time at which a sync was last queued, in seconds since 1970",
            |family| Some(seconds(family.last_queued)),
        );
        self.add_histogram(
            page,
            "kubeproxy_network_programming_duration_seconds",
            "[ALPHA] Time from a change of an endpoint to its rules in the kernel, in seconds",
            |family| &family.programming,
        );
    }

    fn add_parts(&self, page: &mut Page) {
        self.add_histogram(
            page,
            "kubeproxy_sync_full_proxy_rules_duration_seconds",
            "[ALPHA] Duration of full syncs in seconds",
            |family| &family.sync_full,
        );
        self.add_histogram(
            page,
            "kubeproxy_sync_partial_proxy_rules_duration_seconds",
            "[ALPHA] Duration of partial syncs in seconds",
            |family| &family.sync_partial,
        );
    }

    fn add_changes(&self, page: &mut Page) {
        let counts = &self.counts;
        // Upstream has one proxy per IP family, and each proxy counts every
        // Service.
        let service_changes = float(counts.service_changes) * float(self.families.len());
        for (name, kind, help, value) in [
            (
                "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
                Type::Gauge,
                "[ALPHA] Pending changes of endpoints",
                float(counts.slice_changes_pending),
            ),
            (
                "kubeproxy_sync_proxy_rules_endpoint_changes_total",
                Type::Counter,
                "[ALPHA] Changes of endpoints",
                float(counts.slice_changes),
            ),
            (
                "kubeproxy_sync_proxy_rules_service_changes_pending",
                Type::Gauge,
                "[ALPHA] Pending changes of Services",
                float(counts.service_changes_pending),
            ),
            (
                "kubeproxy_sync_proxy_rules_service_changes_total",
                Type::Counter,
                "[ALPHA] Changes of Services, once per IP family",
                service_changes,
            ),
        ] {
            page.add(name, kind, help).value(&[], value);
        }
        let mut metric = page.add(
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
            Type::Gauge,
            "[ALPHA] Service ports with traffic policy Local and without endpoints on this node",
        );
        for (family, values) in self.families() {
            let Some(without) = values.without_local else {
                continue;
            };
            for (policy, count) in [
                ("internal", without.internal),
                ("external", without.external),
            ] {
                let labels = [("ip_family", &*family), ("traffic_policy", policy)];
                metric.value(&labels, float(count));
            }
        }
    }

    fn add_conntrack(&self, page: &mut Page) {
        self.add_histogram(
            page,
            "kubeproxy_conntrack_reconciler_sync_duration_seconds",
            "[ALPHA] Duration of searches for stale conntrack entries in seconds",
            |family| &family.searches,
        );
        self.add_values(
            page,
            "kubeproxy_conntrack_reconciler_deleted_entries_total",
            Type::Counter,
            "[ALPHA] Deleted stale conntrack entries",
            |family| Some(float(family.stale_flows)),
        );
    }

    fn add_nftables(&self, page: &mut Page) {
        self.add_values(
            page,
            "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
            Type::Counter,
            "[ALPHA] Failed syncs",
            |family| Some(float(family.failures)),
        );
        // Always 0: unused objects are removed within syncs.
        self.add_values(
            page,
            "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
            Type::Counter,
            "[ALPHA] Failed removals of unused objects",
            |_| Some(0.0),
        );
    }

    fn add_restore_failures(&self, page: &mut Page) {
        self.add_values(
            page,
            "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
            Type::Counter,
            "[ALPHA] Failed syncs",
            |family| Some(float(family.failures)),
        );
    }

    fn add_iptables(&self, page: &mut Page) {
        self.add_restore_failures(page);
        self.add_values(
            page,
            "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
            Type::Counter,
            "[ALPHA] Failed partial syncs",
            |family| Some(float(family.partial_failures)),
        );
        self.add_rules(
            page,
            "kubeproxy_sync_proxy_rules_iptables_total",
            "[ALPHA] Number of rules of the proxy in a table",
            |rules| rules.total,
        );
        self.add_rules(
            page,
            "kubeproxy_sync_proxy_rules_iptables_last",
            "[ALPHA] Number of rules written to a table by the last sync",
            |rules| rules.written,
        );
    }

    fn add_rules(
        &self,
        page: &mut Page,
        name: &'static str,
        help: &str,
        count: impl Fn(&RuleCount) -> usize,
    ) {
        let mut metric = page.add(name, Type::Gauge, help);
        for (family, values) in self.families() {
            for rules in &values.rules {
                let labels = [("ip_family", &*family), ("table", rules.table)];
                metric.value(&labels, float(count(rules)));
            }
        }
    }

    fn add_own(&self, page: &mut Page) {
        self.add_histogram(
            page,
            "vipline_event_to_kernel_seconds",
            "Time from the first event of a sync to its end, in seconds",
            |family| &family.reaction,
        );
        self.add_histogram(
            page,
            "vipline_sync_edits",
            "Number of edits committed by a sync",
            |family| &family.edits,
        );
        self.add_values(
            page,
            "vipline_drift_repaired_total",
            Type::Counter,
            "Repaired changes of the rules by other programs",
            |family| Some(float(family.drift)),
        );
        self.add_values(
            page,
            "vipline_repair_conflicts",
            Type::Gauge,
            "Objects whose repairs wait, because another program undid the last ones",
            |family| Some(float(family.repair_conflicts)),
        );
        self.add_values(
            page,
            "vipline_objects",
            Type::Gauge,
            "Number of objects of the proxy in the kernel",
            |family| family.objects.map(float),
        );
        let help = "Objects that the kernel rejects";
        let mut metric = page.add("kubeproxy_sync_rejected_objects", Type::Gauge, help);
        for (family, values) in self.families() {
            let labels = [
                ("ip_family", &*family),
                ("mode", self.mode.map_or(KERNELSPACE, Mode::name)),
            ];
            metric.value(&labels, float(values.rejected));
        }
        let help = "Address and port pairs claimed by several Services";
        let mut metric = page.add("vipline_contested_addresses", Type::Gauge, help);
        metric.value(&[], float(self.contested));
    }

    fn add_histogram(
        &self,
        page: &mut Page,
        name: &'static str,
        help: &str,
        histogram: impl Fn(&FamilyMetrics) -> &Histogram,
    ) {
        let mut metric = page.add(name, Type::Histogram, help);
        for (family, values) in self.families() {
            metric.histogram(&[("ip_family", &family)], histogram(values));
        }
    }

    fn add_values(
        &self,
        page: &mut Page,
        name: &'static str,
        kind: Type,
        help: &str,
        value: impl Fn(&FamilyMetrics) -> Option<f64>,
    ) {
        let mut metric = page.add(name, kind, help);
        for (family, values) in self.families() {
            if let Some(value) = value(values) {
                metric.value(&[("ip_family", &family)], value);
            }
        }
    }

    /// Returns the families with their label values.
    fn families(&self) -> impl Iterator<Item = (String, &FamilyMetrics)> {
        let families = self.families.iter();
        families.map(|(family, values): (&Family, _)| (family.to_string(), values))
    }
}

impl ProbeCounts {
    fn add_to(&self, page: &mut Page, name: &'static str, help: &str) {
        let mut metric = page.add(name, Type::Counter, help);
        metric.value(&[("code", "200")], float(self.good));
        metric.value(&[("code", "503")], float(self.bad));
    }
}

/// Adds the staleness per kind of object.
pub(super) fn add_staleness(page: &mut Page, staleness: impl Iterator<Item = (Kind, Duration)>) {
    let mut metric = page.add(
        "vipline_source_staleness_seconds",
        Type::Gauge,
        "Time since the watch of a kind of object was last in sync, in seconds; 0 if it is in sync",
    );
    for (kind, time) in staleness {
        metric.value(&[("kind", &kind.to_string())], time.as_secs_f64());
    }
}

/// Adds the number of left out fields and parts of objects.
pub(super) fn add_object_problems(page: &mut Page, problems: &BTreeMap<Kind, usize>) {
    let mut metric = page.add(
        "vipline_object_problems_total",
        Type::Counter,
        "Unusable fields and parts of API objects that were left out",
    );
    for (kind, &count) in problems {
        metric.value(&[("kind", &kind.to_string())], float(count));
    }
}

/// Converts a time to seconds since 1970.
#[allow(clippy::cast_precision_loss, reason = "the format has 53 bits")]
pub(super) fn seconds(at: Timestamp) -> f64 {
    at.seconds as f64 + f64::from(at.nanos) / 1e9
}
