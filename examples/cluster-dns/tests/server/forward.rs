//! Names outside of the zone, answered by upstreams of the process.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, NULL};
use hickory_proto::rr::{RData, Record, RecordType};
use rustix::process::Signal;
use testkit::scoped::Process;

use crate::answers::{LOOKUPS, first_addresses};
use crate::external::dnsmasq;
use crate::scripted::{
    Action, FIRST, SECOND, address, empty, error, name, no_name, record, request, send,
};
use crate::stage::{SERVER, Stage, command};
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
        (30, "192.0.2.1".to_owned()),
        "{}",
        stage.process.output()
    );
    assert_eq!((hits("success"), hits("denial"), misses()), (0.0, 0.0, 1.0));
    std::thread::sleep(Duration::from_millis(1100));
    let (ttl, data) = answer(&stage, "A.Example");
    assert!(ttl < 30 && data == "192.0.2.1", "{ttl} {data}");
    let over_tcp = answer(&stage, "+tcp a.example");
    assert!(over_tcp.0 < 30 && over_tcp.1 == data, "{over_tcp:?}");
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

/// musl before 1.2.4 does not repeat a question over TCP, and uses what is there.
#[test]
fn a_forwarded_answer_over_the_limit_has_its_aliases_and_the_records_that_fit() {
    let stage = forwarding(FORWARD, "");
    let server = Server::start(&stage, FIRST, |seen| {
        let mut message = empty(seen);
        let target = "a-long-name-of-a-load-balancer.eu-central-1.elb.example.";
        // The alias is last: the order is ours.
        message.answers = (0..60).map(|last| record(target, last, 60)).collect();
        let alias = RData::CNAME(CNAME(name(target)));
        message.add_answer(Record::from_rdata(name(&seen.name()), 60, alias));
        message.metadata.truncation = !seen.is_tcp;
        if !seen.is_tcp {
            message.answers.clear();
        }
        send(&message)
    });
    // The first answer comes from the upstream, the second one from the cache.
    for _ in 0..2 {
        let text = stage.dig("+ignore +noedns www.example");
        assert!(text.contains("flags: qr tc rd ra;"), "{text}");
        let is_record = |line: &&str| !line.starts_with(';') && line.contains("192.0.2.");
        assert!(text.lines().filter(is_record).count() > 20, "{text}");
        let first = text.lines().find(|line| line.starts_with("www.example."));
        assert!(first.is_some_and(|line| line.contains("CNAME")), "{text}");
        let more = stage.dig("+ignore +bufsize=1232 www.example");
        assert!(
            more.contains("flags: qr rd ra; QUERY: 1, ANSWER: 61,"),
            "{more}"
        );
    }
    assert_eq!(
        server.names().len(),
        2,
        "over UDP and over TCP, then cached"
    );
}

#[test]
fn a_dname_record_reaches_the_client_with_the_alias_that_it_makes() {
    let stage = forwarding(FORWARD, "");
    let _server = Server::start(&stage, FIRST, |seen| {
        let mut message = empty(seen);
        let rdata = NULL::with(b"\x03new\x07example\0".to_vec());
        let code = RecordType::DNAME;
        let dname = RData::Unknown { code, rdata };
        message.add_answer(Record::from_rdata(name("old.example."), 60, dname));
        let alias = RData::CNAME(CNAME(name("www.new.example.")));
        message.add_answer(Record::from_rdata(name(&seen.name()), 60, alias));
        message.add_answer(record("www.new.example.", 1, 60));
        send(&message)
    });
    for _ in 0..2 {
        let text = stage.dig("+noall +answer www.old.example");
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let lines: Vec<_> = lines
            .iter()
            .map(|words: &Vec<_>| [words[0], words[3], words[4]])
            .collect();
        assert_eq!(
            lines,
            [
                ["old.example.", "DNAME", "new.example."],
                ["www.old.example.", "CNAME", "www.new.example."],
                ["www.new.example.", "A", "192.0.2.1"],
            ]
        );
    }
}

#[test]
fn answers_of_the_upstreams_live_30_seconds_as_in_the_configuration_of_kubeadm() {
    let stage = forwarding(FORWARD, "");
    let _server = Server::start(&stage, FIRST, |seen| match &*seen.name() {
        "missing.example." => send(&no_name(seen, 1_800)),
        _ => send(&address(seen, 1, 3_600)),
    });
    assert_eq!(answer(&stage, "a.example").0, 30);
    let text = stage.dig("+noall +authority missing.example");
    assert_eq!(text.split_whitespace().nth(1), Some("30"), "{text}");
    let config = "cache: {maxSuccessTtl: 1h, maxDenialTtl: 30m}\n";
    let stage = forwarding(FORWARD, config);
    let _server = Server::start(&stage, FIRST, |seen| match &*seen.name() {
        "missing.example." => send(&no_name(seen, 1_800)),
        _ => send(&address(seen, 1, 3_600)),
    });
    assert_eq!(answer(&stage, "a.example").0, 3_600);
    let text = stage.dig("+noall +authority missing.example");
    assert_eq!(text.split_whitespace().nth(1), Some("1800"), "{text}");
}

