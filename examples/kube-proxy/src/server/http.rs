//! HTTP on one listener, within bounds.
//!
//! A client that is slow, silent or one of too many holds neither memory nor
//! sockets for long: the size of a request, the time it may take, the time that
//! a connection lasts and the number of connections are limited.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use proxy_core::health::Answer;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tracing::debug;

/// A request; its body is of no interest.
pub(super) type Request = hyper::Request<Incoming>;

/// What is sent back.
pub(super) type Response = hyper::Response<Full<Bytes>>;

/// How bounds are set; tests have tighter ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Connections of a listener at a time; further ones wait for their turn.
    pub(super) connections: usize,
    /// How long the next request may take to come.
    pub(super) request: Duration,
    /// How long a connection may last: what is then being answered has as long
    /// again as a request.
    pub(super) connection: Duration,
}

impl Bounds {
    /// Enough for load balancers, tight enough for a node.
    pub(super) const USUAL: Self = Self {
        connections: 128,
        request: Duration::from_secs(10),
        connection: Duration::from_secs(60),
    };
}

/// Bytes of a request before its body.
const MAX_HEADERS: usize = 16 * 1024;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 256;

/// How long nothing is accepted when the system has no more descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether an IPv6 wildcard is one of IPv4, too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wildcard {
    /// It is.
    BothFamilies,
    /// It is not.
    Ipv6Only,
}

/// Returns a listener.
///
/// # Errors
///
/// What the system says to it.
pub(super) fn listen(address: SocketAddr, wildcard: Wildcard) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => {
            let socket = TcpSocket::new_v6()?;
            let only_v6 = wildcard == Wildcard::Ipv6Only;
            rustix::net::sockopt::set_ipv6_v6only(&socket, only_v6)?;
            socket
        }
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Answers requests until whoever holds the other end of `open` drops it.
///
/// Then nothing is accepted any more, and what is being answered is finished.
pub(super) async fn serve<F>(
    listener: TcpListener,
    bounds: Bounds,
    answer: F,
    mut open: watch::Receiver<()>,
) where
    F: Fn(&Request) -> Response + Clone + Send + Sync + 'static,
{
    let room = Arc::new(Semaphore::new(bounds.connections));
    loop {
        let next = async {
            let permit = Arc::clone(&room).acquire_owned().await;
            let permit = permit.expect("nobody closes the semaphore");
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            next = next => next,
            _ = open.changed() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = converse(stream, bounds, answer.clone(), open.clone());
                tokio::spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            Err(error) => {
                debug!("a connection was not accepted: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Answers the requests of one connection.
async fn converse<F>(stream: TcpStream, bounds: Bounds, answer: F, mut open: watch::Receiver<()>)
where
    F: Fn(&Request) -> Response + Send + Sync + 'static,
{
    let answer = Arc::new(answer);
    let service = service_fn(move |request| {
        let answer = Arc::clone(&answer);
        async move { Ok::<_, Infallible>(answer(&request)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.request)
        .max_buf_size(MAX_HEADERS)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = sleep(bounds.connection) => {}
        _ = open.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    // Who takes no answer gets none.
    let _ = timeout(bounds.request, connection).await;
}

/// Returns a response that is a text.
pub(super) fn text(code: u16, content_type: &'static str, body: impl Into<String>) -> Response {
    let headers = [
        ("Content-Type", content_type.to_owned()),
        ("X-Content-Type-Options", "nosniff".to_owned()),
    ];
    response(Answer {
        code,
        headers: headers.into(),
        body: body.into(),
    })
}

/// Returns what is said of a path that nothing is at.
pub(super) fn not_found() -> Response {
    text(404, PLAIN, "404 page not found\n")
}

/// The content type of plain text.
pub(super) const PLAIN: &str = "text/plain; charset=utf-8";

/// Returns an answer as a response.
pub(super) fn response(answer: Answer) -> Response {
    let mut builder = hyper::Response::builder().status(answer.code);
    for (name, value) in answer.headers {
        builder = builder.header(name, value);
    }
    let response = builder.body(Full::from(answer.body));
    response.expect("our headers are well formed")
}

#[cfg(test)]
pub(super) mod tests;
