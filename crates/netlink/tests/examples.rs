//! Runs the examples and compares their output.
#![allow(clippy::unwrap_used, reason = "a test")]

use testkit::netns::Netns;

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/async.rs"]
mod asynchronous;

#[test]
fn the_async_example_commits_dumps_and_receives_notifications() {
    let output = Netns::new().unwrap().run(|| {
        let mut out = Vec::new();
        asynchronous::run(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    });
    let expected = "\
batch: Committed
event: table blue added
event: table green added
tables: blue, green
";
    assert_eq!(output, expected);
}
