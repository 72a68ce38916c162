//! Runs without the privilege to program the kernel, and with too few descriptors.

use std::collections::BTreeSet;

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

/// With fewer descriptors than the start needs, the program ends with one error.
#[test]
fn a_lack_of_descriptors_is_one_error_line_that_says_where() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    let mut places = BTreeSet::new();
    for count in 4..=64 {
        let Err(output) = stage.start_with_descriptors(count) else {
            assert!(places.contains("cannot handle signals"), "{places:?}");
            assert!(places.len() > 4, "{places:?}");
            return;
        };
        // The dynamic loader opens libraries before the program begins.
        if output.contains("error while loading shared libraries") {
            continue;
        }
        let errors = output.lines().filter(|line| line.contains("ERROR"));
        let [error] = errors.collect::<Vec<_>>()[..] else {
            panic!("{count}: {output}");
        };
        let (_, text) = error.split_once("ERROR ").unwrap();
        let place = text.strip_suffix(": Too many open files (os error 24)");
        places.insert(place.expect(text).to_owned());
    }
    panic!("64 descriptors are too few: {places:?}");
}

#[test]
fn rendering_needs_no_privilege() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    let (without, with) = (stage.run_through(&WITHOUT, "render"), stage.run("render"));
    assert_eq!((without.code, without.stdout), (0, with.stdout));
}
