//! Runs the example and compares its output.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "IO file")]

use std::fs;

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/hosts.rs"]
mod hosts;

/// Runs the example and returns its output.
fn run(path: &std::path::Path) -> String {
    let mut out = Vec::new();
    hosts::run(path.to_owned(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_file_has_what_the_owners_want() {
    let path = std::env::temp_dir().join(format!("reconcile-hosts-{}", std::process::id()));
    fs::write(&path, "10.0.0.7 old\n10.0.0.1 www\n").unwrap();
    let output = run(&path);
    let hosts = fs::read_to_string(&path).unwrap();
    let again = run(&path);
    fs::remove_file(&path).unwrap();
    assert_eq!(
        output,
        "add 10.0.0.2 api\n\
         add 10.0.0.3 mx\n\
         remove 10.0.0.7 old\n\
         change 10.0.0.4 mx\n\
         change 10.0.0.9 www\n\
         remove 10.0.0.4 mx\n\
         change 10.0.0.1 www\n"
    );
    let mut hosts: Vec<_> = hosts.lines().collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["10.0.0.1 www", "10.0.0.2 api"]);
    // The lines of the first run stay.
    assert!(!again.contains("api"), "{again}");
}
