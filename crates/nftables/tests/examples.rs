//! Runs the examples and compares their output.
#![allow(clippy::unwrap_used, reason = "a test")]

use testkit::netns::Netns;

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/firewall.rs"]
mod firewall;

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/tokio-monitor.rs"]
mod tokio_monitor;

#[test]
fn the_changes_of_a_table_are_printed_until_it_is_deleted() {
    let output = Netns::new().unwrap().run(|| {
        let mut out = Vec::new();
        tokio_monitor::run(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    });
    assert_eq!(output, include_str!("examples/tokio-monitor.txt"));
}

#[test]
fn the_firewall_has_counters_and_a_named_set() {
    let output = Netns::new().unwrap().run(|| {
        let mut out = Vec::new();
        firewall::run(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    });
    assert_eq!(output, include_str!("examples/firewall.txt"));
}
