//! Random histories in mode ipvs on the real kernel.

use std::process::Command;

use proxy_core::{Config, Engine, Mode};

use crate::history::{check, history};
use crate::played::{config, in_namespace, obey};

/// Number of histories: a guest is slow.
const HISTORIES: u64 = 3;

/// Addresses that are not unicast: the kernel refuses real servers there, and IPv6
/// multicast addresses of interfaces.
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

/// Prints what is left of Services.
const LEFT: &str = "ipvsadm -Sn; ip -o address show dev kube-ipvs0; \
                    ipset save | grep '^add ' || true";

#[test]
fn ipvs_equals_the_plan_after_each_change_and_keeps_nothing_in_the_end() {
    check(
        HISTORIES,
        |seed| history((4 << 32) + seed, 6, u8::MAX),
        |seed, changes| {
            in_namespace(|| {
                let config = Config {
                    mode: Mode::Ipvs,
                    ..config()
                };
                let engine = Engine::open(config).map_err(|error| error.to_string())?;
                let may_refuse = |object: &str| NOT_UNICAST.iter().any(|it| object.contains(it));
                obey(engine, seed, changes, may_refuse)?;
                match shell(LEFT) {
                    left if left.is_empty() => Ok(()),
                    left => Err(format!("this is left: {left}")),
                }
            })
        },
    );
}

/// Runs a shell command; returns what it prints.
fn shell(line: &str) -> String {
    let output = Command::new("sh")
        .args(["-e", "-c", line])
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
