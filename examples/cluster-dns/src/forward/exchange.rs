//! One query to one upstream: over UDP, and over TCP if necessary.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, ResponseCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::counters::UpstreamCounters;
use super::request::{Reply, Request};

/// Replies that do not match after which a query continues over TCP.
const MOST_MISMATCHES: u32 = 16;

/// Idle TCP connections to an upstream.
const MOST_IDLE: usize = 16;

/// Failure of a query to an upstream.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error("no reply in {0:?}")]
    Timeout(Duration),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("malformed reply over TCP")]
    Malformed,
    #[error("truncated reply over TCP")]
    Truncated,
    #[error("a reply over UDP, but not over TCP: {source}")]
    OnlyUdp {
        /// The truncated reply, unless it was malformed.
        reply: Option<Box<Message>>,
        source: Box<Self>,
    },
}

impl ExchangeError {
    /// Returns whether the upstream sent no reply at all.
    pub(super) fn is_silence(&self) -> bool {
        match self {
            Self::Timeout(_) | Self::Io(_) => true,
            Self::Malformed | Self::Truncated | Self::OnlyUdp { .. } => false,
        }
    }
}

/// Result of a query over UDP.
enum Datagram {
    Message(Box<Message>),
    /// The reply is truncated, or malformed. The answer is available only over TCP.
    Incomplete(Option<Box<Message>>),
    /// No reply matches.
    Mismatches,
}

/// Transport to one upstream.
#[derive(Debug)]
pub(super) struct Transport {
    pub(super) address: SocketAddr,
    pub(super) force_tcp: bool,
    pub(super) idle_timeout: Duration,
    idle: Mutex<Vec<(TcpStream, Instant)>>,
}

impl Transport {
    pub(super) fn new(address: SocketAddr, force_tcp: bool, idle_timeout: Duration) -> Self {
        Self {
            address,
            force_tcp,
            idle_timeout,
            idle: Mutex::default(),
        }
    }

    /// Sends a request and returns the reply. Each protocol has the time `wait`.
    pub(super) async fn exchange(
        &self,
        request: &Request,
        wait: Duration,
        counters: &UpstreamCounters,
    ) -> Result<Message, ExchangeError> {
        let mut with_edns = true;
        loop {
            let message = self
                .exchange_once(request, with_edns, wait, counters)
                .await?;
            // A server that does not know EDNS, RFC 6891 section 7.
            let code = message.metadata.response_code;
            let rejects_edns = message.edns.is_none()
                && matches!(code, ResponseCode::FormErr | ResponseCode::NotImp);
            if !rejects_edns || !with_edns {
                return Ok(message);
            }
            with_edns = false;
        }
    }

    async fn exchange_once(
        &self,
        request: &Request,
        with_edns: bool,
        wait: Duration,
        counters: &UpstreamCounters,
    ) -> Result<Message, ExchangeError> {
        let mut incomplete = None;
        if !self.force_tcp {
            let udp = self.udp(request, with_edns, counters);
            match timeout(wait, udp)
                .await
                .map_err(|_| ExchangeError::Timeout(wait))??
            {
                Datagram::Message(message) => return Ok(*message),
                Datagram::Incomplete(reply) => incomplete = Some(reply),
                Datagram::Mismatches => {}
            }
        }
        let tcp = self.tcp(request, with_edns, counters);
        let replied = timeout(wait, tcp).await;
        let replied = replied.unwrap_or(Err(ExchangeError::Timeout(wait)));
        match (replied, incomplete) {
            (Err(error), Some(reply)) => Err(ExchangeError::OnlyUdp {
                reply,
                source: Box::new(error),
            }),
            (replied, _) => replied,
        }
    }

