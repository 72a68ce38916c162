//! Metrics of the build and the feature gates.

use daemon::metrics::{Page, Type};

use crate::config::Gates;
use crate::version;

/// Adds the build.
pub(super) fn add_to(page: &mut Page) {
    let (major, minor) = version::kubernetes();
    let (version, platform) = (version::reported(), version::platform());
    let labels = [
        ("compiler", "rustc"),
        ("git_version", &*version),
        ("major", major),
        ("minor", minor),
        ("platform", &*platform),
    ];
    let help = "[ALPHA] Build information; the value is 1";
    let mut metric = page.add("kubernetes_build_info", Type::Gauge, help);
    metric.value(&labels, 1.0);
}

/// Adds the state of all feature gates.
pub(super) fn add_gates(page: &mut Page, gates: &Gates) {
    let help = "[BETA] Whether a feature gate is enabled, with its stage";
    let mut metric = page.add("kubernetes_feature_enabled", Type::Gauge, help);
    for (name, stage, is_open) in gates.states() {
        metric.value(&[("name", name), ("stage", stage)], f64::from(is_open));
    }
}
