//! An HTTP client.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
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
