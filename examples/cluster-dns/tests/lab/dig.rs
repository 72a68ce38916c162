//! Answers as `dig` prints them.

use std::process::Command;

use crate::objects::endpoints;
use crate::stage::{EXAMPLE, SERVER, Stage, run};

/// Returns the sorted lines that `dig +short` prints in the pod.
fn dig(stage: &Stage, words: &str) -> Vec<String> {
    let mut command = Command::new("dig");
    command
        .arg(format!("@{SERVER}"))
        .args(words.split_whitespace());
    command.args(["+short", "+time=5", "+tries=1"]);
    let output = run(&stage.lab.pod.netns, &mut command);
    assert!(output.status.success(), "{words}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let is_record = |line: &&str| !line.starts_with(';');
    let mut lines: Vec<String> = text.lines().filter(is_record).map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Returns the status and flags that `dig` prints in the pod.
fn header(stage: &Stage, words: &str) -> (String, String) {
    let mut command = Command::new("dig");
    command
        .arg(format!("@{SERVER}"))
        .args(words.split_whitespace());
    command.args(["+time=5", "+tries=1"]);
    let output = run(&stage.lab.pod.netns, &mut command);
    let text = String::from_utf8(output.stdout).unwrap();
    let after = |start: &str, end: char| {
        let rest = text.split_once(start).expect("a header").1;
        rest.split(end).next().unwrap_or_default().trim().to_owned()
    };
    (after("status: ", ','), after(";; flags: ", ';'))
}

#[test]
fn dig_gets_the_records_of_services() {
    let stage = Stage::new();
    let _upstream = stage.upstream(60);
    let zone = "svc.cluster.local";
    for (words, expected) in [
        (format!("web.shop.{zone} A"), vec!["10.96.0.20"]),
        (format!("web.shop.{zone} AAAA"), vec!["fd00:96::20"]),
        (format!("WEB.Shop.{zone} A +tcp"), vec!["10.96.0.20"]),
        (
            format!("web.shop.{zone} A +noedns +nocookie"),
            vec!["10.96.0.20"],
        ),
        (
            format!("_http._tcp.web.shop.{zone} SRV"),
            vec!["0 50 80 web.shop.svc.cluster.local."],
        ),
        (
            format!("db.shop.{zone} A"),
            vec!["10.244.1.11", "10.244.1.12"],
        ),
        (format!("db-0.db.shop.{zone} A"), vec!["10.244.1.11"]),
        (format!("10-244-1-12.db.shop.{zone} A"), vec!["10.244.1.12"]),
        (
            format!("docs.shop.{zone} A"),
            vec![EXAMPLE, "www.example.org."],
        ),
        (
            "-x 10.96.0.20".to_owned(),
            vec!["web.shop.svc.cluster.local."],
        ),
        (
            "-x fd00:96::20".to_owned(),
            vec!["web.shop.svc.cluster.local."],
        ),
        (
            "-x 10.244.1.11".to_owned(),
            vec!["db-0.db.shop.svc.cluster.local."],
        ),
        (
            "dns-version.cluster.local TXT".to_owned(),
            vec!["\"1.1.0\""],
        ),
        ("www.example.org A".to_owned(), vec![EXAMPLE]),
    ] {
        assert_eq!(dig(&stage, &words), expected, "{words}");
    }
}

#[test]
fn dig_tells_missing_names_from_missing_records() {
    let stage = Stage::new();
    for (words, status) in [
        ("none.shop.svc.cluster.local A", "NXDOMAIN"),
        ("*.shop.svc.cluster.local A", "NXDOMAIN"),
        ("db.shop.svc.cluster.local AAAA", "NOERROR"),
        ("web.shop.svc.cluster.local A", "NOERROR"),
    ] {
        let (found, flags) = header(&stage, words);
        assert_eq!(found, status, "{words}");
        let flags: Vec<&str> = flags.split_whitespace().collect();
        assert!(
            flags.contains(&"aa") && flags.contains(&"qr"),
            "{words} {flags:?}"
        );
    }
}

#[test]
fn dig_repeats_a_truncated_answer_over_tcp() {
    let stage = Stage::new();
    let addresses: Vec<String> = (1..=200).map(|last| format!("10.244.9.{last}")).collect();
    let all: Vec<_> = addresses.iter().map(|address| (&**address, None)).collect();
    stage.write(
        "many.yaml",
        &[crate::objects::headless("many"), endpoints("many", &all)],
    );
    let name = "many.shop.svc.cluster.local";
    let count = |answer: &crate::client::Answer| answer.data.is_empty();
    // Over UDP without EDNS the answer is truncated.
    stage.wait_for(
        &format!("{name}."),
        hickory_proto::rr::RecordType::TXT,
        |answer| count(answer) && answer.code == hickory_proto::op::ResponseCode::NoError,
    );
    let (status, flags) = header(&stage, &format!("{name} A +noedns +ignore"));
    assert!(
        status == "NOERROR" && flags.contains("tc"),
        "{status} {flags}"
    );
    assert_eq!(dig(&stage, &format!("{name} A +noedns")).len(), 200);
    assert_eq!(dig(&stage, &format!("{name} A +bufsize=1232")).len(), 200);
}
