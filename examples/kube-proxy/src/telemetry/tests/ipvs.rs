//! What is different in the metrics of mode ipvs.

use proxy_core::backend::ipvs::Planner;

use super::*;

fn stage() -> Stage {
    Stage::in_mode::<Planner>(Mode::Ipvs, Duration::from_secs(30))
}

#[test]
fn its_page_has_what_dashboards_read() {
    compare_with_golden(stage(), "metrics-ipvs.txt");
}

#[test]
fn what_fails_is_counted_by_the_name_that_upstream_has_for_it() {
    let mut stage = stage();
    let name = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total";
    let failures = |stage: &Stage| stage.value(&format!("{name}{{ip_family=\"IPv4\"}}"));
    stage.sync();
    assert_eq!(failures(&stage), Some(0.0));
    stage.refuse(true);
    stage.service("front", 0, NODE);
    stage.sync();
    assert_eq!(failures(&stage), Some(1.0));
}
