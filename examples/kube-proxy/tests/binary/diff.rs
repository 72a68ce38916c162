//! `diff`: the difference between kernel and plan, and the exit codes.

use crate::stage::{Stage, service, slice};

fn web() -> String {
    service("web", "10.96.0.10") + &slice("web", 1, 3)
}

#[test]
fn the_difference_is_empty_after_nft_applies_it() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    for _ in 0..2 {
        let outcome = stage.run("diff");
        assert_eq!((outcome.code, &*outcome.stderr), (1, ""), "{outcome:?}");
        stage.load(&outcome.stdout);
        let nothing = stage.run("diff");
        assert_eq!((nothing.code, &*nothing.stdout), (0, ""), "{nothing:?}");
        let changed = service("web", "10.96.0.11") + &slice("web", 2, 4);
        stage.write("web.yaml", &changed);
    }
    let rules = stage.ruleset();
    assert!(rules.contains("10.244.2.3"), "{rules}");
    assert!(!rules.contains("10.244.1.3"), "{rules}");
}

#[test]
fn changes_by_other_processes_are_the_difference() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    stage.oneshot();
    let good = stage.ruleset();
    stage.load("flush chain ip kube-proxy masquerading\n");
    let outcome = stage.run("diff");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(
        outcome.stdout.contains("masquerading"),
        "{}",
        outcome.stdout
    );
    assert!(
        !outcome.stdout.contains("10.244.1.1"),
        "unchanged objects are not part of the difference: {}",
        outcome.stdout
    );
    assert_ne!(stage.ruleset(), good, "diff changes nothing");
    stage.load(&outcome.stdout);
    assert_eq!(stage.ruleset(), good);

    // nft 1.0.6 adds rules with maps of endpoints only together with the maps.
    stage.load("flush chain ip kube-proxy services\n");
    let outcome = stage.run("diff");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(outcome.stdout.contains("services"), "{}", outcome.stdout);
    stage.load(&outcome.stdout);
    let outcome = stage.run("diff");
    assert_eq!(outcome.code, 0, "{outcome:?}");
}

#[test]
fn foreign_tables_are_not_part_of_the_difference() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    stage.load("table inet other {\nchain c {\ntype filter hook input priority 0\naccept\n}\n}\n");
    stage.oneshot();
    assert_eq!(stage.run("diff").code, 0);
    assert!(stage.ruleset().contains("table inet other"));
}

#[test]
fn the_same_difference_has_the_same_bytes() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    stage.oneshot();
    let changed: String = (1..30)
        .map(|net| {
            let name = format!("web-{net}");
            service(&name, &format!("10.96.1.{net}")) + &slice(&name, net, 3)
        })
        .collect();
    stage.write("more.yaml", &changed);
    let outcome = stage.run("diff").stdout;
    for _ in 0..3 {
        assert!(outcome == stage.run("diff").stdout);
    }
}
