//! Runs the examples and compares their output.
#![allow(clippy::unwrap_used, reason = "a test")]

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/nftables.rs"]
mod nftables;

#[test]
fn outcomes_have_the_rules_and_elements_that_decide() {
    let mut out = Vec::new();
    nftables::run(&mut out).unwrap();
    let output = String::from_utf8(out).unwrap();
    assert_eq!(output, include_str!("examples/nftables.txt"));
}
