//! dnsmasq as the upstream.

use std::net::UdpSocket;
use std::time::Duration;

use cluster_dns::forward::Forwarder;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use testkit::netns::Netns;

use crate::external::dnsmasq;
use crate::scripted::{
    addresses, ask, code, eventually, forwarder, in_runtime, options, request, request_of,
};

const ADDRESS: &str = "127.0.0.21:53";

/// Asks dnsmasq directly over UDP.
fn ask_directly(request: &Message) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    socket.send_to(&request.to_vec().unwrap(), ADDRESS).unwrap();
    let mut buffer = vec![0; 4_096];
    let len = socket.recv(&mut buffer).unwrap();
    Message::from_vec(&buffer[..len]).unwrap()
}

async fn is_up(forwarder: &Forwarder, owner: &str) -> bool {
    forwarder.flush();
    code(&ask(forwarder, owner).await) == ResponseCode::NoError
}

#[test]
fn answers_equal_those_of_dnsmasq() {
    let netns = Netns::new().unwrap();
    let _server = dnsmasq(&netns, &[]);
    netns.run(|| {
        in_runtime(|| async {
            let forwarder = forwarder(&[ADDRESS]);
            eventually("dnsmasq answers", || is_up(&forwarder, "a.example.")).await;
            for (owner, record_type) in [
                ("a.example.", RecordType::A),
                ("A.Example.", RecordType::AAAA),
                ("alias.example.", RecordType::A),
                ("alias.example.", RecordType::CNAME),
                ("_http._tcp.example.", RecordType::SRV),
                ("example.", RecordType::MX),
                ("1.2.0.192.in-addr.arpa.", RecordType::PTR),
                ("a.example.", RecordType::TXT),
                ("missing.example.", RecordType::A),
            ] {
                let request = request_of(owner, record_type);
                let expected = ask_directly(&request);
                for _ in 0..2 {
                    let response = forwarder.resolve(&request).await;
                    let case = format!("{owner} {record_type}");
                    assert_eq!(code(&response), code(&expected), "{case}");
                    assert_eq!(response.queries, expected.queries, "{case}");
                    assert_eq!(response.answers, expected.answers, "{case}");
                    let additionals = response.additionals.len();
                    assert_eq!(additionals, expected.additionals.len(), "{case}");
                }
            }
        });
    });
}

#[test]
fn a_large_answer_of_dnsmasq_arrives_over_tcp() {
    let netns = Netns::new().unwrap();
    let _server = dnsmasq(&netns, &[]);
    netns.run(|| {
        in_runtime(|| async {
            let forwarder = forwarder(&[ADDRESS]);
            eventually("dnsmasq answers", || is_up(&forwarder, "a.example.")).await;
            let request = request_of("large.example.", RecordType::TXT);
            let response = forwarder.resolve(&request).await;
            assert_eq!(response.answers.len(), 1);
            assert!(response.to_vec().unwrap().len() > 3_000);
            assert_eq!(
                forwarder.upstreams()[0]
                    .counters()
                    .connection_misses
                    .tcp
                    .get(),
                1
            );
        });
    });
}

#[test]
fn answers_survive_the_end_of_dnsmasq_and_follow_its_successor() {
    let netns = Netns::new().unwrap();
    let short = ["--host-record=b.example,192.0.2.2,1".to_owned()];
    let server = dnsmasq(&netns, &short);
    let forwarder = netns.run(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let forwarder = runtime.block_on(async {
            let forwarder = Forwarder::new(options(&[ADDRESS])).unwrap();
            eventually("dnsmasq answers", || is_up(&forwarder, "b.example.")).await;
            forwarder
        });
        (runtime, forwarder)
    });
    let (runtime, forwarder) = forwarder;
    drop(server);
    std::thread::sleep(Duration::from_millis(1_200));
    runtime.block_on(async {
        let response = forwarder.resolve(&request("b.example.")).await;
        assert_eq!(addresses(&response), [2]);
        assert_eq!(response.answers[0].ttl, 30);
    });
    let changed = ["--host-record=b.example,192.0.2.3,60".to_owned()];
    let _server = dnsmasq(&netns, &changed);
    runtime.block_on(async {
        let is_new = || async { addresses(&ask(&forwarder, "b.example.").await) == [3] };
        eventually("the successor answers", is_new).await;
    });
}
