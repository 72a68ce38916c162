//! An HTTP client.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Timeout of expected responses.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A loopback address with a free port.
pub const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Opens a connection.
///
/// # Panics
///
/// The address refuses connections.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the address accepts connections");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("the timeout is valid");
    stream
}

/// Sends a request and returns the response.
///
/// # Panics
///
/// The address refuses connections, or the response is no text.
pub fn request(address: SocketAddr, words: &str) -> String {
    try_request(address, words).expect("the address accepts connections")
}

/// Sends a request and returns the response. Returns `None` if the address
/// refuses connections, and an empty text if the server closes
/// the connection.
///
/// # Panics
///
/// The response is late or no text.
pub fn try_request(address: SocketAddr, words: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("the timeout is valid");
    let head = format!("{words} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    // A server that closes the connection at once has no response.
    if stream.write_all(head.as_bytes()).is_err() {
        return Some(String::new());
    }
    Some(rest(&mut stream))
}

/// Reads until the server closes the connection.
///
/// # Panics
///
/// The server is silent for 10 s, or the response is no text.
pub fn rest(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        Ok(_) => {}
        // An evicted connection may be reset.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {answer:?}"),
    }
    answer
}

/// Sends a request, reads until the expected text, and leaves the connection
/// open.
///
/// # Panics
///
/// The connection ends before the expected text.
pub fn request_on(stream: &mut TcpStream, words: &str) -> String {
    write!(stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads the request");
    let mut answer = String::new();
    while !answer.contains(words) {
        let mut bytes = [0; 256];
        let length = stream
            .read(&mut bytes)
            .expect("the server responds in time");
        assert_ne!(length, 0, "{answer:?}");
        answer += std::str::from_utf8(&bytes[..length]).expect("the response is text");
    }
    answer
}

/// Requests of [`pipeline`] in one packet.
const PIPELINED_REQUESTS: usize = 200;

/// Time without a byte after which [`pipeline`] gives a connection up.
const SILENCE: Duration = Duration::from_secs(1);

/// Asks for pages again and again until `is_over`, as a greedy client does: many requests in one
/// packet, before the first response. Opens a new connection if the server closes one.
///
/// # Panics
///
/// The connection has no timeout.
pub fn pipeline(address: SocketAddr, path: &str, is_over: &AtomicBool) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    let requests = request.repeat(PIPELINED_REQUESTS);
    let is_over = || is_over.load(Ordering::Relaxed);
    while !is_over() {
        let Ok(mut stream) = TcpStream::connect(address) else {
            continue;
        };
        stream
            .set_read_timeout(Some(SILENCE))
            .expect("the timeout is valid");
        let mut page = [0; 1 << 16];
        let is_sent = stream.write_all(requests.as_bytes()).is_ok();
        while is_sent && !is_over() && matches!(stream.read(&mut page), Ok(1..)) {}
    }
}
