//! TCP: pipelined requests, with limits.
//!
//! Responses may overtake each other, RFC 7766. A connection without a request is closed
//! after a timeout. Beyond the limit of connections, a new one evicts an old one.
//!
//! The responses that a client has not read take bounded memory: beyond it, no further
//! request is read. All connections together have a [`Budget`], because a cluster has many:
//! NodeLocal DNSCache with `force_tcp` opens one for each query that is under way, from each
//! node. When it is used up, connections whose clients do not read are closed.

use std::future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use daemon::http::{Pool, Slot, Wildcard, listen};
use tokio::io::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::respond::{Received, Step};
use super::udp::Context;
use crate::telemetry::{Counters, Transport};

/// Requests of one connection that wait for the upstreams, and responses that wait for the
/// client.
const PIPELINED: usize = 128;

/// Bytes of the responses of one connection that wait for the client. One more response may
/// wait for its place among them.
const QUEUED_BYTES: usize = 64 << 10;

/// Bytes of the queue that each response takes at least, so that their number is limited.
const LEAST_BYTES: usize = QUEUED_BYTES / PIPELINED;

/// Bytes of the responses of all connections that wait for clients, and of the tasks that
/// wait for the upstreams.
const ALL_QUEUED_BYTES: usize = 48 << 20;

/// Bytes that a request and the task that waits for the upstreams take. The response to most
/// requests has room in them.
const TASK_BYTES: usize = SMALL;

/// Longest request in bytes, as over UDP. A longer one is malformed.
const LONGEST_REQUEST: usize = 4096;

/// Buffer of a connection. Most requests fit, and larger ones need no buffer.
const READ_BUFFER: usize = 512;

/// Time after which a client that does not read a response may be disconnected if others
/// need the memory.
const WRITE_PATIENCE: Duration = Duration::from_millis(100);

/// Size limit of a response of the upstreams that is written before it has a place in the
/// queue. Larger ones are written one after another.
const SMALL: usize = 4096;

/// Time for a client to read a response.
const WRITE: Duration = Duration::from_secs(5);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions {
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Maximum number of connections of one client.
    pub max_connections_per_client: usize,
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
    budget: &Arc<Budget>,
    context: &Context,
    open: &watch::Receiver<()>,
) -> io::Result<()> {
    let _guard = context.runtime.enter();
    let listener = listen(address, Wildcard::OwnFamily)?;
    let counters = context.telemetry.counters(address);
    let (connections, context, mut open) = (Arc::clone(connections), context.clone(), open.clone());
    let budget = Arc::clone(budget);
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
                budget: Arc::clone(&budget),
            };
            let mut open = open.clone();
            tokio::spawn(async move {
                let telemetry = Arc::clone(&connection.context.telemetry);
                let _ = stream.set_nodelay(true);
                let (reader, writer) = stream.into_split();
                tokio::select! {
                    () = connection.serve(reader, writer, &slot) => {}
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
    budget: Arc<Budget>,
}

/// Memory that all connections share.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: Arc<Semaphore>,
    /// Notified while a connection waits for memory.
    is_short: Notify,
}

impl Budget {
    /// Returns the budget of all listeners.
    pub(super) fn new() -> Arc<Self> {
        Self::of(ALL_QUEUED_BYTES)
    }

    fn of(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes: Arc::new(Semaphore::new(bytes)),
            is_short: Notify::new(),
        })
    }

    /// Waits for memory. Clients that do not read their responses lose theirs meanwhile.
    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut wait = pin!(Arc::clone(&self.bytes).acquire_many_owned(bytes));
        loop {
            match timeout(WRITE_PATIENCE, &mut wait).await {
                Ok(permit) => return permit.ok(),
                Err(_) => self.is_short.notify_waiters(),
            }
        }
    }
}

/// A response with its length, and its place in the queue.
#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    _place: Place,
}

/// Place of a response among those of the connection, and among those of all connections.
#[derive(Debug)]
struct Place {
    own: OwnedSemaphorePermit,
    shared: OwnedSemaphorePermit,
}

impl Place {
    /// Gives back what a response of a smaller size does not need.
    fn shrink(&mut self, size: usize) {
        let size = size.max(LEAST_BYTES);
        for permit in [&mut self.own, &mut self.shared] {
            drop(permit.split(permit.num_permits().saturating_sub(size)));
        }
    }
}

/// Responses that wait for the client.
#[derive(Clone, Debug)]
struct Queue {
    frames: mpsc::UnboundedSender<Frame>,
    /// Bytes that are free.
    room: Arc<Semaphore>,
    budget: Arc<Budget>,
}

