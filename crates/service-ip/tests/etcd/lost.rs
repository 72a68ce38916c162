//! Tests of lost requests and lost responses.

use std::error::Error as _;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use vipline_service_ip::{Error, EtcdCluster, Pool, Registry};

use crate::server::{ADDRESS, Addressing, KEY, Server, owner, random};

/// An endpoint that refuses connections.
const UNREACHABLE: &str = "http://127.0.0.1:1";

/// Listening address of a [`proxy`].
const PROXY: &str = "127.0.0.1:3000";

fn registry(server: &Server, endpoints: &[&str]) -> Addressing {
    let cluster = EtcdCluster::new(endpoints, Duration::from_secs(30));
    Registry::new(server.store(&cluster, KEY))
}

fn chain(error: &Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words += &format!(": {cause}");
        source = cause.source();
    }
    words
}

#[test]
fn the_next_endpoint_is_used_if_one_cannot_be_reached() {
    let mut server = Server::start();
    let real = format!("http://{ADDRESS}/");
    server.inside(|| {
        let mut registry = registry(&server, &[UNREACHABLE, &real, "http://127.0.0.1:2"]);
        for _ in 0..3 {
            registry.allocate(&owner(), &mut random(1)).unwrap();
        }
        assert_eq!(registry.refresh().unwrap().pool.used(), 3);
    });
    let mut nowhere = registry(&server, &[UNREACHABLE, &real]);
    server.inside(|| nowhere.refresh().map(drop)).unwrap();
    server.kill();
    let error = server.inside(|| nowhere.allocate(&owner(), &mut random(1)));
    let error = error.unwrap_err();
    assert!(
        matches!(error, Error::Store(_)),
        "nothing was sent: {error:?}"
    );
    let text = chain(&error);
    assert!(text.starts_with(&format!("write {KEY}: ")), "{text}");
    for endpoint in [UNREACHABLE, &real[..real.len() - 1]] {
        let expected = format!("{endpoint}: io: Connection refused");
        assert!(text.contains(&expected), "{text}");
    }
    server.run();
    server.inside(|| nowhere.allocate(&owner(), &mut random(1)).unwrap());
}

#[test]
fn a_change_without_response_is_not_repeated() {
    let server = Server::start();
    let (proxied, real) = (format!("http://{PROXY}"), format!("http://{ADDRESS}"));
    for arrives in [true, false] {
        server.inside(|| {
            let listener = TcpListener::bind(PROXY).unwrap();
            // The second endpoint would apply the change again.
            let mut registry = registry(&server, &[&proxied, &real]);
            let outcome = thread::scope(|scope| {
                scope.spawn(|| proxy(&listener, arrives));
                registry.allocate(&owner(), &mut random(1))
            });
            let error = outcome.unwrap_err();
            let text = chain(&error);
            assert!(matches!(error, Error::Unknown(_)), "{text}");
            let expected = format!(
                "it is unknown whether the store applied the change: write {KEY}: {proxied}: "
            );
            assert!(text.starts_with(&expected), "{text}");
            assert!(!text.contains(&real), "{text}");
            drop(listener);
            // The next load shows the outcome, and allocation continues.
            assert_eq!(registry.refresh().unwrap().pool.used(), arrives.into());
            let next = registry.allocate(&owner(), &mut random(2)).unwrap();
            let taken: Vec<_> = registry.refresh().unwrap().pool.items().collect();
            assert_eq!(taken.len(), 1 + usize::from(arrives));
            assert!(taken.contains(&next));
        });
        server.put(KEY, None);
        server.initialize();
    }
}

#[test]
fn requests_to_a_stopped_member_time_out() {
    let server = Server::start();
    let mut cluster = server.cluster();
    cluster.timeout = Duration::from_secs(2);
    let mut registry = Registry::new(server.store(&cluster, KEY));
    server.inside(|| {
        // A slow machine may exceed the timeout before etcd is stopped.
        let read = (0..30).any(|_| registry.refresh().is_ok());
        assert!(read, "etcd responds before it is stopped");
        server.stop();
        let start = Instant::now();
        let error = registry.allocate(&owner(), &mut random(1)).unwrap_err();
        assert!(matches!(error, Error::Unknown(_)), "{error:?}");
        let error = registry.refresh().unwrap_err();
        assert!(matches!(error, Error::Store(_)), "{error:?}");
        let took = start.elapsed();
        assert!(took >= Duration::from_secs(4), "{took:?}");
        assert!(took < Duration::from_secs(60), "{took:?}");
        assert!(chain(&error).contains("timeout"), "{error:?}");
        server.resume();
        // A change with unknown outcome may be applied later.
        let used = server.registry().refresh().unwrap().pool.used();
        assert!(used <= 1, "{used}");
    });
}

#[test]
fn errors_contain_the_message_of_etcd() {
    let server = Server::start();
    let alarm = |action: &str| {
        let body = json!({ "action": action, "memberID": "0", "alarm": "NOSPACE" });
        server.post("/v3/maintenance/alarm", &body);
    };
    server.inside(|| {
        let mut registry = server.registry();
        registry.refresh().unwrap();
        alarm("ACTIVATE");
        let error = registry.allocate(&owner(), &mut random(1)).unwrap_err();
        assert!(
            matches!(error, Error::Store(_)),
            "nothing changed: {error:?}"
        );
        let text = chain(&error);
        let expected = "etcdserver: mvcc: database space exceeded";
        assert!(text.contains(KEY) && text.contains(expected), "{text}");
        alarm("DEACTIVATE");
        registry.allocate(&owner(), &mut random(1)).unwrap();
    });
    assert!(server.get(KEY).is_some());
}

/// Forwards requests to etcd and responses back, until the first write. Its response
/// is dropped.
fn proxy(listener: &TcpListener, arrives: bool) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        while let Some(request) = message(&mut stream) {
            let writes = request.starts_with(b"POST /v3/kv/txn");
            if writes && !arrives {
                return;
            }
            let mut etcd = TcpStream::connect(ADDRESS).unwrap();
            etcd.write_all(&request).unwrap();
            let answer = message(&mut etcd).unwrap();
            if writes {
                return stream.shutdown(Shutdown::Both).unwrap();
            }
            stream.write_all(&answer).unwrap();
        }
    }
}

/// Reads an HTTP message with `Content-Length`.
fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    const LENGTH: &str = "content-length: ";
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap() == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&bytes).to_lowercase();
    let at = head.find(LENGTH).unwrap() + LENGTH.len();
    let length = head[at..].lines().next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    bytes.extend(body);
    Some(bytes)
}