#[test]
fn sigusr2_empties_the_cache() {
    let stage = forwarding(FORWARD, "");
    let changed = Arc::<AtomicBool>::default();
    let now = Arc::clone(&changed);
    let server = Server::start(&stage, FIRST, move |seen| {
        match now.load(Ordering::SeqCst) {
            false => send(&no_name(seen, 60)),
            true => send(&address(seen, 7, 60)),
        }
    });
    assert!(stage.dig("a.example").contains("status: NXDOMAIN"));
    changed.store(true, Ordering::SeqCst);
    assert!(
        stage.dig("a.example").contains("status: NXDOMAIN"),
        "cached"
    );
    stage.process.signal(Signal::USR2).unwrap();
    stage.until("the flush", || {
        stage
            .process
            .output()
            .contains("the cache of the upstreams' answers is empty")
    });
    assert_eq!(answer(&stage, "a.example").1, "192.0.2.7");
    assert_eq!(server.names().len(), 2);
}

#[test]
fn a_forwarding_loop_over_two_servers_is_named() {
    let stage = forwarding(FORWARD, "");
    let manifests = stage.files.path().display();
    let flags = format!(
        "--manifests {manifests} --listen 127.0.0.11:53 --forward 127.0.0.1 --metrics          127.0.0.1:9154 --lame-duck 0s"
    );
    let other = Process::start(&stage.netns, &mut command(&flags, &[])).unwrap();
    let named = "forwarding loop: name server 127.0.0.11:53 sends the queries of this server back";
    stage.until("the loop is named", || {
        stage.process.output().contains(named)
    });
    let of_other = "forwarding loop: name server 127.0.0.1:53 sends";
    stage.until("the other names it", || other.output().contains(of_other));
    assert_eq!(metric(&stage, "cluster_dns_forward_loops", ""), 1.0);
    assert_eq!(
        stage.dig("+short web.shop.svc.cluster.local"),
        "10.96.0.10\n"
    );
    assert_eq!(stage.process.output().matches(named).count(), 1);
}

/// Sends a query from an address, and returns the response code, or `None` after 6 s.
fn code_for(source: &str, name: &str) -> Option<ResponseCode> {
    let socket = UdpSocket::bind(source).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(6)))
        .unwrap();
    socket.send_to(&query_for(name), SERVER).unwrap();
    let mut buffer = [0; 512];
    let size = socket.recv(&mut buffer).ok()?;
    Some(
        Message::from_vec(&buffer[..size])
            .unwrap()
            .metadata
            .response_code,
    )
}

fn query_for(name: &str) -> Vec<u8> {
    request(name).to_vec().unwrap()
}

/// The flood takes 1,000 places within a second, and asks 4,500 names in 3 s. 5,000 names a
/// second are more than a build without optimization answers beside other tests.
#[test]
fn a_flood_below_a_silent_stub_domain_costs_other_names_nothing() {
    const NAMES: u32 = 4_500;
    const PAUSE: Duration = Duration::from_micros(666);
    let stage = forwarding(&format!("{FORWARD} --stub dead.example=127.0.0.12"), "");
    let _healthy = Server::start(&stage, FIRST, |seen| send(&address(seen, 1, 60)));
    let _silent = Server::start(&stage, SECOND, |_| Vec::new());
    let codes = stage.netns.run(|| {
        // Threads stay in the namespace in which they start.
        let flood = std::thread::spawn(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let start = Instant::now();
            for at in 0..NAMES {
                std::thread::sleep((PAUSE * at).saturating_sub(start.elapsed()));
                let name = format!("n{at}.dead.example.");
                socket.send_to(&query_for(&name), SERVER).unwrap();
            }
        });
        std::thread::sleep(Duration::from_secs(1));
        let mut codes = Vec::new();
        while !flood.is_finished() {
            codes.push(code_for(
                "127.0.0.1:0",
                &format!("n{}.example.", codes.len()),
            ));
        }
        flood.join().unwrap();
        codes
    });
    let lost = codes
        .iter()
        .filter(|code| **code != Some(ResponseCode::NoError));
    let (lost, all) = (lost.count(), codes.len());
    assert!(all >= 10, "{all} questions");
    assert!(lost * 100 < all, "{lost} of {all} lost");
}

#[test]
fn a_client_that_floods_slow_upstreams_leaves_other_clients_their_share() {
    let stage = forwarding(FORWARD, "forward: {maxConcurrent: 20}\n");
    let _slow = Server::start(&stage, FIRST, |seen| {
        let reply = address(seen, 1, 60).to_vec().unwrap();
        vec![Action::Send(Duration::from_secs(1), reply)]
    });
    stage.netns.run(|| {
        let flood = UdpSocket::bind("127.0.0.2:0").unwrap();
        for at in 0..200 {
            let name = format!("n{at}.example.");
            flood.send_to(&query_for(&name), SERVER).unwrap();
        }
        let others = (0..5).map(|at| {
            let query = move || code_for("127.0.0.3:0", &format!("other{at}.example."));
            std::thread::spawn(query)
        });
        let others: Vec<_> = others.collect();
        for other in others {
            assert_eq!(other.join().unwrap(), Some(ResponseCode::NoError));
        }
    });
}