impl Queue {
    /// Returns an empty queue, and its receiver.
    fn new(budget: Arc<Budget>) -> (Self, mpsc::UnboundedReceiver<Frame>) {
        let (frames, queue) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(QUEUED_BYTES));
        let queue_of = Self {
            frames,
            room,
            budget,
        };
        (queue_of, queue)
    }

    /// Waits for the place of a response. A response over the size of the queue takes the
    /// whole queue. `taken` is memory of the budget that the caller has already.
    async fn place(&self, size: usize, taken: Option<OwnedSemaphorePermit>) -> Option<Place> {
        let size = size.clamp(LEAST_BYTES, QUEUED_BYTES);
        let bytes = u32::try_from(size).unwrap_or(u32::MAX);
        let own = Arc::clone(&self.room)
            .acquire_many_owned(bytes)
            .await
            .ok()?;
        // Who waits for more memory has none: if all had some, all would wait forever.
        let shared = match taken.filter(|taken| taken.num_permits() >= size) {
            Some(taken) => taken,
            None => self.budget.take(size).await?,
        };
        let mut place = Place { own, shared };
        place.shrink(size);
        Some(place)
    }

    /// Queues a response after it has a place. Returns whether the queue is open.
    async fn push(&self, response: Vec<u8>, taken: Option<OwnedSemaphorePermit>) -> bool {
        let bytes = frame(&response);
        // Each response has memory only once while it waits.
        drop(response);
        let Some(place) = self.place(bytes.len(), taken).await else {
            return false;
        };
        let frame = Frame {
            bytes,
            _place: place,
        };
        self.frames.send(frame).is_ok()
    }
}

impl Connection {
    /// Serves requests until the client closes the connection, is idle or misbehaves.
    async fn serve(
        self,
        reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin,
        slot: &Slot,
    ) {
        let (queue, frames) = Queue::new(Arc::clone(&self.budget));
        let budget = Arc::clone(&self.budget);
        let read = async {
            self.read(reader, queue, slot).await;
            // The queue is closed. `write` ends after its last response.
            future::pending::<()>().await;
        };
        // After a failed write, no request is answered.
        tokio::select! {
            () = write(writer, frames, &budget) => {}
            () = read => {}
        }
    }

    /// Reads requests, and queues their responses.
    async fn read(&self, reader: impl AsyncRead + Unpin, queue: Queue, slot: &Slot) {
        let mut reader = BufReader::with_capacity(READ_BUFFER, reader);
        let mut waiting = JoinSet::new();
        while let Ok(Ok(message)) = timeout(self.idle_timeout, read_frame(&mut reader)).await {
            slot.touch();
            let received = self.received(&message, Instant::now());
            let responder = &self.context.responder;
            let mut out = Vec::new();
            match responder.respond(&received, &self.counters, &mut out) {
                Step::Ignore => break,
                Step::Done => {
                    if !queue.push(out, None).await {
                        break;
                    }
                }
                Step::Wait => {
                    let at = received.at;
                    while waiting.len() >= PIPELINED {
                        waiting.join_next().await;
                    }
                    let Some(memory) = self.budget.take(TASK_BYTES).await else {
                        break;
                    };
                    let (connection, queue) = (self.clone(), queue.clone());
                    let wait = async move { connection.wait(&message, at, &queue, memory).await };
                    waiting.spawn(wait);
                }
            }
            while waiting.try_join_next().is_some() {}
            // Responses of the zone and of the cache need no waiting. Without it, a
            // pipelining client would occupy the thread of the writer and of other tasks.
            yield_now().await;
        }
        // The client may have closed its side only.
        while waiting.join_next().await.is_some() {}
    }

    /// Asks the upstreams, and queues the response.
    async fn wait(&self, message: &[u8], at: Instant, queue: &Queue, memory: OwnedSemaphorePermit) {
        let received = self.received(message, at);
        let (responder, counters) = (&self.context.responder, &self.counters);
        let mut out = Vec::new();
        let later = responder.respond_later(&received, counters, SMALL, &mut out);
        if later.await {
            queue.push(out, Some(memory)).await;
            return;
        }
        drop(memory);
        // The response is in the cache now, except for a time to live of 0.
        let Some(mut place) = queue.place(QUEUED_BYTES, None).await else {
            return;
        };
        let later = responder.respond_later(&received, counters, usize::MAX, &mut out);
        later.await;
        let bytes = frame(&out);
        place.shrink(bytes.len());
        let frame = Frame {
            bytes,
            _place: place,
        };
        // The queue may be closed.
        let _ = queue.frames.send(frame);
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

/// Reads a message with its length. The memory is that of the bytes that arrive, and not of
/// those that the length announces. A message that is too long loses its end, so that it is
/// malformed.
async fn read_frame(reader: &mut BufReader<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let size = usize::from(reader.read_u16().await?);
    let kept = size.min(LONGEST_REQUEST + 1);
    let mut message = Vec::with_capacity(kept.min(READ_BUFFER));
    while message.len() < kept {
        let rest = u64::try_from(kept - message.len()).unwrap_or_default();
        if (&mut *reader).take(rest).read_buf(&mut message).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let mut rest = reader.take(u64::try_from(size - kept).unwrap_or_default());
    io::copy(&mut rest, &mut io::sink()).await?;
    Ok(message)
}

/// Returns a response with its length.
fn frame(response: &[u8]) -> Vec<u8> {
    let size = u16::try_from(response.len()).unwrap_or(u16::MAX);
    [&size.to_be_bytes(), response].concat()
}

/// Writes responses until all senders are gone, or the client does not read.
async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut queue: mpsc::UnboundedReceiver<Frame>,
    budget: &Budget,
) {
    while let Some(frame) = queue.recv().await {
        let mut writing = pin!(writer.write_all(&frame.bytes));
        let written = match timeout(WRITE_PATIENCE, &mut writing).await {
            Ok(written) => written.is_ok(),
            Err(_) => tokio::select! {
                written = timeout(WRITE, writing) => matches!(written, Ok(Ok(()))),
                () = budget.is_short.notified() => false,
            },
        };
        if !written {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
