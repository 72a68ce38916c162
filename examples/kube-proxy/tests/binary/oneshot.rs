//! `--oneshot`: one sync and a report.

use crate::stage::{Stage, service, slice};

#[test]
fn the_first_report_counts_edits_and_the_second_reports_none() {
    let stage = Stage::with(&[(
        "web.yaml",
        &(service("web", "10.96.0.10") + &slice("web", 1, 3)),
    )]);
    let first = stage.oneshot();
    assert_eq!(first["mode"], "nftables", "{first}");
    assert_eq!(first["in_sync"], true, "{first}");
    assert!(first["edits"].as_u64().unwrap() > 0, "{first}");
    let rules = stage.ruleset();
    let second = stage.oneshot();
    assert_eq!(
        (&second["edits"], &second["in_sync"]),
        (&0.into(), &true.into()),
        "{second}"
    );
    assert_eq!(stage.ruleset(), rules);
    let text = stage.run("--oneshot");
    assert_eq!(text.code, 0);
    assert!(text.stdout.contains("in sync"), "{}", text.stdout);
}

#[test]
fn an_empty_directory_programs_the_base_rules() {
    let stage = Stage::new();
    let report = stage.oneshot();
    assert_eq!(
        (&report["services"], &report["in_sync"]),
        (&0.into(), &true.into()),
        "{report}"
    );
    let rules = stage.ruleset();
    assert!(
        rules.contains("table ip kube-proxy") && rules.contains("masquerade"),
        "{rules}"
    );
}

#[test]
fn a_service_of_300_endpoints_in_three_slices_is_programmed_completely() {
    let slices: Vec<_> = (1..=3).map(|net| slice("web", net, 100)).collect();
    let stage = Stage::with(&[(
        "web.yaml",
        &(service("web", "10.96.0.10") + &slices.concat()),
    )]);
    let report = stage.oneshot();
    assert_eq!(report["in_sync"], true, "{report}");
    let rules = stage.ruleset();
    for endpoint in ["10.244.1.1 ", "10.244.2.50 ", "10.244.3.100 "] {
        assert!(rules.contains(endpoint), "{endpoint}");
    }
    assert!(
        rules.contains("mod 300"),
        "traffic is distributed over all endpoints"
    );
}

#[test]
fn a_start_after_a_kill_writes_nothing() {
    let stage = Stage::with(&[(
        "web.yaml",
        &(service("web", "10.96.0.10") + &slice("web", 1, 3)),
    )]);
    let process = stage.start();
    let rules = stage.ruleset();
    drop(process);
    assert_eq!(stage.ruleset(), rules, "a kill leaves the rules");
    let report = stage.oneshot();
    assert_eq!(report["edits"], 0, "{report}");
    assert_eq!(stage.ruleset(), rules);
}
