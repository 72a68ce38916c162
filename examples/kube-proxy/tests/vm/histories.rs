//! Random histories in mode ipvs with the real kernel.

use std::process::Command;

use proxy_core::Mode;

use crate::history::{check, history};
use crate::replay::{config, in_namespace, replay};

/// Number of histories. A guest is slow.
const HISTORIES: u64 = 3;

/// Addresses that are not unicast. The kernel rejects real servers at these addresses,
/// and interface addresses that are IPv6 multicast.
const NOT_UNICAST: [&str; 8] = [
    "255.255.255.255",
    "239.1.2.3",
    "224.0.1.1",
    "240.0.0.1",
    "0.1.2.3",
    "0.0.0.0",
    "ff0e::1",
    "ff05::1:3",
];

/// Prints the remaining objects of Services.
const LIST_OBJECTS: &str = "ipvsadm -Sn; ip -o address show dev kube-ipvs0; \
                    ipset save | grep '^add ' || true";

#[test]
fn ipvs_equals_the_plan_after_each_change_and_is_empty_at_the_end() {
    check(
        HISTORIES,
        |seed| history((4 << 32) + seed, 6, u8::MAX),
        |seed, changes| {
            in_namespace(|| {
                let config = config().with_mode(Mode::Ipvs);
                let engine = config.open().map_err(|error| error.to_string())?;
                let may_reject = |object: &str| NOT_UNICAST.iter().any(|it| object.contains(it));
                replay(engine, seed, changes, may_reject)?;
                match shell(LIST_OBJECTS) {
                    left if left.is_empty() => Ok(()),
                    left => Err(format!("remaining objects: {left}")),
                }
            })
        },
    );
}

/// Runs a shell command, which must succeed, and returns its output.
fn shell(line: &str) -> String {
    let output = Command::new("sh")
        .args(["-e", "-c", line])
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
