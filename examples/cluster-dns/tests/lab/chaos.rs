//! Answers while the API server or the upstream is away, and while many Services appear.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use crate::objects::{numbered_address, service, shop};
use crate::stage::{EXAMPLE, SERVER, SOON, Stage};

/// Services that appear at once.
const SERVICES: usize = 10_000;

/// Threads that ask meanwhile.
const CLIENTS: usize = 3;

/// Starts an API server on the node, and the program with it.
pub(crate) fn with_api() -> (ApiServer, Stage) {
    let mut api = None;
    let stage = Stage::with(|lab, folder| {
        let server = lab.node.netns.run(ApiServer::start);
        server.apply_all(shop());
        folder.write("kubeconfig", &server.kubeconfig()).unwrap();
        api = Some(server);
        let kubeconfig = folder.path().join("kubeconfig").display().to_string();
        let listen = format!("{SERVER}:53");
        ["--kubeconfig", &kubeconfig, "--listen", &listen]
            .map(str::to_owned)
            .to_vec()
    });
    (api.unwrap(), stage)
}

#[test]
fn answers_continue_without_an_api_server_and_follow_it_when_it_returns() {
    let (api, stage) = with_api();
    // Until the first list is complete, absent names get SERVFAIL.
    stage.wait_for("none.shop.svc.cluster.local.", RecordType::A, |answer| {
        answer.code == ResponseCode::NXDomain
    });
    let mut client = stage.client();
    api.refuse_connections();
    api.cut_connections(apiserver::Disconnect::Reset);
    let end = Instant::now() + Duration::from_secs(3);
    let mut answers = 0;
    while Instant::now() < end {
        let answer = client
            .ask("web.shop.svc.cluster.local.", RecordType::A)
            .unwrap();
        assert_eq!(answer.data, ["10.96.0.20"]);
        let none = client
            .ask("none.shop.svc.cluster.local.", RecordType::A)
            .unwrap();
        assert_eq!(none.code, ResponseCode::NXDomain);
        answers += 1;
    }
    assert!(answers > 0);
    // A change of which the program learns only afterwards.
    api.apply(service("web", "10.96.0.21", None));
    api.accept_connections();
    let name = "web.shop.svc.cluster.local.";
    stage.wait_for(name, RecordType::A, |answer| answer.data == ["10.96.0.21"]);
}

#[test]
fn an_expired_answer_is_served_while_the_upstream_is_away() {
    let stage = Stage::new();
    let upstream = stage.upstream(1);
    let mut client = stage.client();
    let mut ask = |name: &str| client.ask(name, RecordType::A).unwrap();
    let first = ask("www.example.org.");
    assert_eq!(first.data, [EXAMPLE]);
    assert!(first.ttl.is_some_and(|ttl| ttl <= 5), "{first:?}");
    drop(upstream);
    // Answers are cached for at least 5 s.
    thread::sleep(Duration::from_millis(5500));
    let stale = ask("www.example.org.");
    assert_eq!(stale.data, [EXAMPLE]);
    assert!(
        stale.ttl.is_some_and(|ttl| (1..=30).contains(&ttl)),
        "{stale:?}"
    );
    // A name that was never asked has no stale answer.
    assert_eq!(ask("new.example.org.").code, ResponseCode::ServFail);
    // The zone does not need an upstream.
    assert_eq!(ask("web.shop.svc.cluster.local.").data, ["10.96.0.20"]);
    let _upstream = stage.upstream(60);
    stage.wait_for("new.example.org.", RecordType::A, |answer| {
        answer.data == [EXAMPLE]
    });
}

#[test]
fn no_answer_is_wrong_or_lost_while_10_000_services_appear() {
    let stage = Stage::new();
    let is_over = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (mut client, is_over) = (stage.client(), Arc::clone(&is_over));
            let asked = Arc::clone(&asked);
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    for (name, expected) in [
                        ("web.shop.svc.cluster.local.", &["10.96.0.20"][..]),
                        (
                            "db.shop.svc.cluster.local.",
                            &["10.244.1.11", "10.244.1.12"],
                        ),
                    ] {
                        let answer = client.ask(name, RecordType::A).unwrap();
                        assert_eq!(answer.data, expected);
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let many = (0..SERVICES).map(|number| {
        let address = numbered_address(number);
        service(&format!("s{number}"), &address, None)
    });
    let before = asked.load(Ordering::Relaxed);
    stage.write("many.yaml", &many.collect::<Vec<_>>());
    let last = format!("s{}.shop.svc.cluster.local.", SERVICES - 1);
    let address = numbered_address(SERVICES - 1);
    stage.wait_for(&last, RecordType::A, |answer| answer.data == [&*address]);
    assert!(
        asked.load(Ordering::Relaxed) > before,
        "the clients asked meanwhile"
    );
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    let mut client = stage.client();
    let deadline = Instant::now() + SOON;
    for number in 0..SERVICES {
        let name = format!("s{number}.shop.svc.cluster.local.");
        let answer = client.ask(&name, RecordType::A).unwrap();
        assert_eq!(answer.data, [numbered_address(number)], "{name}");
        assert!(Instant::now() < deadline, "{number} answers");
    }
}