    /// Each query has a socket of its own, with a random port that the kernel chooses. The
    /// socket is connected, so that the kernel drops datagrams from other addresses.
    async fn udp(
        &self,
        request: &Request,
        with_edns: bool,
        counters: &UpstreamCounters,
    ) -> Result<Datagram, ExchangeError> {
        let socket = UdpSocket::bind((unspecified(self.address), 0)).await?;
        socket.connect(self.address).await?;
        counters.connection_misses.udp.increment();
        let id = random_id()?;
        socket.send(&request.encode(id, with_edns)).await?;
        // One byte more than announced, to recognize longer datagrams.
        let mut buffer = vec![0; usize::from(request.payload_size) + 1];
        for _ in 0..MOST_MISMATCHES {
            let len = socket.recv(&mut buffer).await?;
            match request.check(id, &buffer[..len]) {
                Reply::Mismatch => counters.mismatches.increment(),
                Reply::Malformed => return Ok(Datagram::Incomplete(None)),
                Reply::Message(message) => {
                    let is_whole = !message.metadata.truncation && len < buffer.len();
                    return Ok(if is_whole {
                        Datagram::Message(message)
                    } else {
                        Datagram::Incomplete(Some(message))
                    });
                }
            }
        }
        // An attacker may be guessing.
        Ok(Datagram::Mismatches)
    }

    async fn tcp(
        &self,
        request: &Request,
        with_edns: bool,
        counters: &UpstreamCounters,
    ) -> Result<Message, ExchangeError> {
        let id = random_id()?;
        let message = request.encode(id, with_edns);
        while let Some(mut stream) = self.take_idle() {
            counters.connection_hits.tcp.increment();
            // The server may have closed an idle connection in the meantime.
            if let Ok(reply) = round_trip(&mut stream, &message).await {
                return self.accept(request, id, &reply, stream);
            }
        }
        counters.connection_misses.tcp.increment();
        let mut stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let reply = round_trip(&mut stream, &message).await?;
        self.accept(request, id, &reply, stream)
    }

    fn accept(
        &self,
        request: &Request,
        id: u16,
        reply: &[u8],
        stream: TcpStream,
    ) -> Result<Message, ExchangeError> {
        match request.check(id, reply) {
            Reply::Message(message) if message.metadata.truncation => Err(ExchangeError::Truncated),
            Reply::Message(message) => {
                self.put_idle(stream);
                Ok(*message)
            }
            Reply::Mismatch | Reply::Malformed => Err(ExchangeError::Malformed),
        }
    }

    /// Returns the connection that was used last, if it is open.
    fn take_idle(&self) -> Option<TcpStream> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        idle.retain(|(_, since)| now.duration_since(*since) < self.idle_timeout);
        while let Some((stream, _)) = idle.pop() {
            // An open connection without data is not readable.
            let read = stream.try_read(&mut [0]);
            if read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                return Some(stream);
            }
        }
        None
    }

    fn put_idle(&self, stream: TcpStream) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE {
            idle.push((stream, Instant::now()));
        }
    }

    /// Closes connections that were idle too long.
    pub(super) fn close_idle(&self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        idle.retain(|(_, since)| now.duration_since(*since) < self.idle_timeout);
    }
}

/// Sends a message with its length, and receives one.
async fn round_trip(stream: &mut TcpStream, message: &[u8]) -> io::Result<Vec<u8>> {
    let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
    let framed = [&len.to_be_bytes()[..], message].concat();
    stream.write_all(&framed).await?;
    let len = stream.read_u16().await?;
    let mut reply = vec![0; usize::from(len)];
    stream.read_exact(&mut reply).await?;
    Ok(reply)
}

fn unspecified(peer: SocketAddr) -> IpAddr {
    match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Returns 16 unpredictable bits of the kernel.
fn random_id() -> io::Result<u16> {
    let mut bytes = [0; 2];
    random(&mut bytes)?;
    Ok(u16::from_be_bytes(bytes))
}

/// Fills `bytes` with unpredictable bytes of the kernel.
pub(super) fn random(bytes: &mut [u8]) -> io::Result<()> {
    let len = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
    // Up to 256 bytes are returned at once, random(4).
    debug_assert_eq!(len, bytes.len());
    Ok(())
}
