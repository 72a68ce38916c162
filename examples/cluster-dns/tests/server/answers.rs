//! Answers to `dig`.

use std::collections::BTreeMap;
use std::path::Path;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};

use crate::scripted::{FIRST, error, send};
use crate::stage::{FLAGS, Stage, headless, outcome, service};
use crate::upstream::Server;

#[test]
fn dig_gets_addresses_ports_and_errors() {
    let stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], FLAGS);
    let name = "web.shop.svc.cluster.local";
    assert_eq!(stage.dig(&format!("+short {name}")), "10.96.0.10\n");
    assert_eq!(stage.dig(&format!("+short @::1 {name}")), "10.96.0.10\n");
    assert_eq!(stage.dig(&format!("+short +tcp {name}")), "10.96.0.10\n");
    let srv = stage.dig(&format!("+short SRV _http._tcp.{name}"));
    assert!(srv.ends_with("80 web.shop.svc.cluster.local.\n"), "{srv}");
    let mixed = stage.dig("+norecurse WEB.Shop.svc.cluster.LOCAL");
    assert!(
        mixed.contains("WEB.Shop.svc.cluster.LOCAL. 5\tIN\tA\t10.96.0.10"),
        "{mixed}"
    );
    assert!(mixed.contains("flags: qr aa;"), "{mixed}");
    for (question, status, answers) in [
        (format!("AAAA {name}"), "NOERROR", 0),
        ("nothing.shop.svc.cluster.local".to_owned(), "NXDOMAIN", 0),
        ("www.example.com".to_owned(), "REFUSED", 0),
        ("CH TXT version.bind".to_owned(), "REFUSED", 0),
        ("AXFR cluster.local +notcp +ignore".to_owned(), "REFUSED", 0),
    ] {
        let text = stage.dig(&question);
        if question.starts_with("AXFR") {
            assert!(text.contains("failed") || text.contains(status), "{text}");
            continue;
        }
        assert!(
            text.contains(&format!("status: {status}")),
            "{question}: {text}"
        );
        assert!(
            text.contains(&format!("ANSWER: {answers},")),
            "{question}: {text}"
        );
    }
}

#[test]
fn edns_is_answered_with_our_buffer_size_and_the_bit_do() {
    let stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], FLAGS);
    let name = "web.shop.svc.cluster.local";
    let text = stage.dig(&format!("+dnssec +bufsize=4096 {name}"));
    assert!(
        text.contains("EDNS: version: 0, flags: do; udp: 1232"),
        "{text}"
    );
    let text = stage.dig(&format!("+noedns {name}"));
    assert!(
        !text.contains("EDNS") && text.contains("10.96.0.10"),
        "{text}"
    );
    let text = stage.dig(&format!("+edns=1 +noednsnegotiation {name}"));
    assert!(text.contains("status: BADVERS"), "{text}");
    assert!(text.contains("EDNS: version: 0"), "{text}");
}

#[test]
fn a_truncated_answer_is_repeated_over_tcp() {
    let stage = Stage::start(&[("many.yaml", &headless("many", 120))], FLAGS);
    let name = "many.shop.svc.cluster.local";
    let text = stage.dig(&format!("+ignore +noedns {name}"));
    assert!(text.contains("flags: qr aa tc rd"), "{text}");
    assert!(!text.contains("ANSWER: 120,"), "{text}");
    let text = stage.dig(&format!("+noedns {name}"));
    assert!(
        text.contains("ANSWER: 120,") && text.contains("(TCP)"),
        "{text}"
    );
}

/// Returns how often each address is the first of an answer to `A`. A look-up asks
/// questions of all `types`.
pub(crate) fn first_addresses(
    stage: &Stage,
    name: &str,
    types: &[RecordType],
) -> BTreeMap<String, usize> {
    let mut firsts = BTreeMap::new();
    for _ in 0..LOOKUPS {
        for &record_type in types {
            let mut query = Message::new(7, MessageType::Query, OpCode::Query);
            let name = Name::from_ascii(name).unwrap();
            query.add_query(Query::query(name, record_type));
            let response = stage.ask(&query.to_vec().unwrap());
            if record_type == RecordType::A {
                let first = response.answers[0].data.to_string();
                *firsts.entry(first).or_default() += 1;
            }
        }
    }
    firsts
}

/// Look-ups that a test counts.
pub(crate) const LOOKUPS: usize = 200;

