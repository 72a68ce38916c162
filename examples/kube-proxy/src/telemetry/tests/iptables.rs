//! Tests of the metrics of mode iptables.

use proxy_core::backend::iptables::Planner;
use testkit::netns::Netns;
use vipline_iptables::nfacct::{Client, Name};

use super::*;

fn stage() -> Stage {
    Stage::in_mode::<Planner>(Mode::Iptables, Duration::from_secs(30))
}

/// nfacct counters of the rules.
const COUNTERS: [&str; 2] = [
    "ct_state_invalid_dropped_pkts",
    "localhost_nps_accepted_pkts",
];

/// Creates counters in the network namespace of the calling thread.
fn make(names: &[&str]) {
    let mut client = Client::open().unwrap();
    for name in names {
        client.create(&Name::new(name).unwrap()).unwrap();
    }
}

#[test]
fn the_iptables_page_equals_the_golden_file() {
    Netns::new().unwrap().run(|| {
        make(&COUNTERS);
        compare_with_golden(stage(), "metrics-iptables.txt");
    });
}

#[test]
fn existing_counters_are_shown_in_mode_iptables() {
    Netns::new().unwrap().run(|| {
        let samples = [
            "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
            "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
        ];
        let shown = |stage: &Stage| samples.map(|sample| stage.value(sample));
        let stage = stage();
        let page = stage.telemetry.metrics(&Gates::default());
        assert!(
            samples.iter().all(|sample| !page.contains(sample)),
            "{page}"
        );
        make(&COUNTERS[..1]);
        assert_eq!(shown(&stage), [Some(0.0), None]);
        make(&COUNTERS[1..]);
        assert_eq!(shown(&stage), [Some(0.0); 2]);
        let other = Stage::new(Duration::from_secs(30));
        assert_eq!(shown(&other), [None; 2]);
    });
}

#[test]
fn rules_of_tables_and_failed_restores_are_counted() {
    let mut stage = stage();
    let rules = |stage: &Stage, name, table| {
        let labels = format!("ip_family=\"IPv4\",table=\"{table}\"");
        stage.value(&format!(
            "kubeproxy_sync_proxy_rules_iptables_{name}{{{labels}}}"
        ))
    };
    let failures = |stage: &Stage| {
        ["", "partial_"].map(|which| {
            let name = format!("sync_proxy_rules_iptables_{which}restore_failures_total");
            stage.value(&format!("kubeproxy_{name}{{ip_family=\"IPv4\"}}"))
        })
    };
    assert_eq!(rules(&stage, "total", "nat"), None);
    stage.sync();
    let empty = rules(&stage, "total", "nat").unwrap();
    assert_eq!(rules(&stage, "last", "nat"), Some(empty));
    assert!(rules(&stage, "total", "filter").unwrap() > 0.0);
    assert_eq!(failures(&stage), [Some(0.0); 2]);

    stage.refuse(true);
    stage.service("front", 0, NODE);
    stage.sync();
    assert_eq!(failures(&stage), [Some(1.0); 2]);
    stage.service("front", 0, "node-2");
    stage.sync();
    assert_eq!(
        failures(&stage),
        [Some(2.0), Some(1.0)],
        "it was to be full"
    );
    stage.refuse(false);
    stage.sync();
    let all = rules(&stage, "total", "nat").unwrap();
    assert!(all > empty);
    assert_eq!(rules(&stage, "total", "mangle"), None);

    stage.apply(Event::ServiceDeleted(ObjectName::new("shop", "front")));
    stage.sync();
    assert!(rules(&stage, "total", "nat").unwrap() < all);
    assert_eq!(rules(&stage, "last", "nat"), Some(0.0));
    assert_eq!(failures(&stage), [Some(2.0), Some(1.0)]);
}
