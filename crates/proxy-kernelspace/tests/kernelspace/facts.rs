//! The facts of upstream's tests of winkernel (Kubernetes 1.36), and cases of our own.
//!
//! `facts.txt` has the objects, the calls of HNS and its state after each sync. A case has
//! the name of a test of upstream's `proxier_test.go` or `hns_test.go`, or a sentence.

use crate::script::run;

const FACTS: &str = include_str!("facts.txt");

#[test]
fn the_facts_of_upstream_hold() {
    let (mut count, mut upstream) = (0, 0);
    let mut failed = String::new();
    for case in FACTS.split("\n\n") {
        let mut lines = case
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        let Some(name) = lines.next() else {
            continue;
        };
        let name = name
            .strip_prefix("case ")
            .expect("a case starts with its name");
        let lines: Vec<_> = lines.collect();
        assert!(lines.contains(&"sync"), "{name} checks nothing");
        count += 1;
        upstream += usize::from(name.starts_with("Test"));
        let difference = run(&lines);
        if !difference.is_empty() {
            failed += &format!("case {name}\n{difference}\n");
        }
    }
    testkit::figures!("{count} cases, {upstream} of upstream");
    assert!(failed.is_empty(), "\n{failed}");
    assert_eq!((count, upstream), (40, 27));
}