#[test]
fn each_endpoint_is_first_equally_often_for_a_resolver_that_asks_two_types() {
    use RecordType::{A, AAAA};
    let manifests = [2, 4].map(|count| headless(&format!("of-{count}"), count));
    let manifests = [("two.yaml", &*manifests[0]), ("four.yaml", &*manifests[1])];
    let stage = Stage::start(&manifests, FLAGS);
    for endpoints in [2, 4] {
        let name = format!("of-{endpoints}.shop.svc.cluster.local.");
        // The search path of a pod doubles the queries.
        for types in [&[A, AAAA][..], &[A, AAAA, AAAA, AAAA]] {
            let firsts = first_addresses(&stage, &name, types);
            assert_eq!(firsts.len(), endpoints, "{types:?}: {firsts:?}");
            let expected = LOOKUPS / endpoints;
            let is_fair = |count: &usize| count.abs_diff(expected) <= expected / 3;
            assert!(firsts.values().all(is_fair), "{types:?}: {firsts:?}");
        }
    }
}

#[test]
fn an_external_name_with_left_over_slices_is_only_an_alias() {
    let manifest = headless("docs", 2).replace(
        "clusterIP: None",
        "type: ExternalName, externalName: www.example.org",
    );
    let stage = Stage::start(&[("docs.yaml", &manifest)], FLAGS);
    let name = "docs.shop.svc.cluster.local";
    for question in [
        name.to_owned(),
        format!("AAAA {name}"),
        format!("SRV {name}"),
    ] {
        let text = stage.dig(&format!("+short {question}"));
        assert_eq!(text, "www.example.org.\n", "{question}");
    }
    for question in [
        format!("10-0-0-1.{name}"),
        format!("_tcp.{name}"),
        format!("SRV _http._tcp.{name}"),
    ] {
        let text = stage.dig(&question);
        assert!(text.contains("status: NXDOMAIN"), "{question}: {text}");
    }
    let text = stage.dig("-x 10.0.0.1");
    assert!(text.contains("status: REFUSED"), "no name of ours: {text}");
}

#[test]
fn several_zones_have_the_names_of_the_cluster_and_none_leaves_it() {
    let flags = format!("--zone cluster.local,corp.example {FLAGS}");
    let flags = flags.replace("--forward none", "--forward 127.0.0.11");
    let stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], &flags);
    let server = Server::start(&stage, FIRST, |seen| {
        send(&error(seen, ResponseCode::Refused))
    });
    for zone in ["cluster.local", "corp.example", "CORP.example"] {
        let text = stage.dig(&format!("+short web.shop.svc.{zone}"));
        assert_eq!(text, "10.96.0.10\n", "{zone}");
        let text = stage.dig(&format!("nothing.shop.svc.{zone}"));
        assert!(text.contains("status: NXDOMAIN"), "{text}");
    }
    let pointer = stage.dig("+short -x 10.96.0.10");
    assert_eq!(pointer, "web.shop.svc.cluster.local.\n");
    assert_eq!(server.names(), [""; 0], "no name was forwarded");
    let (code, text) = outcome("--manifests /dev/null --zone cluster.local;corp.example");
    assert_eq!(code, Some(2), "{text}");
    let words = "zone: \"cluster.local;corp.example\" is no domain; expected DOMAIN[,DOMAIN]";
    assert!(text.contains(words), "{text}");
}

#[test]
fn the_deployment_answers_as_the_coredns_of_kubeadm() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/deployment.yaml");
    let manifest = std::fs::read_to_string(path).unwrap();
    let flags = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- --"));
    // The tests have a lame duck of their own.
    let flags = flags.filter(|flag| !flag.starts_with("lame-duck"));
    let flags: String = flags.map(|flag| format!("--{flag} ")).collect();
    let manifests = [("web.yaml", &*service("web", "10.96.0.10"))];
    let stage = Stage::start(&manifests, &(flags + FLAGS));
    for (name, address) in [
        ("web.shop.svc.cluster.local", "10.96.0.10"),
        ("10-244-1-7.shop.pod.cluster.local", "10.244.1.7"),
    ] {
        let text = stage.dig(&format!("+noall +answer {name}"));
        let words: Vec<_> = text.split_whitespace().collect();
        assert_eq!(words, [&*format!("{name}."), "30", "IN", "A", address]);
    }
}
