//! One query to one upstream: over UDP, and over TCP if necessary.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, ResponseCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{sleep, timeout};
use tracing::info;

use super::counters::UpstreamCounters;
use super::request::{Reply, Request};

/// Replies that do not match after which a query continues over TCP.
const MOST_MISMATCHES: u32 = 16;

/// Idle TCP connections to an upstream.
const MOST_IDLE: usize = 16;

/// Time for which an upstream that does not reply to queries with EDNS is asked without.
const WITHOUT_EDNS: Duration = Duration::from_secs(300);

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

/// What is known about an upstream's replies to queries with an OPT record.
///
/// Some old servers and firewalls drop such queries instead of rejecting them. One lost
/// packet looks the same. So only an upstream that never replied to one since it was last
/// down is asked without, and only for a time: without EDNS there are no DNSSEC records, and
/// answers over 512 bytes need TCP.
#[derive(Clone, Copy, Debug, Default)]
enum Edns {
    #[default]
    Unknown,
    /// The upstream replied to a query with EDNS.
    Replied,
    /// The upstream replied only without EDNS. It is asked without until this time.
    Dropped(Instant),
}

/// Transport to one upstream.
#[derive(Debug)]
pub(super) struct Transport {
    pub(super) address: SocketAddr,
    pub(super) force_tcp: bool,
    pub(super) idle_timeout: Duration,
    idle: Mutex<Vec<(TcpStream, Instant)>>,
    edns: Mutex<Edns>,
}

impl Transport {
    pub(super) fn new(address: SocketAddr, force_tcp: bool, idle_timeout: Duration) -> Self {
        Self {
            address,
            force_tcp,
            idle_timeout,
            idle: Mutex::default(),
            edns: Mutex::default(),
        }
    }

    /// Sends a request and returns the reply. Each protocol has the time `wait`.
    ///
    /// While nothing is known about EDNS, a second query without it follows after half of
    /// the time, and the first reply counts.
    pub(super) async fn exchange(
        &self,
        request: &Request,
        wait: Duration,
        counters: &UpstreamCounters,
    ) -> Result<Message, ExchangeError> {
        match self.edns() {
            Edns::Replied => return self.with_edns(request, wait, counters).await,
            Edns::Dropped(_) => return self.exchange_once(request, false, wait, counters).await,
            Edns::Unknown => {}
        }
        let half = wait / 2;
        let mut with = pin!(self.with_edns(request, wait, counters));
        let mut without = pin!(async {
            sleep(half).await;
            self.exchange_once(request, false, half, counters).await
        });
        let replied = tokio::select! {
            biased;
            replied = &mut with => match replied {
                // The other query may have been sent just before.
                Err(ExchangeError::Timeout(_)) => without.await,
                replied => return replied,
            },
            replied = &mut without => match replied {
                Err(error) if error.is_silence() => return with.await,
                replied => replied,
            },
        };
        if !replied.as_ref().is_err_and(ExchangeError::is_silence) {
            self.set_edns(Edns::Dropped(Instant::now() + WITHOUT_EDNS));
            info!(
                upstream = %self.address,
                "name server does not reply to queries with EDNS; it is asked without for {} s",
                WITHOUT_EDNS.as_secs()
            );
        }
        replied
    }

    /// Forgets whether the upstream replies to queries with EDNS.
    pub(super) fn forget_edns(&self) {
        self.set_edns(Edns::Unknown);
    }

    fn edns(&self) -> Edns {
        let mut edns = self.edns.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*edns, Edns::Dropped(until) if Instant::now() >= until) {
            *edns = Edns::Unknown;
        }
        *edns
    }

    fn set_edns(&self, edns: Edns) {
        *self.edns.lock().unwrap_or_else(PoisonError::into_inner) = edns;
    }

    /// Sends a request with EDNS, and again without if the upstream rejects that.
    async fn with_edns(
        &self,
        request: &Request,
        wait: Duration,
        counters: &UpstreamCounters,
    ) -> Result<Message, ExchangeError> {
        let mut with_edns = true;
        loop {
            let replied = self.exchange_once(request, with_edns, wait, counters).await;
            if with_edns && !replied.as_ref().is_err_and(ExchangeError::is_silence) {
                self.set_edns(Edns::Replied);
            }
            let message = replied?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edns_is_tried_again_after_some_time() {
        let transport = Transport::new(([127, 0, 0, 1], 53).into(), false, Duration::ZERO);
        transport.set_edns(Edns::Dropped(Instant::now() + WITHOUT_EDNS));
        assert!(matches!(transport.edns(), Edns::Dropped(_)));
        transport.set_edns(Edns::Dropped(Instant::now()));
        assert!(matches!(transport.edns(), Edns::Unknown));
    }
}
