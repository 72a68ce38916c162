//! A proxy that is killed at various times.

use std::thread;
use std::time::Instant;

use crate::stage::{Stage, service, slice};

/// Number of Services.
const SERVICES: u8 = 40;

/// Number of endpoints of each Service. All endpoints together need more than one
/// transaction.
const ENDPOINTS: u8 = 180;

/// Times of the kills, as fractions of the duration of a first sync.
const KILLS: [f64; 4] = [0.5, 0.85, 0.92, 0.97];

/// Additional times of kills if all previous kills were after the sync, because the
/// machine was busy when the duration was measured.
const EARLIER: [f64; 5] = [0.35, 0.25, 0.12, 0.06, 0.03];

fn cluster() -> Stage {
    let web = |net| {
        let name = format!("web-{net}");
        service(&name, &format!("10.96.0.{net}")) + &slice(&name, net, ENDPOINTS)
    };
    let manifests: String = (1..=SERVICES).map(web).collect();
    Stage::with(&[("cluster.yaml", &manifests)])
}

fn table(stage: &Stage) -> String {
    stage.nft(&["list", "table", "ip", "kube-proxy"]).stdout
}

#[test]
fn a_restart_after_a_kill_at_any_time_writes_only_missing_objects() {
    let stage = cluster();
    let all = stage.oneshot()["edits"].as_u64().unwrap();
    let rules = table(&stage);
    let forget = || stage.load("table ip kube-proxy\ndelete table ip kube-proxy\n");
    forget();
    let begin = Instant::now();
    drop(stage.start());
    let whole = begin.elapsed();
    let missing = |part: Option<f64>| {
        forget();
        match part {
            Some(part) => {
                let proxy = stage.start_unsynced();
                thread::sleep(whole.mul_f64(part));
                drop(proxy);
            }
            None => drop(stage.start()),
        }
        let report = stage.oneshot();
        let missing = report["edits"].as_u64().unwrap();
        assert_eq!(report["in_sync"], true, "{report}");
        assert!(
            missing <= all,
            "{missing} of {all}: installed objects are written again"
        );
        assert!(
            rules == table(&stage),
            "the rules differ from the first sync"
        );
        assert_eq!(stage.oneshot()["edits"], 0, "nothing is missing");
        missing
    };
    let mut found: Vec<_> = KILLS.map(|part| missing(Some(part))).into();
    for part in EARLIER {
        if found.iter().all(|&missing| missing == 0) {
            found.push(missing(Some(part)));
        }
    }
    // The last kill is after the sync, regardless of its duration.
    found.push(missing(None));
    println!("of {all} edits these were missing after a kill: {found:?}");
    assert!(
        found.iter().any(|&missing| missing > 0),
        "never killed before the end: {found:?}"
    );
    assert_eq!(found.last(), Some(&0), "killed after the end: {found:?}");
}
