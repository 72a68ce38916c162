//! Raw packets that no resolver sends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use testkit::flag::SetOnDrop;
use testkit::http::pipeline;

use crate::stage::{FLAGS, Stage, service};

/// Time in which no response arrives.
const SILENCE: Duration = Duration::from_millis(200);

fn query(name: &str) -> Vec<u8> {
    let mut message = Message::new(77, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message.to_vec().unwrap()
}

#[test]
fn responses_and_fragments_get_no_response() {
    let stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], FLAGS);
    let valid = query("web.shop.svc.cluster.local.");
    let mut response = valid.clone();
    response[2] |= 0x80;
    for packet in [&b""[..], b"x", &valid[..11], &response, &[0xFF; 600]] {
        assert_eq!(stage.exchange(packet, SILENCE), None, "{packet:?}");
    }
    assert_eq!(stage.ask(&valid).answers.len(), 1);
}

#[test]
fn malformed_requests_get_a_short_error() {
    let stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], FLAGS);
    let valid = query("web.shop.svc.cluster.local.");
    let patched = |at: usize, value| {
        let mut packet = valid.clone();
        packet[at] = value;
        packet
    };
    for (packet, code) in [
        (patched(2, 5 << 3), ResponseCode::NotImp),
        (patched(2, 4 << 3), ResponseCode::NotImp),
        (patched(5, 0), ResponseCode::FormErr),
        (patched(5, 2), ResponseCode::FormErr),
        (patched(7, 9), ResponseCode::FormErr),
        (patched(11, 255), ResponseCode::FormErr),
        (patched(12, 0xC0), ResponseCode::FormErr),
        (patched(12, 0x7F), ResponseCode::FormErr),
        (valid[..14].to_vec(), ResponseCode::FormErr),
    ] {
        let response = stage.ask(&packet);
        assert_eq!(response.metadata.response_code, code, "{packet:?}");
        assert_eq!(response.metadata.id, 77);
        assert!(response.to_vec().unwrap().len() <= packet.len());
    }
    assert_eq!(stage.ask(&valid).answers.len(), 1);
}

#[test]
fn random_packets_do_not_end_the_server() {
    let stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], FLAGS);
    let valid = query("web.shop.svc.cluster.local.");
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    stage.netns.run(|| {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..5000 {
            let mut packet = valid.clone();
            for _ in 0..=random() % 4 {
                let at = random() as usize % packet.len();
                packet[at] = random() as u8;
            }
            packet.truncate(random() as usize % (packet.len() + 1));
            socket.send_to(&packet, crate::stage::SERVER).unwrap();
        }
    });
    assert_eq!(stage.ask(&valid).answers.len(), 1);
    assert!(!stage.process.output().contains("panicked"));
}

/// Clients of the port that send many requests in one packet.
const GREEDY_CLIENTS: usize = 40;

/// The port of metrics and health.
const METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9153);

/// Time in which pages are requested.
const FLOOD: Duration = Duration::from_secs(3);

/// Ten times of what is promised, because this machine runs other tests meanwhile.
const SOON: Duration = Duration::from_secs(1);

#[test]
fn health_does_not_wait_for_pipelined_requests_of_metrics_on_its_port() {
    let stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], FLAGS);
    let is_over = AtomicBool::new(false);
    let mut slowest = Duration::ZERO;
    thread::scope(|scope| {
        let _over = SetOnDrop::new(&is_over);
        for _ in 0..GREEDY_CLIENTS {
            scope.spawn(|| stage.netns.run(|| pipeline(METRICS, "/metrics", &is_over)));
        }
        thread::sleep(SOON);
        let start = Instant::now();
        while start.elapsed() < FLOOD {
            for path in ["/health", "/ready"] {
                let asked = Instant::now();
                let page = stage.page(path).unwrap();
                assert!(page.ends_with("OK"), "{path}: {page}");
                slowest = slowest.max(asked.elapsed());
            }
            thread::sleep(SILENCE / 10);
        }
    });
    println!("the slowest answer took {slowest:?}");
    assert!(slowest < SOON, "{slowest:?}");
}
