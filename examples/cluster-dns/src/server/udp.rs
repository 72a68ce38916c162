//! UDP: one thread per processor, each with a socket of every listener.
//!
//! A thread answers from the zone and from the cache itself. Queries that wait for the
//! upstreams become tasks, so that they delay no other query.
//!
//! Nearly all queries of a cluster are answered from memory within microseconds, so the cost is
//! in system calls and in handing work over, not in the answer. So no queue stands between the
//! socket and the answer: all sockets of a listener share its address (`SO_REUSEPORT`), the
//! kernel chooses one of them by a hash of the client's address and port, and the thread that
//! reads a query sends its response.
//!
//! For example, with two threads and listeners 10.96.0.10:53 and 169.254.20.10:53: four sockets,
//! of which each thread polls two. A burst at one listener fills its two receive buffers; each
//! thread takes 64 packets of it and then looks at its other socket.
//!
//! What must stay true:
//!
//! - A thread never waits for anything but `poll`. One blocking call delays every client that
//!   the kernel's hash gives to this socket, and they cannot go to another one.
//! - Queries that wait in a socket at the end are answered, up to one turn of each socket.
//! - Tasks are bounded in number, because a client may send queries faster than an upstream
//!   refuses them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::runtime::Handle;
use tracing::{debug, error};

use super::respond::{Received, Responder, Step};
use super::socket::{Packet, UdpSocket, control_buffer};
use crate::telemetry::{Counters, Telemetry, Transport};

/// Packets of one socket in succession, so that no listener starves another one.
const MAX_PACKETS_PER_TURN: usize = 64;

/// Longest request in bytes, as over TCP. Header and question have 271 at most, and the rest is
/// room for options of EDNS. A longer one is malformed. The buffer has one byte more, so that a
/// longer one is seen to be longer.
const MAX_REQUEST_BYTES: usize = 4096;

/// Maximum number of queries that wait for the upstreams. Each has a task of about 2 KiB, so all of
/// them have 40 MiB. What is beyond gets SERVFAIL at once, and the client asks another server.
const MAX_WAITING_QUERIES: usize = 20_000;

/// The threads and their sockets.
#[derive(Debug)]
pub(super) struct Workers {
    threads: Vec<JoinHandle<()>>,
    /// The write end of a pipe, of which each thread has the read end. Its close makes all of them
    /// readable, and they stay so.
    stop: Option<OwnedFd>,
    /// Number of queries that wait, of all threads.
    waiting: Arc<AtomicUsize>,
}

/// State that all threads share.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) responder: Arc<Responder>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) runtime: Handle,
}

#[derive(Debug)]
struct Worker {
    context: Context,
    sockets: Vec<(Arc<UdpSocket>, Arc<Counters>)>,
    stop: OwnedFd,
    waiting: Arc<AtomicUsize>,
}

impl Workers {
    /// Opens the sockets and starts the threads.
    ///
    /// # Errors
    ///
    /// The address whose socket cannot be opened, and the error.
    pub(super) fn start(
        addresses: &[SocketAddr],
        threads: usize,
        context: &Context,
    ) -> Result<Self, (SocketAddr, io::Error)> {
        // For errors that no address causes, such as too many open files for the pipe.
        let none = SocketAddr::from(([0, 0, 0, 0], 0));
        let failed = |error: rustix::io::Errno| (none, error.into());
        let (reader, stop) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(failed)?;
        let waiting = Arc::new(AtomicUsize::new(0));
        // All sockets before the first thread: if an address is in use, no thread has answered
        // queries of a server that does not start.
        let mut workers = Vec::new();
        for _ in 0..threads {
            let mut sockets = Vec::new();
            for &address in addresses {
                let socket = UdpSocket::bind(address).map_err(|error| (address, error))?;
                let counters = context.telemetry.counters(address);
                sockets.push((Arc::new(socket), counters));
            }
            workers.push(Worker {
                context: context.clone(),
                sockets,
                stop: reader.try_clone().map_err(|error| (none, error))?,
                waiting: Arc::clone(&waiting),
            });
        }
        let threads = workers.into_iter().enumerate().map(|(number, worker)| {
            let builder = thread::Builder::new().name(format!("udp-{number}"));
            builder.spawn(move || worker.run())
        });
        Ok(Self {
            // If one thread fails to start, `stop` is dropped with this function, and the others end.
            threads: threads
                .collect::<Result<_, _>>()
                .map_err(|error| (none, error))?,
            stop: Some(stop),
            waiting,
        })
    }

