//! Runs without the privilege to program the kernel.

use crate::stage::{Stage, service};

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
fn rendering_needs_no_privilege() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    let (without, with) = (stage.run_through(&WITHOUT, "render"), stage.run("render"));
    assert_eq!((without.code, without.stdout), (0, with.stdout));
}
