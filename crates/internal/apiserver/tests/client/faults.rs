//! Single faults, and their effect on a watcher.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use apiserver::{ApiServer, CutAfter, Disconnect, ErrorResponse, Layer, Order};
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Error, ResourceExt};
use serde_json::json;
use testkit::flag::SetOnDrop;
use testkit::netns::Netns;
use tokio::time::timeout;

use crate::support::{Mirror, Ports, TIMEOUT, client, eventually, server_ports, service};

const BRIEF: Duration = Duration::from_millis(300);
const DISCONNECTS: [Disconnect; 2] = [Disconnect::Close, Disconnect::Reset];

/// Starts a server with 20 Services and a watcher that has received them.
async fn pair() -> (ApiServer, Mirror) {
    let server = ApiServer::start();
    server.apply_all((0..20).map(|index| service(&format!("s{index}"), 80)));
    let mirror = Mirror::new(&server).await;
    mirror.catch_up(&server).await;
    watched(&server).await;
    (server, mirror)
}

async fn watched(server: &ApiServer) {
    eventually("a watch", async || server.watchers("services") == 1).await;
}

async fn services(server: &ApiServer) -> Api<Service> {
    Api::all(client(&server.kubeconfig()).await)
}

#[tokio::test]
async fn a_watch_resumes_without_a_list_after_its_connection_is_closed() {
    for disconnect in DISCONNECTS {
        let (server, mirror) = pair().await;
        assert!(server.cut_connections(disconnect) > 0);
        server.apply(service("s0", 81));
        server.delete("Service", "default", "s1");
        mirror.catch_up(&server).await;
        assert_eq!(mirror.lists(), 1, "{disconnect:?}");
        assert_eq!(server.count("watch", "services"), 2);
        let errors = mirror.errors();
        let reset = errors.iter().any(|error| error.contains("ConnectionReset"));
        assert_eq!(reset, disconnect == Disconnect::Reset, "{errors:?}");
    }
}

#[tokio::test]
async fn a_list_truncated_at_any_byte_is_repeated() {
    let server = ApiServer::start();
    server.apply_all((0..6).map(|index| service(&format!("s{index}"), 80)));
    for layer in [Layer::Http, Layer::Tcp] {
        for bytes in (0..2500).step_by(97) {
            let disconnect = DISCONNECTS[bytes % 2];
            let cut = CutAfter {
                bytes,
                layer,
                disconnect,
            };
            let lists = server.count("list", "services");
            server.faults(|faults| faults.cut_after = Some(cut));
            let mirror = Mirror::new(&server).await;
            mirror.catch_up(&server).await;
            assert!(!mirror.errors().is_empty(), "{cut:?}");
            assert!(server.count("list", "services") >= lists + 2, "{cut:?}");
            // The next cut must not apply to this watch.
            watched(&server).await;
            drop(mirror);
            eventually("no watch", async || server.watchers("services") == 0).await;
        }
    }
}

#[tokio::test]
async fn a_watch_truncated_at_any_byte_resumes() {
    let (server, mirror) = pair().await;
    for layer in [Layer::Http, Layer::Tcp] {
        for bytes in (300..2500).step_by(111) {
            let cut = CutAfter {
                bytes,
                layer,
                disconnect: DISCONNECTS[bytes % 2],
            };
            let watches = server.count("watch", "services");
            server.faults(|faults| faults.cut_after = Some(cut));
            server.cut_connections(Disconnect::Close);
            for name in ["s0", "s1", "s2", "s3", "s4", "s5"] {
                server.apply(service(name, u16::try_from(bytes).unwrap()));
            }
            mirror.catch_up(&server).await;
            assert!(server.count("watch", "services") >= watches + 2, "{cut:?}");
        }
    }
    assert_eq!((mirror.lists(), mirror.went_back()), (1, vec![]));
}

#[tokio::test]
async fn stalled_connections_resume() {
    let (server, mirror) = pair().await;
    let services = services(&server).await;
    services.list(&ListParams::default()).await.unwrap();
    server.hang_connections(true);
    let before = mirror.ports();
    server.apply(service("s0", 81));
    assert!(
        timeout(BRIEF, services.list(&ListParams::default()))
            .await
            .is_err()
    );
    assert!(TcpStream::connect(server.address()).is_ok(), "it is taken");
    assert_eq!(mirror.ports(), before);
    server.hang_connections(false);
    mirror.catch_up(&server).await;
    assert_eq!((mirror.lists(), mirror.errors()), (1, vec![]));
}

