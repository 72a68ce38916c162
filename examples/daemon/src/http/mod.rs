//! HTTP on one listener, with limits.
//!
//! A slow, silent, greedy or numerous client holds neither memory nor sockets for long, and
//! delays no other client for longer than its fair share.
//! [`Connections`] limits the number of connections. [`Timeouts`], maximum
//! sizes and a number of requests limit each connection. Accepting a connection never
//! waits for another one. All connections of a thread take turns, one request each.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::Method;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::debug;

pub use pool::{Connections, Pool, Slot};
use stream::Stream;

mod pool;

mod stream;

/// A request. The body is read only if the method is PUT.
pub type Request = hyper::Request<Bytes>;

/// A response.
pub type Response = hyper::Response<Full<Bytes>>;

/// The address of the client, an extension of a request.
#[derive(Clone, Copy, Debug)]
struct Peer(IpAddr);

/// Returns whether a request comes from a loopback address: from a process in this network
/// namespace, or from a proxy that runs there.
pub fn is_local(request: &Request) -> bool {
    let peer = request.extensions().get::<Peer>();
    peer.is_some_and(|Peer(address)| address.to_canonical().is_loopback())
}

/// Timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time from the start of a connection to the end of its first request.
    pub first: Duration,
    /// Time for each further request, and for the client to read a response.
    pub request: Duration,
    /// Maximum duration of a connection. The last response gets another
    /// `request`.
    pub connection: Duration,
}

impl Timeouts {
    /// Timeouts of all servers.
    pub const DEFAULT: Self = Self {
        first: Duration::from_secs(2),
        request: Duration::from_secs(10),
        connection: Duration::from_secs(60),
    };
}

/// Maximum size of a request line and headers, in bytes.
const MAX_HEADERS: usize = 16 * 1024;

/// Maximum size of a body, in bytes.
const MAX_BODY: usize = 1024;

/// Maximum number of requests of a connection. The last response closes it.
///
/// A client may send hundreds of requests in one packet (pipelining), and cause megabytes
/// of responses. Prometheus and probes send less than one a second.
const MAX_REQUESTS: usize = 64;

/// Receive buffer of a connection in bytes. The kernel doubles the number.
const RECEIVE_BUFFER: u32 = 16 * 1024;

/// Length of the accept queue. The kernel limits it by `net.core.somaxconn`,
/// 4096 by default.
const BACKLOG: u32 = 4096;

/// Pause after a failed accept, for example without a free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Number of accepted connections after which other tasks run, so that evicted
/// connections close.
const YIELD_INTERVAL: usize = 8;

/// IP families of a listener on a wildcard address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wildcard {
    /// IPv4 and IPv6, for either wildcard, as in Go's network `tcp`.
    BothFamilies,
    /// The family of the address.
    OwnFamily,
}

/// Opens a listener.
///
/// # Errors
///
/// Returns the error of the failed system call.
pub fn listen(address: SocketAddr, wildcard: Wildcard) -> io::Result<TcpListener> {
    let is_v4_wildcard = address.is_ipv4() && address.ip().is_unspecified();
    if is_v4_wildcard && wildcard == Wildcard::BothFamilies {
        let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        match bind(both, wildcard) {
            // The kernel lacks IPv6.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::AFNOSUPPORT) => {}
            listener_or_error => return listener_or_error,
        }
    }
    bind(address, wildcard)
}

fn bind(address: SocketAddr, wildcard: Wildcard) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => {
            let socket = TcpSocket::new_v6()?;
            let only_v6 = wildcard == Wildcard::OwnFamily;
            rustix::net::sockopt::set_ipv6_v6only(&socket, only_v6)?;
            socket
        }
    };
    // On Windows, the option lets another process take the port.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit the size.
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves requests until the other end of `open` is dropped.
///
/// Then no connection is accepted, and responses in progress are finished.
pub async fn serve<F, R>(
    listener: TcpListener,
    connections: Connections,
    timeouts: Timeouts,
    answer: F,
    mut open: watch::Receiver<()>,
) where
    F: Fn(Request) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response> + Send + 'static,
{
    let mut accepted: usize = 0;
    loop {
        let next = tokio::select! {
            next = listener.accept() => next,
            _ = open.changed() => return,
        };
        match next {
            Ok((stream, peer)) => {
                let idle = connections.idle.admit(peer.ip());
                let active = Arc::clone(&connections.active);
                let connection = Connection {
                    stream,
                    peer: peer.ip(),
                    timeouts,
                    answer: answer.clone(),
                    open: open.clone(),
                };
                tokio::spawn(connection.serve(idle, active));
                accepted = accepted.wrapping_add(1);
                if accepted.is_multiple_of(YIELD_INTERVAL) {
                    yield_now().await;
                }
            }
            Err(error) => {
                debug!("connection cannot be accepted: {error}");
                connections.shed();
                tokio::select! {
                    () = sleep(ACCEPT_PAUSE) => {}
                    _ = open.changed() => return,
                }
            }
        }
    }
}

