//! Which value is shown under which name.

use std::collections::BTreeMap;
use std::time::Duration;

use proxy_core::{Family, Mode, Rules};
use vipline_service_model::{Kind, Timestamp};

use super::super::exposition::{Page, Type, float};
use super::super::histogram::Histogram;
use super::{Answers, Metrics, OfFamily};

impl Metrics {
    /// Adds upstream's metrics of the mode, and ours.
    pub(super) fn add_to(&self, page: &mut Page) {
        self.add_syncs(page);
        self.add_changes(page);
        self.add_conntrack(page);
        match self.mode {
            Mode::Iptables => self.add_iptables(page),
            Mode::Nftables => self.add_nftables(page),
            Mode::Ipvs => self.add_restore_failures(page),
            _ => {}
        }
        self.add_own(page);
        self.requests.add_to(page);
        for (name, probe, answers) in [
            ("kubeproxy_proxy_healthz_total", "healthz", &self.healthz),
            ("kubeproxy_proxy_livez_total", "livez", &self.livez),
        ] {
            let help = format!("[ALPHA] How often /{probe} had which answer");
            answers.add_to(page, name, &help);
        }
    }

    fn add_syncs(&self, page: &mut Page) {
        self.add_histogram(
            page,
            "kubeproxy_sync_proxy_rules_duration_seconds",
            "[ALPHA] How long syncs took, in seconds",
            |family| &family.sync,
        );
        // Upstream does not tell them apart in mode ipvs.
        if self.mode != Mode::Ipvs {
            self.add_parts(page);
        }
        self.add_values(
            page,
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
            Type::Gauge,
            "[ALPHA] When the last sync succeeded, in seconds since 1970",
            |family| family.last_synced.map(seconds),
        );
        self.add_values(
            page,
            "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
            Type::Gauge,
            "[ALPHA] When a sync was last asked for, in seconds since 1970",
            |family| Some(seconds(family.last_queued)),
        );
        self.add_histogram(
            page,
            "kubeproxy_network_programming_duration_seconds",
            "[ALPHA] How long after the cause of a change its rules were in place, in seconds",
            |family| &family.programming,
        );
    }

    fn add_parts(&self, page: &mut Page) {
        self.add_histogram(
            page,
            "kubeproxy_sync_full_proxy_rules_duration_seconds",
            "[ALPHA] How long syncs of all rules took, in seconds",
            |family| &family.sync_full,
        );
        self.add_histogram(
            page,
            "kubeproxy_sync_partial_proxy_rules_duration_seconds",
            "[ALPHA] How long syncs of what changed took, in seconds",
            |family| &family.sync_partial,
        );
    }

    fn add_changes(&self, page: &mut Page) {
        let counts = &self.counts;
        // Upstream has one proxy per family, and each counts every Service.
        let service_changes = float(counts.service_changes) * float(self.families.len());
        for (name, kind, help, value) in [
            (
                "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
                Type::Gauge,
                "[ALPHA] Changes of endpoints that wait for a sync",
                float(counts.slice_changes_pending),
            ),
            (
                "kubeproxy_sync_proxy_rules_endpoint_changes_total",
                Type::Counter,
                "[ALPHA] Changes of endpoints up to now",
                float(counts.slice_changes),
            ),
            (
                "kubeproxy_sync_proxy_rules_service_changes_pending",
                Type::Gauge,
                "[ALPHA] Changes of Services that wait for a sync",
                float(counts.service_changes_pending),
            ),
            (
                "kubeproxy_sync_proxy_rules_service_changes_total",
                Type::Counter,
                "[ALPHA] Changes of Services up to now, in dual stack once per family",
                service_changes,
            ),
        ] {
            page.add(name, kind, help).value(&[], value);
        }
        let mut metric = page.add(
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
            Type::Gauge,
            "[ALPHA] Service ports whose traffic policy is Local and that have no endpoint here",
        );
        for (family, values) in self.shown() {
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
            "[ALPHA] How long the search for stale conntrack entries took, in seconds",
            |family| &family.searches,
        );
        self.add_values(
            page,
            "kubeproxy_conntrack_reconciler_deleted_entries_total",
            Type::Counter,
            "[ALPHA] Stale conntrack entries that were deleted",
            |family| Some(float(family.stale_flows)),
        );
    }

    fn add_nftables(&self, page: &mut Page) {
        self.add_values(
            page,
            "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
            Type::Counter,
            "[ALPHA] Syncs that nf_tables refused",
            |family| Some(float(family.failures)),
        );
        // What is left over goes with the sync that leaves it over.
        self.add_values(
            page,
            "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
            Type::Counter,
            "[ALPHA] Attempts in vain to remove what is left over",
            |_| Some(0.0),
        );
    }

