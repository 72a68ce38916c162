//! Requests that identify the answering server.

use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::{Answers, Protocol};
use crate::netns::Netns;

/// Number of concurrent requests of [`Probe::times`].
const CLIENTS: usize = 16;

/// Time after which a datagram is sent again.
const RETRANSMIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Ports of clients.
const UNPRIVILEGED: Range<u16> = 10_000..60_000;

/// Ports that neither the kernel chooses nor a node port has by default.
const BELOW_EPHEMERAL: Range<u16> = 10_000..30_000;

/// Payload of a datagram.
pub(super) const PAYLOAD: &[u8] = b"probe";

/// A client of a [`Server`](super::Server) at an address. Every request reports the
/// server that answered.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Protocol.
    pub protocol: Protocol,
    /// Destination.
    pub target: SocketAddr,
    /// Timeout of a request.
    pub timeout: Duration,
    /// Whether a datagram is sent again every second until an answer arrives.
    pub retransmits: bool,
}

/// The answer of a [`Server`](super::Server).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// Name of the server.
    pub server: String,
    /// Address of the client as seen by the server.
    pub client: IpAddr,
    /// Address of the client as seen by the client, that is, before NAT.
    pub local: IpAddr,
}

impl Probe {
    /// Creates a probe of `target` with a timeout of 3 s.
    pub fn new(protocol: Protocol, target: SocketAddr) -> Self {
        Self {
            protocol,
            target,
            timeout: Duration::from_secs(3),
            retransmits: false,
        }
    }

    /// Sends a datagram again from the same port every second until an answer arrives, as
    /// DNS resolvers do: the answer of a stopping endpoint may get lost.
    #[must_use]
    pub fn retransmitting(self) -> Self {
        Self {
            retransmits: true,
            ..self
        }
    }

    /// Sets the timeout.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sends one request from a namespace.
    ///
    /// # Errors
    ///
    /// The error of the socket; [`io::ErrorKind::TimedOut`] after the timeout.
    pub fn once(&self, from: &Netns) -> io::Result<Answer> {
        from.run(|| self.in_current_netns())
    }

