//! Runs the example and compares its output.
#![allow(clippy::unwrap_used, reason = "a test")]

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/answers.rs"]
mod answers;

const LIST: &str = include_str!("examples/list.json");

#[test]
fn questions_about_services_are_answered() {
    let mut out = Vec::new();
    let questions = [
        "web.shop.svc.cluster.local A",
        "Web.shop.svc.cluster.local AAAA",
        "_http._tcp.web.shop.svc.cluster.local SRV",
        "db.shop.svc.cluster.local ANY",
        "db-0.db.shop.svc.cluster.local A",
        "docs.shop.svc.cluster.local A",
        "20.0.96.10.in-addr.arpa PTR",
        "dns-version.cluster.local TXT",
        "none.shop.svc.cluster.local A",
        "www.example.org A",
    ];
    let questions: Vec<&str> = questions.iter().flat_map(|it| it.split(' ')).collect();
    answers::run(LIST, &questions, &mut out).unwrap();
    let output = String::from_utf8(out).unwrap();
    assert_eq!(output, include_str!("examples/answers.txt"));
}

#[test]
fn invalid_questions_are_errors() {
    for (questions, expected) in [
        (&["a"][..], "usage: answers [NAME TYPE]..."),
        (&["a", "B"], "\"B\" is no type of a record"),
        (&["a..b", "A"], "a label is empty"),
    ] {
        let error = answers::run(LIST, questions, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
