//! Tests with impatient, silent and numerous clients.

use std::future::ready;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use testkit::http::{ANY, connect, request, request_on, rest};
use testkit::netns::Netns;
use tokio::runtime::Runtime;

use super::*;

/// Timeout of expected responses.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Connection limit that a single client cannot reach.
const LIMIT: usize = 1024;

/// The timeout under test. All other timeouts are long.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Timeouts = Timeouts {
    first: Duration::from_secs(30),
    request: Duration::from_secs(30),
    connection: Duration::from_secs(30),
};

/// A server with a fixed response.
struct Hello {
    address: SocketAddr,
    runtime: Runtime,
    open: Option<watch::Sender<()>>,
}

impl Hello {
    fn start(timeouts: Timeouts) -> Self {
        let answer =
            |request: &Request| text(200, PLAIN, format!("hello {}", request.uri().path()));
        Self::with(LIMIT, timeouts, answer)
    }

    fn with<F>(limit: usize, timeouts: Timeouts, answer: F) -> Self
    where
        F: Fn(&Request) -> Response + Clone + Send + Sync + 'static,
    {
        let runtime = Runtime::new().unwrap();
        let _guard = runtime.enter();
        let listener = listen(ANY, Wildcard::BothFamilies).unwrap();
        let address = listener.local_addr().unwrap();
        let (open, watched) = watch::channel(());
        runtime.spawn(serve(
            listener,
            Connections::new(limit, limit),
            timeouts,
            move |request| ready(answer(&request)),
            watched,
        ));
        drop(_guard);
        let open = Some(open);
        Self {
            address,
            runtime,
            open,
        }
    }
}

impl Drop for Hello {
    fn drop(&mut self) {
        let rest = Runtime::new().unwrap();
        std::mem::replace(&mut self.runtime, rest).shutdown_background();
    }
}

#[test]
fn a_response_has_the_headers_of_go_programs() {
    let server = Hello::start(Timeouts::DEFAULT);
    let answer = request(server.address, "GET /there?a=b");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<_> = head.split("\r\n").collect();
    assert_eq!(lines.remove(0), "HTTP/1.1 200 OK");
    lines.retain(|line| !line.starts_with("Date: "));
    lines.sort_unstable();
    let expected = [
        "Connection: close",
        "Content-Length: 12",
        "Content-Type: text/plain; charset=utf-8",
        "X-Content-Type-Options: nosniff",
    ];
    assert_eq!((lines, body), (expected.to_vec(), "hello /there"));
    let answer = request(server.address, "HEAD /there");
    assert!(answer.contains("Content-Length: 12") && answer.ends_with("\r\n\r\n"));
}

#[test]
fn connections_are_reused_for_a_limited_time() {
    let server = Hello::start(Timeouts {
        connection: SHORT,
        ..LONG
    });
    let mut stream = connect(server.address);
    request_on(&mut stream, "hello /");
    request_on(&mut stream, "hello /");
    assert_eq!(rest(&mut stream), "");
}

#[test]
fn pipelined_requests_take_turns_with_other_connections() {
    // One thread, and answers that take longer than anything else.
    const WORK: Duration = Duration::from_millis(5);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let guard = runtime.enter();
    let listener = listen(ANY, Wildcard::BothFamilies).unwrap();
    let address = listener.local_addr().unwrap();
    let (_open, watched) = watch::channel(());
    let answered = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&answered);
    runtime.spawn(serve(
        listener,
        Connections::new(LIMIT, LIMIT),
        LONG,
        move |request: Request| {
            if request.uri().path() == "/slow" {
                count.fetch_add(1, Ordering::Relaxed);
                thread::sleep(WORK);
            }
            ready(text(200, PLAIN, "done"))
        },
        watched,
    ));
    drop(guard);
    const GREEDY: usize = 4;
    let slow = "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n".repeat(MAX_REQUESTS);
    let greedy: Vec<_> = (0..GREEDY)
        .map(|_| {
            let mut stream = connect(address);
            stream.write_all(slow.as_bytes()).unwrap();
            stream
        })
        .collect();
    while answered.load(Ordering::Relaxed) < GREEDY {
        thread::yield_now();
    }
    let before = answered.load(Ordering::Relaxed);
    assert!(request(address, "GET /quick").ends_with("done"));
    let meanwhile = answered.load(Ordering::Relaxed) - before;
    // Its accept, its first byte and its request wait for a turn of the others each.
    assert!(
        meanwhile <= 8 * GREEDY,
        "{meanwhile} other requests came first"
    );
    drop(greedy);
    runtime.shutdown_background();
}