#[tokio::test]
async fn silent_watches_send_nothing_while_lists_are_answered() {
    let (server, mirror) = pair().await;
    let before = mirror.ports();
    server.faults(|faults| faults.silent_watches = true);
    server.apply(service("s0", 81));
    let listed = services(&server).await.list(&ListParams::default()).await;
    assert_eq!(listed.unwrap().items.len(), before.len());
    assert_eq!(mirror.ports(), before);
    server.faults(|faults| faults.silent_watches = false);
    mirror.catch_up(&server).await;
    assert_eq!(server.count("watch", "services"), 1);
}

#[tokio::test]
async fn connections_are_refused_until_they_are_accepted_again() {
    let (server, mirror) = pair().await;
    server.refuse_connections();
    server.cut_connections(Disconnect::Close);
    let refused = TcpStream::connect(server.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    eventually("an error", async || !mirror.errors().is_empty()).await;
    server.apply(service("s0", 81));
    let before = mirror.ports();
    assert_ne!(before, server_ports(&server));
    server.accept_connections();
    mirror.catch_up(&server).await;
    assert_eq!(mirror.lists(), 1);
    // Accepting twice has no further effect.
    server.accept_connections();
    assert!(TcpStream::connect(server.address()).is_ok());
}

#[test]
fn a_refusing_server_keeps_its_port_while_processes_are_started() {
    let server = ApiServer::start();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Until `execve`, a child holds the listening sockets of its parent.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                Command::new("true").status().unwrap();
            }
        });
        let stop = SetOnDrop::new(&is_over);
        for _ in 0..200 {
            server.refuse_connections();
            let refused = TcpStream::connect(server.address()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            server.accept_connections();
            assert!(TcpStream::connect(server.address()).is_ok());
        }
        drop(stop);
    });
}

#[tokio::test]
async fn error_responses_stop_after_their_number_of_times() {
    for (code, retry_after) in [(429, Some(1)), (500, None), (503, None)] {
        let (server, mirror) = pair().await;
        let answer = ErrorResponse {
            code,
            retry_after,
            times: 3,
        };
        server.faults(|faults| faults.error_response = Some(answer));
        server.cut_connections(Disconnect::Close);
        server.apply(service("s0", 81));
        mirror.catch_up(&server).await;
        assert!(server.count("watch", "services") >= 5, "{code}");
    }
    let server = ApiServer::start();
    let answer = ErrorResponse {
        code: 410,
        retry_after: None,
        times: 1,
    };
    server.faults(|faults| faults.error_response = Some(answer));
    let services = services(&server).await;
    match services.list(&ListParams::default()).await {
        Err(Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (410, "Expired"))
        }
        other => panic!("no refusal: {other:?}"),
    }
    assert!(services.list(&ListParams::default()).await.is_ok());
}

#[tokio::test]
async fn a_429_response_has_a_retry_after_header() {
    let server = ApiServer::start();
    let answer = ErrorResponse {
        code: 429,
        retry_after: Some(1),
        times: 1,
    };
    server.faults(|faults| faults.error_response = Some(answer));
    let services = services(&server).await;
    let began = Instant::now();
    // The client retries after `Retry-After`.
    services.list(&ListParams::default()).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.count("list", "services"), 2);
}

#[tokio::test]
async fn responses_and_events_are_delayed() {
    let (server, mirror) = pair().await;
    server.faults(|faults| (faults.delay, faults.event_delay) = (BRIEF, BRIEF));
    let began = Instant::now();
    services(&server)
        .await
        .list(&ListParams::default())
        .await
        .unwrap();
    assert!(began.elapsed() >= BRIEF);
    let began = Instant::now();
    server.apply(service("s0", 81));
    mirror.catch_up(&server).await;
    assert!(began.elapsed() >= BRIEF);
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_can_be_limited_to_one_resource() {
    let server = ApiServer::start();
    server.faults(|faults| {
        faults.only = Some("endpointslices".to_owned());
        faults.delay = Duration::MAX;
    });
    let client = client(&server.kubeconfig()).await;
    let slices = Api::<EndpointSlice>::all(client.clone());
    let listing = tokio::spawn(async move { slices.list(&ListParams::default()).await });
    let asked = |server: &ApiServer| server.count("list", "endpointslices") == 1;
    assert!(server.wait_until(TIMEOUT, asked));
    let services = Api::<Service>::all(client);
    assert!(services.list(&ListParams::default()).await.is_ok());
    assert!(!listing.is_finished());
    server.clear_faults();
    assert!(timeout(TIMEOUT, listing).await.unwrap().unwrap().is_ok());
    let requests = server.requests();
    assert!(requests[0].at <= requests[1].at);
    assert!(!server.wait_until(Duration::ZERO, |_| false));
}

#[tokio::test]
async fn events_of_slices_of_one_service_are_shuffled() {
    let server = ApiServer::start();
    let slices = Api::<EndpointSlice>::all(client(&server.kubeconfig()).await);
    let names = ["web-a", "web-b", "web-c", "web-d"];
    let names_in_order = async |order: Order, seed: u64| {
        let version = server.resource_version().to_string();
        for name in names {
            server.apply(json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": name,
                    "labels": { "kubernetes.io/service-name": "web" },
                },
                "addressType": "IPv4",
                "endpoints": [{ "addresses": [format!("10.244.0.{seed}")] }],
            }));
        }
        server.seed(seed);
        server.faults(|faults| faults.order = order);
        let events = slices
            .watch(&WatchParams::default(), &version)
            .await
            .unwrap();
        let events = events.take(names.len()).map_ok(|event| match event {
            WatchEvent::Added(slice) | WatchEvent::Modified(slice) => slice.name_any(),
            other => panic!("no slice: {other:?}"),
        });
        timeout(TIMEOUT, events.try_collect::<Vec<_>>())
            .await
            .unwrap()
            .unwrap()
    };
    assert_eq!(names_in_order(Order::Shuffled, 1).await, names);
    let mut mixed = names_in_order(Order::SlicesShuffled, 2).await;
    assert_ne!(mixed, names);
    mixed.sort();
    assert_eq!(mixed, names);
}

