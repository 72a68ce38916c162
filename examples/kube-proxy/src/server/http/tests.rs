//! Clients that are impatient, silent or too many.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Instant;

use testkit::netns::Netns;
use tokio::runtime::Runtime;

use super::*;

/// How long a client waits for what must come.
const PATIENCE: Duration = Duration::from_secs(10);

/// An address of this machine with a port that is free.
pub(crate) const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What is short for a test of one bound, all others being long.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Bounds = Bounds {
    connections: 2,
    request: Duration::from_secs(30),
    connection: Duration::from_secs(30),
};

/// A server that says hello.
struct Hello {
    address: SocketAddr,
    runtime: Runtime,
    open: Option<watch::Sender<()>>,
}

impl Hello {
    fn start(bounds: Bounds) -> Self {
        let runtime = Runtime::new().unwrap();
        let _guard = runtime.enter();
        let listener = listen(ANY, Wildcard::BothFamilies).unwrap();
        let address = listener.local_addr().unwrap();
        let (open, watched) = watch::channel(());
        let answer =
            |request: &Request| text(200, PLAIN, format!("hello {}", request.uri().path()));
        runtime.spawn(serve(listener, bounds, answer, watched));
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

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Asks and returns all that is answered.
pub(crate) fn ask(address: SocketAddr, words: &str) -> String {
    let mut stream = connect(address);
    write!(
        stream,
        "{words} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    rest(&mut stream)
}

/// Reads until the other side ends, which it must do in time.
fn rest(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        Ok(_) => {}
        // A connection that is cut may be reset.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {answer:?}"),
    }
    answer
}

/// Asks once and leaves the connection open.
fn ask_on(stream: &mut TcpStream) -> String {
    write!(stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    while !answer.ends_with("hello /") {
        let mut bytes = [0; 256];
        let length = stream.read(&mut bytes).unwrap();
        assert_ne!(length, 0, "{answer:?}");
        answer += std::str::from_utf8(&bytes[..length]).unwrap();
    }
    answer
}

#[test]
fn an_answer_has_the_headers_that_go_programs_send() {
    let server = Hello::start(Bounds::USUAL);
    let answer = ask(server.address, "GET /there?a=b");
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
    let answer = ask(server.address, "HEAD /there");
    assert!(answer.contains("Content-Length: 12") && answer.ends_with("\r\n\r\n"));
}

#[test]
fn connections_may_be_used_again_but_not_for_ever() {
    let server = Hello::start(Bounds {
        connection: SHORT,
        ..LONG
    });
    let mut stream = connect(server.address);
    ask_on(&mut stream);
    ask_on(&mut stream);
    assert_eq!(rest(&mut stream), "");
}

#[test]
fn who_does_not_ask_is_let_go() {
    let server = Hello::start(Bounds {
        request: SHORT,
        ..LONG
    });
    let start = Instant::now();
    let mut silent = connect(server.address);
    let mut slow = connect(server.address);
    slow.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
    assert_eq!(rest(&mut silent), "");
    rest(&mut slow);
    assert!(start.elapsed() >= SHORT);
}

#[test]
fn a_request_has_a_size() {
    let server = Hello::start(Bounds::USUAL);
    let mut stream = connect(server.address);
    write!(stream, "GET / HTTP/1.1\r\nHost: ").unwrap();
    // What is not read any more blocks or breaks, long before a megabyte.
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
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
fn who_is_one_too_many_waits_for_a_turn() {
    let server = Hello::start(LONG);
    let mut first = connect(server.address);
    ask_on(&mut first);
    let mut second = connect(server.address);
    ask_on(&mut second);
    let mut third = connect(server.address);
    write!(
        third,
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let short = Duration::from_millis(50);
    third.set_read_timeout(Some(short)).unwrap();
    let early = third.read(&mut [0; 1]).unwrap_err().kind();
    assert_eq!(early, io::ErrorKind::WouldBlock, "there are two already");
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    first.shutdown(Shutdown::Both).unwrap();
    assert!(rest(&mut third).ends_with("hello /"));
}

#[test]
fn when_a_port_is_closed_so_are_its_connections() {
    let mut server = Hello::start(Bounds::USUAL);
    let mut stream = connect(server.address);
    ask_on(&mut stream);
    drop(server.open.take());
    assert_eq!(rest(&mut stream), "");
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(server.address).is_ok() {
        assert!(Instant::now() < deadline, "it is still open");
    }
}

#[test]
fn both_families_may_have_a_port_each() {
    Netns::new().unwrap().run(|| {
        let runtime = Runtime::new().unwrap();
        let _guard = runtime.enter();
        let v6 = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 0], 0_u16));
        let v4 = |port| SocketAddr::from(([0, 0, 0, 0], port));
        let first = listen(v6, Wildcard::Ipv6Only).unwrap();
        let port = first.local_addr().unwrap().port();
        listen(v4(port), Wildcard::Ipv6Only).unwrap();
        let both = listen(v6, Wildcard::BothFamilies).unwrap();
        let port = both.local_addr().unwrap().port();
        listen(v4(port), Wildcard::Ipv6Only).unwrap_err();
    });
}
