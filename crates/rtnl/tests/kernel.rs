//! Tests against the running kernel, compared with the output of `ip`.
//!
//! Each test runs in a new network namespace and fails if a program is missing.
//! The links are of types that all kernels have; tests of dummy links are in `vm.rs`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/addresses.rs"]
mod addresses;

#[path = "lab/mod.rs"]
mod lab;

#[path = "kernel/commits.rs"]
mod commits;

#[path = "kernel/dumps.rs"]
mod dumps;

#[path = "kernel/refusals.rs"]
mod refusals;

#[test]
fn the_example_adds_addresses_and_names_the_rejected_ones() {
    let output = testkit::netns::Netns::new().unwrap().run(|| {
        let mut out = Vec::new();
        addresses::change(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    });
    let title = "\n# An existing address is not added again:\n\n";
    let (output, error) = output.split_once(title).unwrap();
    assert_eq!(output, include_str!("kernel/addresses.txt"));
    // Kernels have different words in parentheses.
    for rejected in [
        "ip address add 10.96.0.1/32 dev lo: file exists",
        "ip address add fd00:96::1/128 dev lo nodad: file exists",
    ] {
        assert!(error.contains(rejected), "{error}");
    }
}
