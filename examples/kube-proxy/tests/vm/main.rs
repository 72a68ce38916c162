//! Mode ipvs of the program with a kernel that has IPVS: node settings, traffic while
//! the program runs, and objects that stay.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod node;

mod site;

mod live;

mod explain;

mod modes;

mod takeover;

mod pid_namespace;

mod rejected;

mod large;

#[path = "../binary/large_service.rs"]
mod large_service;

#[path = "../world/decode.rs"]
mod decode;

#[path = "../world/history.rs"]
mod history;

#[path = "../world/replay.rs"]
mod replay;

mod histories;

use std::process::Command;

use testkit::netns::Netns;

/// Runs a shell command in a namespace, which must succeed, and returns its output.
#[track_caller]
fn shell(netns: &Netns, line: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", line]);
    let output = netns.run(|| command.output()).unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
