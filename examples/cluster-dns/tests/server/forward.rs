//! Names outside of the zone, answered by upstreams of the process.

use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use crate::answers::{LOOKUPS, first_addresses};
use crate::external::dnsmasq;
use crate::scripted::{FIRST, SECOND, address, error, no_name, record, send};
use crate::stage::Stage;
use crate::upstream::{Server, forwarding, metric, with_objects};

/// Flags for the first upstream.
const FORWARD: &str = "--forward 127.0.0.11:53";

/// Returns TTL and data of the only answer.
fn answer(stage: &Stage, words: &str) -> (u32, String) {
    let text = stage.dig(&format!("+noall +answer {words}"));
    let fields: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(fields.len(), 5, "{words}: {text}");
    (fields[1].parse().unwrap(), fields[4].to_owned())
}

#[test]
fn a_cached_answer_has_less_time_and_needs_no_second_upstream_query() {
    let stage = forwarding(FORWARD, "");
    let server = Server::start(&stage, FIRST, |seen| match &*seen.name() {
        "missing.example." => send(&no_name(seen, 60)),
        _ => send(&address(seen, 1, 60)),
    });
    let hits = |label| metric(&stage, "coredns_cache_hits_total", label);
    let misses = || metric(&stage, "coredns_cache_misses_total", "");
    assert_eq!(
        answer(&stage, "a.example"),
        (60, "192.0.2.1".to_owned()),
        "{}",
        stage.process.output()
    );
    assert_eq!((hits("success"), hits("denial"), misses()), (0.0, 0.0, 1.0));
    std::thread::sleep(Duration::from_millis(1100));
    let (ttl, data) = answer(&stage, "A.Example");
    assert!(ttl < 60 && data == "192.0.2.1", "{ttl} {data}");
    let over_tcp = answer(&stage, "+tcp a.example");
    assert!(over_tcp.0 < 60 && over_tcp.1 == data, "{over_tcp:?}");
    assert_eq!((hits("success"), hits("denial"), misses()), (2.0, 0.0, 1.0));
    for _ in 0..2 {
        let text = stage.dig("missing.example");
        assert!(text.contains("status: NXDOMAIN"), "{text}");
        assert!(text.contains("flags: qr rd ra;"), "{text}");
    }
    assert_eq!((hits("success"), hits("denial"), misses()), (2.0, 1.0, 2.0));
    let entries = |label| metric(&stage, "coredns_cache_entries", label);
    assert_eq!((entries("success"), entries("denial")), (1.0, 1.0));
    assert_eq!(metric(&stage, "coredns_cache_requests_total", ""), 5.0);
    assert_eq!(server.names(), ["a.example.", "missing.example."]);
}

#[test]
fn each_address_of_a_cached_answer_is_first_equally_often() {
    let stage = forwarding(FORWARD, "");
    let server = Server::start(&stage, FIRST, |seen| {
        let record_type = seen.message.queries[0].query_type;
        if record_type != RecordType::A {
            return send(&no_name(seen, 60));
        }
        let mut both = address(seen, 1, 60);
        both.add_answer(record(&seen.name(), 2, 60));
        send(&both)
    });
    let types = [RecordType::A, RecordType::AAAA];
    let firsts = first_addresses(&stage, "a.example.", &types);
    assert_eq!(firsts.len(), 2, "{firsts:?}");
    let expected = LOOKUPS / 2;
    let is_fair = |count: &usize| count.abs_diff(expected) <= expected / 3;
    assert!(firsts.values().all(is_fair), "{firsts:?}");
    assert_eq!(server.names().len(), 2);
}

#[test]
fn the_zone_never_asks_the_upstreams() {
    let stage = forwarding(FORWARD, "");
    let server = Server::start(&stage, FIRST, |seen| send(&address(seen, 1, 60)));
    for (question, status) in [
        ("web.shop.svc.cluster.local", "NOERROR"),
        ("AAAA web.shop.svc.cluster.local", "NOERROR"),
        ("nothing.shop.svc.cluster.local", "NXDOMAIN"),
        ("-x 10.96.0.10", "NOERROR"),
    ] {
        let text = stage.dig(question);
        assert!(
            text.contains(&format!("status: {status}")),
            "{question}: {text}"
        );
    }
    assert_eq!(answer(&stage, "a.example").1, "192.0.2.1");
    assert_eq!(server.names(), ["a.example."]);
}

#[test]
fn a_stub_domain_has_its_own_upstream() {
    let stage = forwarding(
        &format!("{FORWARD} --stub corp.example=127.0.0.12"),
        "stubs: [{domain: nested.corp.example, to: ['127.0.0.11:53']}]\n",
    );
    let first = Server::start(&stage, FIRST, |seen| send(&address(seen, 1, 60)));
    let second = Server::start(&stage, SECOND, |seen| send(&address(seen, 2, 60)));
    for (name, data) in [
        ("corp.example", "192.0.2.2"),
        ("a.Corp.example", "192.0.2.2"),
        ("acorp.example", "192.0.2.1"),
        ("a.nested.corp.example", "192.0.2.1"),
        ("example", "192.0.2.1"),
    ] {
        assert_eq!(answer(&stage, name).1, data, "{name}");
    }
    assert_eq!((first.names().len(), second.names().len()), (3, 2));
}

