//! `diff`: what the kernel lacks, and exit codes that scripts can use.

use crate::stage::{Stage, service, slice};

fn web() -> String {
    service("web", "10.96.0.10") + &slice("web", 1, 3)
}

#[test]
fn the_difference_applies_with_nft_and_is_gone_then() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    for _ in 0..2 {
        let said = stage.say("diff");
        assert_eq!((said.code, &*said.stderr), (1, ""), "{said:?}");
        stage.load(&said.stdout);
        let nothing = stage.say("diff");
        assert_eq!((nothing.code, &*nothing.stdout), (0, ""), "{nothing:?}");
        let changed = service("web", "10.96.0.11") + &slice("web", 2, 4);
        stage.write("web.yaml", &changed);
    }
    let rules = stage.ruleset();
    assert!(rules.contains("10.244.2.3"), "{rules}");
    assert!(!rules.contains("10.244.1.3"), "{rules}");
}

#[test]
fn what_somebody_else_changed_is_the_difference() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    stage.oneshot();
    let good = stage.ruleset();
    stage.load("flush chain ip kube-proxy services\n");
    let said = stage.say("diff");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stdout.contains("services"), "{}", said.stdout);
    assert!(
        !said.stdout.contains("10.244.1.1"),
        "what is right is left alone: {}",
        said.stdout
    );
    assert_ne!(stage.ruleset(), good, "diff changes nothing");
    stage.load(&said.stdout);
    assert_eq!(stage.ruleset(), good);
}

#[test]
fn tables_of_others_are_none_of_our_business() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    stage.load("table inet other {\nchain c {\ntype filter hook input priority 0\naccept\n}\n}\n");
    stage.oneshot();
    assert_eq!(stage.say("diff").code, 0);
    assert!(stage.ruleset().contains("table inet other"));
}

#[test]
fn equal_differences_are_equal_bytes() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    stage.oneshot();
    let changed: String = (1..30)
        .map(|net| {
            let name = format!("web-{net}");
            service(&name, &format!("10.96.1.{net}")) + &slice(&name, net, 3)
        })
        .collect();
    stage.write("more.yaml", &changed);
    let said = stage.say("diff").stdout;
    for _ in 0..3 {
        assert!(said == stage.say("diff").stdout);
    }
}