#[tokio::test]
async fn shuffled_and_duplicated_events_are_complete() {
    for order in [Order::Shuffled, Order::SlicesShuffled] {
        let (server, mirror) = pair().await;
        for seed in 0..20 {
            server.seed(seed);
            let bytes = 500 + 700 * usize::try_from(seed).unwrap();
            server.faults(|faults| {
                faults.order = order;
                faults.duplicates = 50;
                faults.cut_after = Some(CutAfter {
                    bytes,
                    layer: Layer::Http,
                    disconnect: Disconnect::Close,
                });
            });
            server.cut_connections(Disconnect::Close);
            // One batch, in which objects are created, changed several times and deleted.
            server.faults(|faults| faults.silent_watches = true);
            watched(&server).await;
            for port in 1..5 {
                let port = port + 10 * u16::try_from(seed).unwrap();
                server.apply_all((0..20).map(|index| service(&format!("s{index}"), port)));
                server.delete("Service", "default", &format!("s{}", seed % 20));
            }
            server.faults(|faults| faults.silent_watches = false);
            mirror.catch_up(&server).await;
        }
        assert_eq!((mirror.lists(), mirror.went_back()), (1, vec![]));
    }
}

#[tokio::test]
async fn a_watch_from_a_discarded_version_gets_410_and_relists() {
    let (server, mirror) = pair().await;
    server.refuse_connections();
    server.cut_connections(Disconnect::Close);
    server.delete("Service", "default", "s0");
    server.compact();
    server.accept_connections();
    mirror.catch_up(&server).await;
    assert_eq!(mirror.lists(), 2);
    watched(&server).await;
    server.expire_watches();
    eventually("a list", async || mirror.lists() == 3).await;
    let errors = mirror.errors();
    assert!(
        errors.iter().any(|error| error.contains("410")),
        "{errors:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_the_history_but_no_objects() {
    let (server, mirror) = pair().await;
    let before = server.resource_version();
    server.restart(BRIEF, 100);
    assert_eq!(server.resource_version(), before + 100);
    server.apply(service("new", 80));
    mirror.catch_up(&server).await;
    assert_eq!(mirror.lists(), 2);
}

#[tokio::test]
async fn a_watch_catches_up_after_a_list_of_a_past_version() {
    let server = ApiServer::start();
    server.apply(service("old", 80));
    server.apply(service("new", 80));
    server.delete("Service", "default", "old");
    server.faults(|faults| faults.stale = 2);
    let listed = services(&server)
        .await
        .list(&ListParams::default().at("0"))
        .await
        .unwrap();
    assert_eq!(listed.items[0].metadata.name.as_deref(), Some("old"));
    let mirror = Mirror::new(&server).await;
    mirror
        .wait_for(&Ports::from([("new".to_owned(), 80)]))
        .await;
}

#[test]
fn a_server_listens_in_the_network_namespace_of_its_creator() {
    let netns = Netns::new().unwrap();
    let server = netns.run(ApiServer::start);
    let reachable = || TcpStream::connect(server.address()).is_ok();
    assert!(netns.run(reachable));
    assert!(!reachable());
    // Faults can be changed from another namespace.
    server.refuse_connections();
    assert!(!netns.run(reachable));
    server.accept_connections();
    assert!(netns.run(reachable));
}