#[test]
fn stub_domains_are_answered_without_other_upstreams() {
    let alias = |name: &str, target: &str| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec: {{type: ExternalName, externalName: {target}}}\n"
        )
    };
    let objects = alias("inside", "a.corp.example") + &alias("outside", "www.example");
    let flags = "--forward none --stub corp.example=127.0.0.12";
    let stage = with_objects(&objects, flags, "");
    let server = Server::start(&stage, SECOND, |seen| send(&address(seen, 2, 60)));
    for flags in ["", "+tcp"] {
        assert_eq!(
            answer(&stage, &format!("{flags} a.Corp.example")).1,
            "192.0.2.2"
        );
        let text = stage.dig(&format!("{flags} www.example"));
        assert!(text.contains("status: REFUSED"), "{text}");
        let short =
            |name: &str| stage.dig(&format!("{flags} +short {name}.shop.svc.cluster.local"));
        assert_eq!(short("inside"), "a.corp.example.\n192.0.2.2\n");
        assert_eq!(short("outside"), "www.example.\n");
    }
    assert_eq!(server.names(), ["a.corp.example."]);
}

#[test]
fn an_unusable_address_of_resolv_conf_is_a_warning() {
    let files = testkit::scoped::Directory::new().unwrap();
    let text = "nameserver fe80::1%eth0\nnameserver 127.0.0.11\n";
    files.write("resolv.conf", text).unwrap();
    let path = files.path().join("resolv.conf");
    let stage = forwarding(&format!("--forward {}", path.display()), "");
    let _server = Server::start(&stage, FIRST, |seen| send(&address(seen, 1, 60)));
    assert_eq!(answer(&stage, "a.example").1, "192.0.2.1");
    let output = stage.process.output();
    let mut lines = output.lines().filter(|line| line.contains("fe80::1%eth0"));
    let line = lines.next().unwrap();
    assert!(
        line.contains("WARN") && line.contains("name server skipped"),
        "{line}"
    );
    assert_eq!(lines.next(), None, "{output}");
}

#[test]
fn an_external_name_is_resolved_by_the_upstream() {
    let external = "apiVersion: v1\nkind: Service\nmetadata: {name: docs, namespace: shop}\n\
                    spec: {type: ExternalName, externalName: www.example.org}\n";
    let stage = with_objects(external, FORWARD, "");
    let server = Server::start(&stage, FIRST, |seen| send(&address(seen, 9, 60)));
    for flags in ["", "+tcp", "+noedns"] {
        let text = stage.dig(&format!("{flags} +short docs.shop.svc.cluster.local"));
        assert_eq!(text, "www.example.org.\n192.0.2.9\n", "{flags}");
    }
    assert_eq!(server.names(), ["www.example.org."]);
    let alias = stage.dig("+short CNAME docs.shop.svc.cluster.local");
    assert_eq!(alias, "www.example.org.\n");
    assert_eq!(server.names().len(), 1);
}

#[test]
fn without_upstream_the_answer_is_servfail_and_the_zone_still_answers() {
    let stage = forwarding(FORWARD, "forward: {tryTimeout: 300ms, attempts: 1}\n");
    let begin = Instant::now();
    let text = stage.dig("a.example");
    assert!(text.contains("status: SERVFAIL"), "{text}");
    assert!(begin.elapsed() < Duration::from_secs(8), "{begin:?}");
    assert_eq!(
        stage.dig("+short web.shop.svc.cluster.local"),
        "10.96.0.10\n"
    );
    let server = Server::start(&stage, FIRST, |seen| send(&address(seen, 1, 60)));
    let recovers = || stage.dig("+short a.example") == "192.0.2.1\n";
    stage.until("the recovery", recovers);
    server.stop();
}

#[test]
fn a_failed_upstream_is_replaced_by_the_next() {
    let stage = forwarding(
        "--forward 127.0.0.11,127.0.0.12",
        "forward: {policy: sequential, tryTimeout: 300ms}\n",
    );
    let first = Server::start(&stage, FIRST, |seen| {
        send(&error(seen, ResponseCode::ServFail))
    });
    let _second = Server::start(&stage, SECOND, |seen| send(&address(seen, 2, 60)));
    first.stop();
    assert_eq!(answer(&stage, "a.example").1, "192.0.2.2");
}

#[test]
fn stale_answers_bridge_an_outage_within_their_bound() {
    let stage = forwarding(
        FORWARD,
        "forward: {tryTimeout: 300ms, attempts: 1}\ncache: {stale: 4s}\n",
    );
    let server = Server::start(&stage, FIRST, |seen| send(&address(seen, 1, 1)));
    assert_eq!(answer(&stage, "a.example").1, "192.0.2.1");
    server.stop();
    let stale = || metric(&stage, "coredns_cache_served_stale_total", "");
    stage.until("a stale answer", || {
        let text = stage.dig("+short a.example");
        assert_eq!(text, "192.0.2.1\n");
        stale() > 0.0
    });
    stage.until("the bound", || {
        stage.dig("a.example").contains("status: SERVFAIL")
    });
}

#[test]
fn answers_of_dnsmasq_pass_through_the_process() {
    let stage = forwarding("--forward 127.0.0.21", "");
    let _server = dnsmasq(&stage.netns, &[]);
    stage.until("dnsmasq answers", || {
        !stage.dig("+short @127.0.0.21 a.example").is_empty()
    });
    for question in [
        "a.example",
        "AAAA a.example",
        "alias.example",
        "SRV _http._tcp.example",
        "MX example",
        "-x 192.0.2.1",
        "TXT large.example",
    ] {
        let words = format!("+noall +answer +nottl {question}");
        let expected = stage.dig(&format!("@127.0.0.21 {words}"));
        assert!(!expected.is_empty(), "{question}");
        for _ in 0..2 {
            assert_eq!(stage.dig(&words), expected, "{question}");
        }
    }
}
