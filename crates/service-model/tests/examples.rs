//! Runs the example and compares its output.
#![allow(clippy::unwrap_used, reason = "a test")]

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/resolve.rs"]
mod resolve;

#[test]
fn services_are_resolved_for_a_node() {
    let mut out = Vec::new();
    let list = include_str!("examples/list.json");
    resolve::run("node-1", list, &mut out).unwrap();
    let output = String::from_utf8(out).unwrap();
    assert_eq!(output, include_str!("examples/resolve.txt"));
}

#[test]
fn objects_of_other_kinds_are_errors() {
    let list = r#"{"items": [{"kind": "Pod"}]}"#;
    let error = resolve::run("node-1", list, &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), r#"unexpected kind Some("Pod")"#);
}