    /// Sends `count` requests from a namespace, up to 16 concurrently.
    pub fn times(&self, from: &Netns, count: usize) -> Answers {
        let start = Instant::now();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut answers = Answers::default();
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let at = start.elapsed();
                answers.add(at, self.in_current_netns());
            }
            answers
        };
        from.run(|| {
            thread::scope(|scope| {
                let clients: Vec<_> = (0..CLIENTS.min(count)).map(|_| scope.spawn(work)).collect();
                clients
                    .into_iter()
                    .map(|client| client.join().expect("a client does not panic"))
                    .fold(Answers::default(), Answers::merge)
            })
        })
    }

    /// Sends one request from the namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// As [`once`](Self::once).
    pub fn in_current_netns(&self) -> io::Result<Answer> {
        let answer = match self.protocol {
            Protocol::Tcp => self.connect().and_then(|stream| greeting(&stream)),
            Protocol::Udp => self.exchange_datagrams(),
        };
        answer.map_err(timed_out)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        self.with_timeouts(TcpStream::connect_timeout(&self.target, self.timeout)?)
    }

    /// Opens a connection from a port that no other connection of this program has.
    ///
    /// IPVS confuses two connections from one port to two virtual servers with the same real
    /// server: answers to the older connection get the address of the other virtual server.
    /// Ports that the kernel chooses are different for one destination only.
    pub(super) fn connect_from_unique_port(&self) -> io::Result<TcpStream> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let socket = bind_next(&NEXT, BELOW_EPHEMERAL, |port| {
            let socket = Socket::new(Domain::for_address(self.target), Type::STREAM, None)?;
            socket.bind(&SocketAddr::new(self.any(), port).into())?;
            Ok(socket)
        })?;
        socket.connect_timeout(&self.target.into(), self.timeout)?;
        self.with_timeouts(socket.into())
    }

    /// Applies the timeout to each read and write.
    fn with_timeouts(&self, stream: TcpStream) -> io::Result<TcpStream> {
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        Ok(stream)
    }

    fn exchange_datagrams(&self) -> io::Result<Answer> {
        let socket = self.socket()?;
        if self.retransmits {
            socket.set_read_timeout(Some(RETRANSMIT_TIMEOUT.min(self.timeout)))?;
            let begin = Instant::now();
            while begin.elapsed() + RETRANSMIT_TIMEOUT < self.timeout {
                match exchange(&socket, PAYLOAD).map_err(timed_out) {
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                    result => return result,
                }
            }
        }
        exchange(&socket, PAYLOAD)
    }

    /// Opens a socket with a port that has not been used recently. The timeout applies to
    /// each read.
    ///
    /// The kernel may choose a recently used port, for which conntrack still has an entry
    /// that leads to the previous server.
    pub(super) fn socket(&self) -> io::Result<UdpSocket> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let any = self.any();
        let socket = bind_next(&NEXT, UNPRIVILEGED, |port| UdpSocket::bind((any, port)))?;
        socket.set_read_timeout(Some(self.timeout))?;
        socket.connect(self.target)?;
        Ok(socket)
    }

    /// Returns the unspecified address of the target's family.
    fn any(&self) -> IpAddr {
        match self.target {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

/// Sends a datagram and waits for the answer.
pub(super) fn exchange(socket: &UdpSocket, payload: &[u8]) -> io::Result<Answer> {
    socket.send(payload)?;
    let mut buffer = [0; 256];
    let length = receive(socket, &mut buffer)?;
    Answer::parse(&buffer[..length], socket.local_addr()?.ip())
}

/// Receives a datagram and returns its length.
///
/// The kernel interrupts a wait with a timeout also if no program sent a signal, for
/// example when the host was stopped and continued.
///
/// # Errors
///
/// If no datagram arrives in time, or the socket reports an error.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

/// Binds a socket to the next free port of a range, up to 10 ports.
fn bind_next<T>(
    next: &AtomicUsize,
    ports: Range<u16>,
    bind: impl Fn(u16) -> io::Result<T>,
) -> io::Result<T> {
    let mut result = Err(io::ErrorKind::AddrInUse.into());
    for _ in 0..10 {
        let nth = next.fetch_add(1, Ordering::Relaxed) % ports.len();
        let port = ports.clone().nth(nth).expect("less than the length");
        result = bind(port);
        match &result {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => (),
            _ => break,
        }
    }
    result
}

impl Answer {
    fn parse(line: &[u8], local: IpAddr) -> io::Result<Self> {
        let text = String::from_utf8_lossy(line);
        text.trim_end()
            .rsplit_once(' ')
            .and_then(|(server, client)| {
                Some(Self {
                    server: server.to_owned(),
                    client: client.parse().ok()?,
                    local,
                })
            })
            .ok_or_else(|| {
                let message = format!("not an answer: {text:?}");
                io::Error::new(io::ErrorKind::InvalidData, message)
            })
    }
}

/// Reads the first line of a connection.
pub(super) fn greeting(stream: &TcpStream) -> io::Result<Answer> {
    let local = stream.local_addr()?.ip();
    let mut line = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        let message = "closed without an answer";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
    }
    Answer::parse(&line, local)
}

/// Converts `WouldBlock`, the other error of a read timeout, to `TimedOut`.
pub(super) fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_datagram_is_sent_again_from_the_same_port() {
        let timeout = Duration::from_secs(20);
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        server.set_read_timeout(Some(timeout)).unwrap();
        let target = server.local_addr().unwrap();
        let clients = thread::spawn(move || {
            let mut buffer = [0; 64];
            let clients = [(); 2].map(|()| server.recv_from(&mut buffer).unwrap().1);
            server.send_to(b"late 127.0.0.1\n", clients[1]).unwrap();
            clients
        });
        let probe = Probe::new(Protocol::Udp, target).timeout(timeout);
        assert_eq!(
            probe.retransmitting().in_current_netns().unwrap().server,
            "late"
        );
        let [first, second] = clients.join().unwrap();
        assert_eq!(first, second);
    }
}
