//! Without the privilege to program the kernel.

use crate::stage::{Stage, service};

/// Takes the capability away, whoever runs this.
const WITHOUT: [&str; 3] = [
    "setpriv",
    "--bounding-set=-net_admin",
    "--inh-caps=-net_admin",
];

#[test]
fn missing_privilege_is_one_sentence() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    for (command, code) in [("", 1), ("--oneshot", 1), ("diff", 2)] {
        let said = stage.say_through(&WITHOUT, command);
        assert_eq!(
            (said.code, &*said.stdout),
            (code, ""),
            "{command}: {said:?}"
        );
        let errors = said.stderr.lines().filter(|line| line.contains("ERROR"));
        let errors: Vec<_> = errors.collect();
        assert_eq!(errors.len(), 1, "{said:?}");
        assert!(errors[0].contains("CAP_NET_ADMIN is missing"), "{said:?}");
    }
}

#[test]
fn rendering_needs_no_privilege() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    let (without, with) = (stage.say_through(&WITHOUT, "render"), stage.say("render"));
    assert_eq!((without.code, without.stdout), (0, with.stdout));
}