#[test]
fn a_connection_ends_after_a_number_of_requests() {
    let server = Hello::start(LONG);
    let mut stream = connect(server.address);
    let all = "GET /there HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3 * MAX_REQUESTS);
    stream.write_all(all.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // The rest of the requests is not read, so the end may be a reset.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let count = answer.matches("hello /there").count();
    assert!(count <= MAX_REQUESTS, "{count}");
    let mut stream = connect(server.address);
    for _ in 1..MAX_REQUESTS {
        assert!(!request_on(&mut stream, "hello /").contains("Connection: close"));
    }
    assert!(request_on(&mut stream, "hello /").contains("Connection: close"));
    assert_eq!(rest(&mut stream), "");
}

#[test]
fn a_connection_without_a_request_is_closed_after_a_timeout() {
    let server = Hello::start(Timeouts {
        first: SHORT,
        ..LONG
    });
    let start = Instant::now();
    let mut silent = connect(server.address);
    let mut slow = connect(server.address);
    slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nX: ").unwrap();
    let mut byte_by_byte = slow.try_clone().unwrap();
    let writer = thread::spawn(move || {
        while start.elapsed() < TIMEOUT && byte_by_byte.write_all(b"x").is_ok() {
            thread::sleep(SHORT / 10);
        }
    });
    assert_eq!(rest(&mut silent), "");
    rest(&mut slow);
    assert!(start.elapsed() >= SHORT);
    assert!(start.elapsed() < TIMEOUT / 2, "{:?}", start.elapsed());
    writer.join().unwrap();
    assert!(start.elapsed() < TIMEOUT, "bytes extended the timeout");
}

#[test]
fn a_further_request_has_a_timeout() {
    let server = Hello::start(Timeouts {
        request: SHORT,
        ..LONG
    });
    let mut stream = connect(server.address);
    request_on(&mut stream, "hello /");
    stream.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
    let start = Instant::now();
    rest(&mut stream);
    assert!(start.elapsed() < TIMEOUT / 2, "{:?}", start.elapsed());
}

/// More bytes than a socket buffers.
const LARGE: usize = 32 << 20;

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let large = |_: &Request| text(200, PLAIN, "x".repeat(LARGE));
    let server = Hello::with(
        LIMIT,
        Timeouts {
            request: SHORT,
            ..LONG
        },
        large,
    );
    let mut stream = connect(server.address);
    write!(stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    // The server closes the connection meanwhile and sends no more.
    thread::sleep(SHORT * 3);
    let received = rest(&mut stream).len();
    assert!(received < LARGE, "{received}");
}

#[test]
fn a_body_is_read_in_time_or_rejected() {
    let echo = |request: &Request| text(200, PLAIN, request.body().escape_ascii().to_string());
    let server = Hello::with(
        LIMIT,
        Timeouts {
            first: SHORT,
            ..LONG
        },
        echo,
    );
    let put = |length: usize, body: &str| {
        let mut stream = connect(server.address);
        let head = "Host: x\r\nConnection: close";
        write!(
            stream,
            "PUT / HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        rest(&mut stream)
    };
    let answer = put(2, "hi");
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nhi"),
        "{answer}"
    );
    let answer = put(MAX_BODY + 1, &"x".repeat(MAX_BODY + 1));
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let answer = put(2, "h");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_request_has_a_maximum_size() {
    let server = Hello::start(Timeouts::DEFAULT);
    let mut stream = connect(server.address);
    write!(stream, "GET / HTTP/1.1\r\nHost: ").unwrap();
    // A write blocks or fails when the server no longer reads, long before a
    // megabyte.
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    let chunk = [b'x'; 1024];
    let written = (0..1024).take_while(|_| stream.write_all(&chunk).is_ok());
    let written = written.count();
    let answer = rest(&mut stream);
    assert!(
        written < 1024 || answer.starts_with("HTTP/1.1 4"),
        "{answer:?}"
    );
}

#[test]
fn a_connection_beyond_the_limit_evicts_the_oldest_one_of_its_client() {
    let hello = |request: &Request| text(200, PLAIN, format!("hello {}", request.uri().path()));
    // Two active connections for each client.
    let server = Hello::with(8, LONG, hello);
    let mut first = connect(server.address);
    request_on(&mut first, "hello /");
    let mut second = connect(server.address);
    request_on(&mut second, "hello /");
    // A client that repeats requests must not evict one that waits for its first response.
    request_on(&mut first, "hello /");
    let mut third = connect(server.address);
    request_on(&mut third, "hello /");
    assert_eq!(rest(&mut first), "");
    request_on(&mut second, "hello /");
    request_on(&mut third, "hello /");
    // And four idle ones.
    let mut idle: Vec<_> = (0..5).map(|_| connect(server.address)).collect();
    assert_eq!(rest(&mut idle[0]), "");
    for stream in &mut idle[1..] {
        request_on(stream, "hello /");
    }
}

#[test]
fn closing_a_port_closes_its_connections() {
    let mut server = Hello::start(Timeouts::DEFAULT);
    let mut stream = connect(server.address);
    request_on(&mut stream, "hello /");
    drop(server.open.take());
    assert_eq!(rest(&mut stream), "");
    let deadline = Instant::now() + TIMEOUT;
    while TcpStream::connect(server.address).is_ok() {
        assert!(Instant::now() < deadline, "it is still open");
    }
}

#[test]
fn both_families_can_have_the_same_port() {
    Netns::new().unwrap().run(|| {
        let runtime = Runtime::new().unwrap();
        let _guard = runtime.enter();
        let v6 = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 0], 0_u16));
        let v4 = |port| SocketAddr::from(([0, 0, 0, 0], port));
        let first = listen(v6, Wildcard::OwnFamily).unwrap();
        let port = first.local_addr().unwrap().port();
        listen(v4(port), Wildcard::OwnFamily).unwrap();
        let both = listen(v6, Wildcard::BothFamilies).unwrap();
        let port = both.local_addr().unwrap().port();
        listen(v4(port), Wildcard::OwnFamily).unwrap_err();
    });
}

#[test]
fn a_wildcard_of_either_family_serves_both_as_in_go() {
    Netns::new().unwrap().run(|| {
        let runtime = Runtime::new().unwrap();
        let _guard = runtime.enter();
        let is_served = |port: u16| {
            ["127.0.0.1", "::1"].map(|host| {
                let address = SocketAddr::new(host.parse().unwrap(), port);
                TcpStream::connect(address).is_ok()
            })
        };
        for (address, wildcard, expected) in [
            ("0.0.0.0:0", Wildcard::BothFamilies, [true, true]),
            ("[::]:0", Wildcard::BothFamilies, [true, true]),
            ("0.0.0.0:0", Wildcard::OwnFamily, [true, false]),
            ("[::]:0", Wildcard::OwnFamily, [false, true]),
            ("127.0.0.1:0", Wildcard::BothFamilies, [true, false]),
            ("[::1]:0", Wildcard::BothFamilies, [false, true]),
        ] {
            let listener = listen(address.parse().unwrap(), wildcard).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert_eq!(is_served(port), expected, "{address} {wildcard:?}");
        }
    });
}