    fn add_restore_failures(&self, page: &mut Page) {
        self.add_values(
            page,
            "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
            Type::Counter,
            "[ALPHA] Syncs that iptables refused, or another part of the mode",
            |family| Some(float(family.failures)),
        );
    }

    fn add_iptables(&self, page: &mut Page) {
        self.add_restore_failures(page);
        self.add_values(
            page,
            "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
            Type::Counter,
            "[ALPHA] Syncs of what changed that iptables refused",
            |family| Some(float(family.partial_failures)),
        );
        self.add_rules(
            page,
            "kubeproxy_sync_proxy_rules_iptables_total",
            "[ALPHA] Rules of the proxy that a table holds",
            |rules| rules.total,
        );
        self.add_rules(
            page,
            "kubeproxy_sync_proxy_rules_iptables_last",
            "[ALPHA] Rules that the last sync wrote to a table",
            |rules| rules.written,
        );
    }

    fn add_rules(
        &self,
        page: &mut Page,
        name: &'static str,
        help: &str,
        count: impl Fn(&Rules) -> usize,
    ) {
        let mut metric = page.add(name, Type::Gauge, help);
        for (family, values) in self.shown() {
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
            "How long after the first event that a sync is for it was in the kernel, in seconds",
            |family| &family.reaction,
        );
        self.add_histogram(
            page,
            "vipline_sync_edits",
            "How many edits of the kernel's state syncs committed",
            |family| &family.edits,
        );
        self.add_values(
            page,
            "vipline_drift_repaired_total",
            Type::Counter,
            "Changes that somebody else made to the rules, and that were mended",
            |family| Some(float(family.drift)),
        );
        self.add_values(
            page,
            "vipline_objects",
            Type::Gauge,
            "Objects that the kernel holds for the proxy",
            |family| family.objects.map(float),
        );
        let help = "Objects that the kernel rejected and has not taken since";
        let mut metric = page.add("kubeproxy_sync_rejected_objects", Type::Gauge, help);
        for (family, values) in self.shown() {
            let labels = [("ip_family", &*family), ("mode", self.mode.name())];
            metric.value(&labels, float(values.rejected));
        }
        let help = "Addresses with a port that several Services claim";
        let mut metric = page.add("vipline_contested_addresses", Type::Gauge, help);
        metric.value(&[], float(self.contested));
    }

    fn add_histogram(
        &self,
        page: &mut Page,
        name: &'static str,
        help: &str,
        histogram: impl Fn(&OfFamily) -> &Histogram,
    ) {
        let mut metric = page.add(name, Type::Histogram, help);
        for (family, values) in self.shown() {
            metric.histogram(&[("ip_family", &family)], histogram(values));
        }
    }

    fn add_values(
        &self,
        page: &mut Page,
        name: &'static str,
        kind: Type,
        help: &str,
        value: impl Fn(&OfFamily) -> Option<f64>,
    ) {
        let mut metric = page.add(name, kind, help);
        for (family, values) in self.shown() {
            if let Some(value) = value(values) {
                metric.value(&[("ip_family", &family)], value);
            }
        }
    }

    /// Returns the families by the names they are shown with.
    fn shown(&self) -> impl Iterator<Item = (String, &OfFamily)> {
        let families = self.families.iter();
        families.map(|(family, values): (&Family, _)| (family.to_string(), values))
    }
}

impl Answers {
    fn add_to(&self, page: &mut Page, name: &'static str, help: &str) {
        let mut metric = page.add(name, Type::Counter, help);
        metric.value(&[("code", "200")], float(self.good));
        metric.value(&[("code", "503")], float(self.bad));
    }
}

/// Adds for how long changes of kinds of objects were not heard of.
pub(super) fn add_staleness(page: &mut Page, staleness: impl Iterator<Item = (Kind, Duration)>) {
    let mut metric = page.add(
        "vipline_source_staleness_seconds",
        Type::Gauge,
        "For how long changes of a kind of object were not heard of, in seconds; 0 while they are",
    );
    for (kind, time) in staleness {
        metric.value(&[("kind", &kind.to_string())], time.as_secs_f64());
    }
}

/// Adds the number of fields and parts of objects that were left out.
pub(super) fn add_object_problems(page: &mut Page, problems: &BTreeMap<Kind, usize>) {
    let mut metric = page.add(
        "vipline_object_problems_total",
        Type::Counter,
        "Fields and parts of API objects that were left out because they are unusable",
    );
    for (kind, &count) in problems {
        metric.value(&[("kind", &kind.to_string())], float(count));
    }
}

/// Returns a time as seconds since 1970.
#[allow(clippy::cast_precision_loss, reason = "the format has 53 bits")]
pub(super) fn seconds(at: Timestamp) -> f64 {
    at.seconds as f64 + f64::from(at.nanos) / 1e9
}
