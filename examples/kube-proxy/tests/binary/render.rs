//! `render`: the plan in the format of `nft -f`.

use testkit::nft::blocks;

use crate::stage::{Stage, demo};

/// Returns a stage with the demo manifests.
fn shop() -> Stage {
    let stage = Stage::new();
    for entry in std::fs::read_dir(demo()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        stage.write(name, &std::fs::read_to_string(&path).unwrap());
    }
    stage
}

#[test]
fn the_rendered_plan_loads_and_equals_the_programmed_rules() {
    let (programmed, loaded) = (shop(), shop());
    let report = programmed.oneshot();
    assert_eq!(report["in_sync"], true, "{report}");
    let rendered = loaded.run("render");
    assert_eq!(rendered.code, 0, "{}", rendered.stderr);
    loaded.load(&rendered.stdout);
    let (expected, found) = (programmed.ruleset(), loaded.ruleset());
    assert!(expected.contains("10.244.1.11"), "{expected}");
    assert!(expected.contains("fd00:244:1::11"), "{expected}");
    assert_eq!(blocks(&found), blocks(&expected));
    let difference = loaded.run("diff");
    assert_eq!(
        (difference.code, &*difference.stdout),
        (0, ""),
        "{difference:?}"
    );
    assert_eq!(loaded.oneshot()["edits"], 0);
}

#[test]
fn the_same_manifests_render_to_the_same_bytes() {
    let stage = shop();
    let first = stage.run("render").stdout;
    assert!(first.contains("table ip kube-proxy"), "{first}");
    assert!(first.contains("table ip6 kube-proxy"), "{first}");
    for _ in 0..3 {
        assert_eq!(stage.run("render").stdout, first);
    }
    assert_eq!(stage.ruleset(), "", "nothing is programmed");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let stage = shop();
    let binary = env!("CARGO_BIN_EXE_kube-proxy");
    let line = format!(
        "set -o pipefail; {binary} render --proxy-mode nftables --manifests {} | head -c 10",
        stage.manifests().display()
    );
    let outcome = std::process::Command::new("bash")
        .args(["-c", &line])
        .output()
        .unwrap();
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(outcome.stderr.is_empty(), "{outcome:?}");
}
