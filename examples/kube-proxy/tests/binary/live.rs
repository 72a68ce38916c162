//! Manifests that change while the proxy runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::thread;
use std::time::Duration;

use crate::health::{METRICS, get};
use crate::stage::{Stage, service, slice, wait_until};

/// Maximum time from a change of a manifest to the kernel.
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_change_is_programmed_within_a_second() {
    let stage = Stage::with(&[(
        "web.yaml",
        &(service("web", "10.96.0.10") + &slice("web", 1, 2)),
    )]);
    let proxy = stage.start();
    assert!(!stage.ruleset().contains("10.244.1.3 "));
    stage.write(
        "web.yaml",
        &(service("web", "10.96.0.10") + &slice("web", 1, 3)),
    );
    let time = wait_until("the new endpoint", || {
        stage.ruleset().contains("10.244.1.3 ")
    });
    println!("a changed endpoint was in the kernel, as nft sees it, after {time:?}");
    assert!(time < SECOND, "{time:?}");
    fs::remove_file(stage.manifests().join("web.yaml")).unwrap();
    let time = wait_until("no Service", || !stage.ruleset().contains("10.96.0.10"));
    println!("a removed file was out of the kernel after {time:?}");
    assert!(time < SECOND, "{time:?}");
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_slice_waits_for_its_service() {
    let stage = Stage::with(&[("slice.yaml", &slice("web", 1, 3))]);
    let proxy = stage.start();
    assert!(!stage.ruleset().contains("10.244.1.1"));
    stage.write("web.yaml", &service("web", "10.96.0.10"));
    wait_until("the endpoints", || stage.ruleset().contains("10.244.1.3 "));
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_broken_manifest_is_reported_once_and_keeps_its_last_valid_state() {
    let good = service("web", "10.96.0.10") + &slice("web", 1, 3);
    let stage = Stage::with(&[("web.yaml", &good)]);
    let proxy = stage.start();
    let rules = stage.ruleset();
    for _ in 0..3 {
        stage.write("web.yaml", "kind: [\n");
    }
    wait_until("the error", || proxy.output().contains("web.yaml:"));
    let bad_ip = good.replace("10.96.0.10", "10.96.0.300") + &service("other", "10.96.0.20");
    stage.write("web.yaml", &bad_ip);
    wait_until("the good rest", || stage.ruleset().contains("10.96.0.20"));
    assert!(
        stage.ruleset().contains("10.96.0.10"),
        "the last good state stays"
    );
    let output = proxy.output();
    assert_eq!(output.matches("ERROR").count(), 2, "{output}");
    assert!(
        output.contains("Service default/web: spec.clusterIP: not an IP address"),
        "{output}"
    );
    stage.write("web.yaml", &good);
    wait_until("the former rules", || stage.ruleset() == rules);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn an_atomic_config_map_update_is_programmed() {
    let stage = Stage::new();
    let folder = stage.manifests();
    let swap = |number: u32, text: &str| {
        let version = folder.join(format!("..version-{number}"));
        fs::create_dir(&version).unwrap();
        fs::write(version.join("web.yaml"), text).unwrap();
        symlink(&version, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    };
    swap(1, &service("web", "10.96.0.10"));
    symlink("..data/web.yaml", folder.join("web.yaml")).unwrap();
    let proxy = stage.start();
    assert!(stage.ruleset().contains("10.96.0.10"));
    swap(2, &service("web", "10.96.0.11"));
    wait_until("the new address", || stage.ruleset().contains("10.96.0.11"));
    assert!(!stage.ruleset().contains("10.96.0.10"));
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn the_rules_stay_after_the_proxy_exits() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    let proxy = stage.start();
    let rules = stage.ruleset();
    assert!(rules.contains("10.96.0.10"));
    assert!(proxy.terminate().unwrap().success());
    assert_eq!(stage.ruleset(), rules);
}

#[test]
fn an_idle_proxy_sleeps_until_it_is_asked() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    let proxy = stage.start();
    let switches = || {
        let status = fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
        status
            .lines()
            .find(|line| line.starts_with("voluntary"))
            .unwrap()
            .to_owned()
    };
    let mut before = switches();
    wait_until("rest", || {
        // A proxy returns free memory 1 s after its first sync.
        thread::sleep(Duration::from_millis(1_200));
        std::mem::replace(&mut before, switches()) == before
    });
    thread::sleep(SECOND);
    assert_eq!(switches(), before, "an idle proxy woke up");
    for _ in 0..3 {
        let answer = get(&stage, METRICS, "/debug/explain?tcp=10.96.0.10:80");
        assert_eq!(answer.code, 200, "{answer:?}");
    }
    assert!(proxy.terminate().unwrap().success());
}
