//! A proxy that is killed, wherever it is in its work.

use std::thread;
use std::time::Instant;

use crate::stage::{Stage, service, slice};

/// How many Services there are.
const SERVICES: u8 = 110;

/// How many endpoints each has: together more than one transaction takes.
const ENDPOINTS: u8 = 180;

/// When it is killed, as a part of the time that a first sync took.
const KILLS: [f64; 4] = [0.5, 0.85, 0.92, 0.97];

/// When it is killed next, as long as it was always too late: the machine had
/// more to do when the time was taken.
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
fn killed_at_any_moment_it_starts_again_to_the_plan_and_rewrites_nothing() {
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
            "{missing} of {all}: what was right is written again"
        );
        assert!(rules == table(&stage), "the rules are others than at first");
        assert_eq!(
            stage.oneshot()["edits"],
            0,
            "nothing is missing, nothing is written"
        );
        missing
    };
    let mut found: Vec<_> = KILLS.map(|part| missing(Some(part))).into();
    for part in EARLIER {
        if found.iter().all(|&missing| missing == 0) {
            found.push(missing(Some(part)));
        }
    }
    // The last time it is killed after the sync, however long that takes.
    found.push(missing(None));
    println!("of {all} edits these were missing after a kill: {found:?}");
    assert!(
        found.iter().any(|&missing| missing > 0),
        "never killed before the end: {found:?}"
    );
    assert_eq!(found.last(), Some(&0), "killed after the end: {found:?}");
}