    /// Closes the sockets. Queries that wait keep theirs until they are answered.
    pub(super) fn stop(&mut self) {
        // First, or `join` waits forever.
        self.stop = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                error!("a UDP thread panicked");
            }
        }
    }

    /// Returns the number of queries that wait for the upstreams. `Relaxed` everywhere: nothing but
    /// the number itself is read because of it.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Worker {
    fn run(self) {
        let mut buffer = vec![0; MAX_REQUEST_BYTES + 1];
        let (mut control, mut out) = (control_buffer(), Vec::with_capacity(MAX_REQUEST_BYTES));
        loop {
            let sockets = self.sockets.iter().map(|(socket, _)| socket.as_fd());
            let mut fds: Vec<_> = sockets
                .chain([self.stop.as_fd()])
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            match poll(&mut fds, None) {
                // After a signal (EINTR) no socket counts as readable, and the loop polls again.
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // The sockets close with the thread, so the kernel gives their clients to those of
                // the other threads.
                Err(error) => {
                    error!("UDP sockets cannot be polled: {error}; the thread ends");
                    return;
                }
            }
            // Any event, not only IN: a closed pipe has HUP, and an error of a socket (ERR) must be
            // received, or `poll` returns at once forever.
            let readable: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            // Before the sockets are read: what arrived before the end is then among the packets
            // below, up to one turn of each socket.
            let is_ending = readable.last() == Some(&true);
            for ((socket, counters), _) in self
                .sockets
                .iter()
                .zip(readable)
                .filter(|(_, is_readable)| *is_readable)
            {
                for _ in 0..MAX_PACKETS_PER_TURN {
                    match socket.receive(&mut buffer, &mut control) {
                        Ok(Some(packet)) => {
                            self.serve(socket, counters, &packet, &buffer, &mut out);
                        }
                        Ok(None) => break,
                        // Errors of sockets without a connection are those of one packet, so the
                        // next one may be good. The turn bounds how many there are in succession.
                        Err(error) => debug!("packet cannot be received: {error}"),
                    }
                }
            }
            // After the sockets, not before: a thread that ended at once lost the packets that were
            // in its sockets, and each client of a busy server had to wait for a timeout.
            if is_ending {
                return;
            }
        }
    }

    /// Answers a packet, or starts a task that does.
    fn serve(
        &self,
        socket: &Arc<UdpSocket>,
        counters: &Arc<Counters>,
        packet: &Packet,
        buffer: &[u8],
        out: &mut Vec<u8>,
    ) {
        let received = Received {
            // The size is at most that of the buffer; the minimum keeps an indexing panic away from
            // whatever a kernel reports.
            message: &buffer[..packet.size.min(buffer.len())],
            client: packet.client,
            transport: Transport::Udp,
            at: Instant::now(),
        };
        // No socket receives on port 0, so the source is forged, and a response would be an error.
        if packet.client.port() == 0 {
            return;
        }
        let Context { responder, .. } = &self.context;
        match responder.respond(&received, counters, out) {
            // Responses and fragments of a header: an answer to a response could go back and forth
            // between two servers. `server/mod.rs` lists them.
            Step::Ignore => {}
            Step::Done => send(socket, out, packet),
            // Several threads may pass this check at once, so the limit may be exceeded by their
            // number. That is cheaper than an exact one.
            Step::Wait if self.waiting.load(Ordering::Relaxed) >= MAX_WAITING_QUERIES => {
                self.context
                    .telemetry
                    .overload
                    .fetch_add(1, Ordering::Relaxed);
                responder.refuse_to_wait(&received, counters, out);
                send(socket, out, packet);
            }
            Step::Wait => self.wait(socket, counters, packet, &received),
        }
    }

    /// Starts a task that asks the upstreams. It owns everything that it needs: the thread overwrites
    /// its buffer with the next packet, and may end before the task does.
    fn wait(
        &self,
        socket: &Arc<UdpSocket>,
        counters: &Arc<Counters>,
        packet: &Packet,
        received: &Received<'_>,
    ) {
        let (socket, counters, packet) = (Arc::clone(socket), Arc::clone(counters), *packet);
        let responder = Arc::clone(&self.context.responder);
        let message = received.message.to_vec();
        let (client, transport, at) = (received.client, received.transport, received.at);
        // Counted here and not in the task, which may start much later: a burst would pass the limit.
        let waiting = Waiting::new(&self.waiting);
        self.context.runtime.spawn(async move {
            let received = Received {
                message: &message,
                client,
                transport,
                at,
            };
            let mut out = Vec::new();
            // Room without a bound: responses over UDP have their own limit. Only TCP shares memory
            // among responses, so the result is always true here.
            responder
                .respond_later(&received, &counters, usize::MAX, &mut out)
                .await;
            send(&socket, &out, &packet);
            // Moved into the task, so that the count falls also if the task is canceled.
            drop(waiting);
        });
    }
}

/// Sends a response, or nothing if it is empty: the request turned out to need none.
///
/// A failure is one client's, which asks again. It is no warning, because forged sources without a
/// route would fill the log.
fn send(socket: &UdpSocket, response: &[u8], packet: &Packet) {
    if response.is_empty() {
        return;
    }
    // From the address to which the client sent. A host with several addresses would otherwise
    // choose one by its route, and a client discards a response from another address.
    if let Err(error) = socket.send(response, packet.client, packet.local) {
        debug!("response to {} cannot be sent: {error}", packet.client);
    }
}

/// A query that waits for the upstreams. Counted by a drop, so that a task that panics or is
/// cancelled with the runtime counts no longer.
#[derive(Debug)]
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as Client;
    use std::sync::RwLock;
    use std::time::Duration;

    use vipline_service_dns::{Options, Zone};

    use super::*;
    use crate::telemetry::QueryLog;

    /// A query for `a.`, of type A.
    const QUERY: &[u8] = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    #[test]
    fn packets_that_arrived_before_the_end_are_answered() {
        let zone = Zone::new(Options::new("cluster.local".parse().unwrap()));
        let zone = Arc::new(RwLock::new(zone));
        let log = Arc::new(QueryLog::start(false).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let context = Context {
            responder: Arc::new(Responder::new(Arc::clone(&zone), None, log, 1232)),
            telemetry: Arc::new(Telemetry::new(zone, None)),
            runtime: runtime.handle().clone(),
        };
        let free = Client::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = Arc::new(UdpSocket::bind(free).unwrap());
        let counters = context.telemetry.counters(free);
        let client = Client::bind("127.0.0.1:0").unwrap();
        client.connect(free).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        client.send(QUERY).unwrap();
        let (reader, stop) = rustix::pipe::pipe().unwrap();
        drop(stop);
        let worker = Worker {
            context,
            sockets: vec![(socket, counters)],
            stop: reader,
            waiting: Arc::default(),
        };
        worker.run();
        let mut response = [0; 512];
        client.recv(&mut response).unwrap();
        assert_eq!(response[..2], QUERY[..2]);
    }
}
