//! Runs without the privilege to program the kernel, and with too few descriptors or threads.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use testkit::scoped::{Directory, Process};

use crate::stage::{BINARY, Stage, service, wait_until};

/// A command prefix that drops CAP_NET_ADMIN for any user.
const WITHOUT: [&str; 3] = [
    "setpriv",
    "--bounding-set=-net_admin",
    "--inh-caps=-net_admin",
];

#[test]
fn missing_privilege_is_one_error_line() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    for (command, code) in [("", 1), ("--oneshot", 1), ("diff", 2)] {
        let outcome = stage.run_through(&WITHOUT, command);
        assert_eq!(
            (outcome.code, &*outcome.stdout),
            (code, ""),
            "{command}: {outcome:?}"
        );
        let errors = outcome.stderr.lines().filter(|line| line.contains("ERROR"));
        let errors: Vec<_> = errors.collect();
        assert_eq!(errors.len(), 1, "{outcome:?}");
        assert!(
            errors[0].contains("CAP_NET_ADMIN is missing"),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_lack_of_descriptors_is_one_error_line_that_says_where() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    let reason = "Too many open files (os error 24)";
    let places = places_of_errors(&stage, BINARY.as_ref(), reason, |limit| {
        format!("prlimit --nofile={limit}:{limit}")
    });
    assert!(places.contains("cannot handle signals"), "{places:?}");
    assert!(places.len() > 4, "{places:?}");
}

/// Runs as a user that no other test uses, because the kernel counts the threads of a user.
#[test]
fn a_lack_of_threads_is_one_error_line_that_says_where() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    // The build folder may not be readable by the other user.
    let folder = Directory::new().unwrap();
    let program = folder.path().join("kube-proxy");
    testkit::program::copy(BINARY.as_ref(), &program).unwrap();
    for directory in [folder.path(), stage.folder.path()] {
        let mut chmod = Command::new("chmod");
        let status = chmod.args(["-R", "a+rX"]).arg(directory).status();
        assert!(status.unwrap().success());
    }
    let reason = "Resource temporarily unavailable (os error 11)";
    let places = places_of_errors(&stage, &program, reason, |limit| {
        format!(
            "setpriv --reuid=65001 --regid=65001 --clear-groups --bounding-set=-all,+net_admin \
             --inh-caps=-all,+net_admin --ambient-caps=-all,+net_admin \
             prlimit --nproc={limit}:{limit}"
        )
    });
    let expected = [
        "cannot handle signals",
        "cannot start the thread that searches for stale flows",
        "cannot start the threads of health: OS can't spawn worker thread",
        "cannot start the threads of metrics: OS can't spawn worker thread",
        "cannot start the threads of tasks: OS can't spawn worker thread",
    ];
    assert!(places.iter().eq(expected), "{places:?}");
}

/// Starts the program with limits from 1 on until it syncs. Returns what it could not do
/// with the smaller limits. Each time it ends with one error line.
fn places_of_errors(
    stage: &Stage,
    program: &Path,
    reason: &str,
    prefix: impl Fn(u32) -> String,
) -> BTreeSet<String> {
    let mut places = BTreeSet::new();
    for limit in 1..=64 {
        let Err(output) = stage.start_through(&prefix(limit), program) else {
            return places;
        };
        // The dynamic loader opens libraries before the program begins.
        if output.contains("error while loading shared libraries") {
            continue;
        }
        let errors = output.lines().filter(|line| line.contains("ERROR"));
        let [error] = errors.collect::<Vec<_>>()[..] else {
            panic!("{limit}: {output}");
        };
        let (_, text) = error.split_once("ERROR ").unwrap();
        let place = text
            .strip_suffix(reason)
            .and_then(|it| it.strip_suffix(": "));
        places.insert(place.expect(text).to_owned());
    }
    panic!("a limit of 64 is too small: {places:?}");
}

#[test]
fn rendering_needs_no_privilege() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    let (without, with) = (stage.run_through(&WITHOUT, "render"), stage.run("render"));
    assert_eq!((without.code, without.stdout), (0, with.stdout));
}

#[test]
fn a_score_that_cannot_be_set_says_what_follows() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    let mut command = stage.command("setpriv");
    command
        .args([
            "--bounding-set=-sys_resource",
            "--inh-caps=-sys_resource",
            BINARY,
        ])
        .args(stage.arguments("--oom-score-adj=-1000"));
    let proxy = Process::start(&stage.netns, &mut command).unwrap();
    wait_until("the first sync", || proxy.output().contains("synced"));
    let output = proxy.output();
    let expected = "set /proc/self/oom_score_adj to -1000: Permission denied (os error 13); \
                    continuing with the present value: if the node runs out of memory, the \
                    kernel may end this process earlier. A lower value needs CAP_SYS_RESOURCE";
    assert!(output.contains(expected), "{output}");
    assert!(proxy.terminate().unwrap().success());
}
