//! Tests with IPVS in a real kernel: comparison of dumps with `ipvsadm`, and traffic
//! through virtual servers.
//!
//! Runs as root on a kernel with IPVS, in separate network namespaces.
//! Load the modules `ip_vs_lblc` and `ip_vs_lblcr` in advance: a kernel was observed
//! to hang when it loaded one while a namespace was being removed.
//! One test runs at a time: a dump iterates over the servers of all namespaces and
//! can miss some if others change.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "../examples/balancer.rs"]
mod balancer;

#[allow(dead_code, reason = "the test calls what `main` prints")]
#[path = "../examples/ipvsadm-ln.rs"]
mod ipvsadm_ln;

#[path = "laws/tables.rs"]
mod tables;

#[path = "vm/schedulers.rs"]
mod schedulers;

#[path = "vm/destinations.rs"]
mod destinations;

#[path = "vm/text.rs"]
mod text;

#[path = "vm/changes.rs"]
mod changes;

#[path = "vm/random.rs"]
mod random;

#[path = "vm/host.rs"]
mod host;

#[path = "vm/site.rs"]
mod site;

#[path = "vm/traffic.rs"]
mod traffic;

#[path = "vm/clients.rs"]
mod clients;

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use testkit::netns::Netns;
use vipline_ipvs::{Client, Commands, Object, Table};
use vipline_reconcile::diff;

/// Held by the running test.
static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other test is running.
fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test in a new network namespace.
fn with_client(test: impl FnOnce(&mut Client) + Send) {
    let _alone = alone();
    let netns = Netns::new().unwrap();
    netns.run(|| {
        let mut client = Client::open().expect("the kernel has IPVS");
        test(&mut client);
        // The namespace is removed later and should have no servers then.
        client.flush().unwrap();
    });
}

/// Returns whether the kernel has loaded a module.
fn has_module(name: &str) -> bool {
    Path::new("/sys/module").join(name).exists()
}

/// Runs `ipvsadm` and returns its output.
fn ipvsadm(args: &str) -> String {
    ipvsadm_reading(args, "")
}

/// Runs `ipvsadm` with input and returns its output.
fn ipvsadm_reading(args: &str, text: &str) -> String {
    let mut child = Process::new("ipvsadm")
        .args(args.split_ascii_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ipvsadm is installed");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "ipvsadm {args}: {errors}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the sorted lines of `ipvsadm -Sn`.
fn saved() -> Vec<String> {
    sorted(&ipvsadm("-Sn"))
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.sort();
    lines
}

fn commands(text: &str) -> Commands {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns the commands that change the kernel's state to a table.
fn change(client: &mut Client, wanted: &Table) -> Commands {
    let wanted: Vec<Object> = wanted.objects().collect();
    Commands::from_edits(&diff(client.dump().unwrap().objects(), &wanted))
}

/// Commits a table and compares it with the kernel's state, dumped by the client and
/// by ipvsadm.
fn check(client: &mut Client, wanted: &Table) {
    let commands = change(client, wanted);
    client.commit(&commands).unwrap();
    compare(client, wanted);
}

/// Compares a table with the kernel's state, dumped by the client and by ipvsadm.
fn compare(client: &mut Client, wanted: &Table) {
    let dump = client.dump().unwrap();
    same(&sorted(&dump.to_string()), &sorted(&wanted.to_string()));
    // Text does not show local forwarding.
    assert_eq!(dump, *wanted);
    let mut expected = wanted.clone();
    // ipvsadm does not print thresholds.
    for object in wanted.objects() {
        if let Object::Destination(service, real) = object {
            let (upper_threshold, lower_threshold) = (0, 0);
            let real = real
                .with_upper_threshold(upper_threshold)
                .with_lower_threshold(lower_threshold);
            expected.insert_destination(&service, real);
        }
    }
    same(&saved(), &sorted(&expected.to_string()));
}

/// Panics with the lines that are not in both.
fn same(found: &[String], expected: &[String]) {
    let only = |one: &[String], other: &[String]| -> Vec<String> {
        let lines = one.iter().filter(|line| !other.contains(line));
        lines.cloned().collect()
    };
    let more = (only(found, expected), only(expected, found));
    assert_eq!(more, (Vec::new(), Vec::new()), "found and expected");
    assert_eq!(found.len(), expected.len());
}
