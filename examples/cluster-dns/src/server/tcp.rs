//! TCP: pipelined requests, with limits.
//!
//! Responses may overtake each other, RFC 7766. A connection without a request is closed
//! after a timeout. Beyond the limit of connections, a new one evicts an old one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use daemon::http::{Pool, Slot, Wildcard, listen};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::respond::{Received, Step};
use super::udp::Context;
use crate::telemetry::{Counters, Transport};

/// Requests of one connection that wait for their responses.
const PIPELINED: usize = 128;

/// Time for a client to read a response.
const WRITE: Duration = Duration::from_secs(5);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions {
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Time after which a connection without a request is closed.
    pub idle_timeout: Duration,
}

/// Opens a listener and serves connections in the background, until the sender of `open`
/// is dropped.
///
/// # Errors
///
/// The address cannot be bound.
pub(super) fn start(
    address: SocketAddr,
    options: TcpOptions,
    connections: &Arc<Pool>,
    context: &Context,
    open: &watch::Receiver<()>,
) -> io::Result<()> {
    let _guard = context.runtime.enter();
    let listener = listen(address, Wildcard::OwnFamily)?;
    let counters = context.telemetry.counters(address);
    let (connections, context, mut open) = (Arc::clone(connections), context.clone(), open.clone());
    context.runtime.clone().spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = open.changed() => return,
            };
            let (stream, client) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    debug!("connection cannot be accepted: {error}");
                    connections.shed();
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (slot, evicted) = connections.admit(client.ip());
            let connection = Connection {
                client,
                idle_timeout: options.idle_timeout,
                context: context.clone(),
                counters: Arc::clone(&counters),
            };
            let mut open = open.clone();
            tokio::spawn(async move {
                let telemetry = Arc::clone(&connection.context.telemetry);
                tokio::select! {
                    () = connection.serve(stream, &slot) => {}
                    _ = evicted => {
                        telemetry.evicted_connections.fetch_add(1, Ordering::Relaxed);
                    }
                    _ = open.changed() => {}
                }
            });
        }
    });
    Ok(())
}

/// A connection of a client.
#[derive(Clone, Debug)]
struct Connection {
    client: SocketAddr,
    idle_timeout: Duration,
    context: Context,
    counters: Arc<Counters>,
}

impl Connection {
    /// Serves requests until the client closes the connection, is idle or misbehaves.
    async fn serve(self, stream: TcpStream, slot: &Slot) {
        let _ = stream.set_nodelay(true);
        let (reader, writer) = stream.into_split();
        let (frames, queue) = mpsc::channel(PIPELINED);
        tokio::join!(self.read(reader, frames, slot), write(writer, queue));
    }

    /// Reads requests, and queues their responses.
    async fn read(&self, reader: OwnedReadHalf, frames: mpsc::Sender<Vec<u8>>, slot: &Slot) {
        let mut reader = BufReader::new(reader);
        let mut waiting = JoinSet::new();
        let mut out = Vec::new();
        while let Ok(Ok(message)) = timeout(self.idle_timeout, read_frame(&mut reader)).await {
            slot.touch();
            let received = self.received(&message, Instant::now());
            let responder = &self.context.responder;
            match responder.respond(&received, &self.counters, &mut out) {
                Step::Ignore => break,
                Step::Done => {
                    if frames.send(frame(&out)).await.is_err() {
                        break;
                    }
                }
                Step::Wait => {
                    let at = received.at;
                    while waiting.len() >= PIPELINED {
                        waiting.join_next().await;
                    }
                    let (connection, frames) = (self.clone(), frames.clone());
                    waiting.spawn(async move {
                        let received = connection.received(&message, at);
                        let (responder, mut out) = (&connection.context.responder, Vec::new());
                        let counters = &connection.counters;
                        responder.respond_later(&received, counters, &mut out).await;
                        let _ = frames.send(frame(&out)).await;
                    });
                }
            }
            while waiting.try_join_next().is_some() {}
        }
        // The client may have closed its side only.
        while waiting.join_next().await.is_some() {}
    }

    fn received<'a>(&self, message: &'a [u8], at: Instant) -> Received<'a> {
        Received {
            message,
            client: self.client,
            transport: Transport::Tcp,
            at,
        }
    }
}

/// Reads a message with its length.
async fn read_frame(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Vec<u8>> {
    let mut message = vec![0; reader.read_u16().await?.into()];
    reader.read_exact(&mut message).await?;
    Ok(message)
}

/// Returns a response with its length.
fn frame(response: &[u8]) -> Vec<u8> {
    let size = u16::try_from(response.len()).unwrap_or(u16::MAX);
    [&size.to_be_bytes(), response].concat()
}

/// Writes responses until all senders are gone, or the client does not read.
async fn write(mut writer: OwnedWriteHalf, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = queue.recv().await {
        if !matches!(timeout(WRITE, writer.write_all(&frame)).await, Ok(Ok(()))) {
            return;
        }
    }
}