/// An accepted connection.
struct Connection<F> {
    stream: TcpStream,
    peer: IpAddr,
    timeouts: Timeouts,
    answer: F,
    open: watch::Receiver<()>,
}

impl<F, R> Connection<F>
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: Future<Output = Response> + Send + 'static,
{
    /// Serves the connection until the pool evicts it.
    async fn serve(
        mut self,
        (idle, mut evicted): (Slot, oneshot::Receiver<Infallible>),
        active: Arc<Pool>,
    ) {
        let deadline = Instant::now() + self.timeouts.first;
        let mut first = [0];
        tokio::select! {
            sent = self.stream.peek(&mut first) => if !matches!(sent, Ok(1..)) { return },
            _ = &mut evicted => return,
            () = sleep_until(deadline) => return,
            _ = self.open.changed() => return,
        }
        drop(idle);
        // The slot is never touched: of the connections of one client, the oldest is evicted, not
        // the one that was silent for longest. Connections that repeat requests without a pause are
        // all used between the request of a probe from the same address and its turn to be answered.
        // The probe would be the next to be evicted. So few connections begin until then that it
        // never is the oldest: the loop that accepts them yields after YIELD_INTERVAL.
        let (_slot, evicted) = active.admit(self.peer);
        let rest = Box::pin(self.answer_requests(deadline));
        tokio::select! {
            () = rest => {}
            _ = evicted => {}
        }
    }

    /// Serves requests. The first request must be complete at `deadline`.
    async fn answer_requests(self, deadline: Instant) {
        let Self {
            stream,
            peer,
            timeouts,
            answer,
            mut open,
        } = self;
        let shared = Arc::new((answer, AtomicUsize::new(0)));
        let of_requests = Arc::clone(&shared);
        let service = service_fn(move |request| {
            let shared = Arc::clone(&of_requests);
            async move {
                let (answer, requests) = &*shared;
                let number = requests.fetch_add(1, Ordering::Relaxed) + 1;
                // Otherwise hyper answers up to 16 pipelined requests in a row, and all other
                // connections of the thread wait.
                yield_now().await;
                let mut response = match read(request, timeouts.first).await {
                    Ok(mut request) => {
                        request.extensions_mut().insert(Peer(peer));
                        answer(request).await
                    }
                    Err(refusal) => refusal,
                };
                if number >= MAX_REQUESTS {
                    let headers = response.headers_mut();
                    headers.insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(timeouts.request)
            .max_buf_size(MAX_HEADERS)
            .title_case_headers(true)
            .serve_connection(Stream::new(stream, timeouts.request), service);
        let mut connection = pin!(connection);
        let (_, requests) = &*shared;
        let silence = async {
            sleep_until(deadline).await;
            if requests.load(Ordering::Relaxed) > 0 {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            _ = connection.as_mut() => return,
            () = silence => return,
            () = sleep(timeouts.connection) => {}
            _ = open.changed() => {}
        }
        connection.as_mut().graceful_shutdown();
        // The connection closes even if the client does not read the response.
        let _ = timeout(timeouts.request, connection).await;
    }
}

/// Reads the body of a PUT request.
///
/// # Errors
///
/// The response to a body that is too long or too slow.
async fn read(request: hyper::Request<Incoming>, limit: Duration) -> Result<Request, Response> {
    let (head, body) = request.into_parts();
    if head.method != Method::PUT {
        return Ok(Request::from_parts(head, Bytes::new()));
    }
    match timeout(limit, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(Request::from_parts(head, body.to_bytes())),
        Ok(Err(error)) => Err(text(
            400,
            PLAIN,
            format!("error reading request body: {error}\n"),
        )),
        Err(_) => Err(text(408, PLAIN, "request body timed out\n")),
    }
}

/// Creates a response from a text.
pub fn text(code: u16, content_type: &'static str, body: impl Into<String>) -> Response {
    let headers = [
        ("Content-Type", content_type),
        ("X-Content-Type-Options", "nosniff"),
    ];
    response(code, headers, body)
}

/// Creates the response for an unknown path.
pub fn not_found() -> Response {
    text(404, PLAIN, "404 page not found\n")
}

/// The content type of plain text.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// Creates a response with valid headers.
pub fn response<N, V>(
    code: u16,
    headers: impl IntoIterator<Item = (N, V)>,
    body: impl Into<String>,
) -> Response
where
    N: AsRef<str>,
    V: AsRef<str>,
{
    let mut builder = hyper::Response::builder().status(code);
    for (name, value) in headers {
        builder = builder.header(name.as_ref(), value.as_ref());
    }
    let response = builder.body(Full::from(body.into()));
    response.expect("our headers are well formed")
}

#[cfg(test)]
mod tests;
