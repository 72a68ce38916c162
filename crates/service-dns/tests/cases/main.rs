//! Questions and expected answers as data: the examples of the specification, and the
//! behavior of the DNS server that clusters use today.
//!
//! The files in `data` hold API objects, questions and answers. `EXCEPTIONS` lists the
//! cases that this crate answers in another way, with the reasons.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod format;

use std::collections::BTreeSet;

use format::File;

/// Cases with another answer, as table, name and type, and the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "reverse",
        "101.0.0.10.in-addr.arpa. PTR",
        "SOA: the name server of the zone of Services exists, one in the reverse zone does not",
    ),
    (
        "reverse",
        "svc1.testns.svc.0.10.in-addr.arpa. A",
        "SOA: the name server of the zone of Services exists, one in the reverse zone does not",
    ),
    (
        "empty services",
        "svcempty.testns.svc.cluster.local. A",
        "an option outside of the specification hides Services without endpoints",
    ),
    (
        "before the first list",
        "svc0.testns.svc.cluster.local. A",
        "a failure before the first list is the decision of the server: `Zone::is_synced`",
    ),
    (
        "pods, verified",
        "podns.pod.cluster.local. A",
        "pods are not watched, so they cannot be verified",
    ),
    (
        "pods, verified",
        "10-240-0-1.podns.pod.cluster.local. A",
        "pods are not watched, so they cannot be verified",
    ),
    (
        "endpoint names",
        "hello-abcde.named.testns.svc.cluster.local. A",
        "an option outside of the specification names endpoints after their pods",
    ),
];

#[test]
fn the_examples_of_the_specification_have_their_answers() {
    let file = File::parse(include_str!("data/specification.txt"));
    assert_eq!(check(&file), BTreeSet::new());
}

#[test]
fn questions_have_the_answers_that_clusters_expect() {
    let mut differing = BTreeSet::new();
    for text in [
        include_str!("data/services.txt"),
        include_str!("data/pods.txt"),
        include_str!("data/apex.txt"),
        include_str!("data/reverse.txt"),
        include_str!("data/endpoints.txt"),
    ] {
        differing.extend(check(&File::parse(text)));
    }
    let listed: BTreeSet<_> = EXCEPTIONS
        .iter()
        .map(|(table, question, _)| (table.to_string(), question.to_string()))
        .collect();
    assert_eq!(
        differing, listed,
        "left: cases that differ, right: EXCEPTIONS"
    );
}

/// Returns table and question of each case with another answer.
fn check(file: &File) -> BTreeSet<(String, String)> {
    let mut differing = BTreeSet::new();
    for table in &file.tables {
        let zone = table.zone();
        let mut passed = 0;
        for case in &table.cases {
            let answer = case.ask(&zone);
            if answer == case.expected {
                passed += 1;
                continue;
            }
            println!("{}: {}: {answer:#?}", table.name, case.question);
            println!("expected {:#?}", case.expected);
            differing.insert((table.name.clone(), case.question.clone()));
        }
        let total = table.cases.len();
        testkit::figures!("{}: {passed} of {total} answers are equal", table.name);
    }
    for (table, count, reason) in &file.excluded {
        println!("{table}: {count} cases are outside of the specification: {reason}");
    }
    let asked: usize = file.tables.iter().map(|table| table.cases.len()).sum();
    assert!(asked > 0, "the file has cases");
    differing
}
