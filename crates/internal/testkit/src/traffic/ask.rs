//! Clients that ask who is there.

use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Answers, Protocol};
use crate::netns::Netns;

/// How many questions of one [`Ask::times`] are open at a time.
const CLIENTS: usize = 16;

/// After what time an answer to a datagram counts as lost.
const LOST: Duration = Duration::from_secs(1);

/// What a datagram asks.
const QUESTION: &[u8] = b"who is there?";

/// A question to an address: who is there?
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// How to ask.
    pub protocol: Protocol,
    /// Whom to ask.
    pub target: SocketAddr,
    /// How long to wait for the answer.
    pub patience: Duration,
    /// Whether a datagram is sent again that is not answered in a second.
    pub resends: bool,
}

/// The answer of a [`Server`](super::Server).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// The name of the server.
    pub server: String,
    /// The address of the client as the server sees it.
    pub client: IpAddr,
    /// The address of the client as the client knows it.
    pub own: IpAddr,
}

impl Ask {
    /// Asks `target` and waits up to three seconds.
    pub fn new(protocol: Protocol, target: SocketAddr) -> Self {
        Self {
            protocol,
            target,
            patience: Duration::from_secs(3),
            resends: false,
        }
    }

    /// Sends a datagram that is not answered in a second once more from the same
    /// port, as resolvers do: the answer of an endpoint that goes without a word
    /// may get lost.
    #[must_use]
    pub fn resending(self) -> Self {
        Self {
            resends: true,
            ..self
        }
    }

    /// Waits as long as told.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Asks once from a namespace.
    ///
    /// # Errors
    ///
    /// Nobody answered, and why: [`io::ErrorKind::TimedOut`] after the patience.
    pub fn once(&self, from: &Netns) -> io::Result<Answer> {
        from.run(|| self.here())
    }

    /// Asks again and again from a namespace, some questions at a time.
    pub fn times(&self, from: &Netns, count: usize) -> Answers {
        let start = Instant::now();
        let next = AtomicUsize::new(0);
        let ask = || {
            let mut answers = Answers::default();
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let at = start.elapsed();
                answers.add(at, self.here());
            }
            answers
        };
        from.run(|| {
            thread::scope(|scope| {
                let clients: Vec<_> = (0..CLIENTS.min(count)).map(|_| scope.spawn(ask)).collect();
                clients
                    .into_iter()
                    .map(|client| client.join().expect("a client does not panic"))
                    .fold(Answers::default(), Answers::merge)
            })
        })
    }

    /// Asks once from the namespace that the calling thread is in.
    ///
    /// # Errors
    ///
    /// As [`once`](Self::once).
    pub fn here(&self) -> io::Result<Answer> {
        let answer = match self.protocol {
            Protocol::Tcp => self.connect().and_then(|stream| greeting(&stream)),
            Protocol::Udp => self.send(),
        };
        answer.map_err(timed_out)
    }

    /// Connects with the patience as the limit of the connection and each read.
    pub(super) fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.target, self.patience)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        Ok(stream)
    }

    fn send(&self) -> io::Result<Answer> {
        let socket = self.socket()?;
        if self.resends {
            socket.set_read_timeout(Some(LOST.min(self.patience)))?;
            match ask_by(&socket, QUESTION).map_err(timed_out) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                asked => return asked,
            }
            socket.set_read_timeout(Some(self.patience))?;
        }
        ask_by(&socket, QUESTION)
    }

    /// Opens a socket of which the patience is the limit of each read.
    pub(super) fn socket(&self) -> io::Result<UdpSocket> {
        let any: IpAddr = match self.target {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = bind_fresh(any)?;
        socket.set_read_timeout(Some(self.patience))?;
        socket.connect(self.target)?;
        Ok(socket)
    }
}

/// Asks by a datagram and waits for the answer.
pub(super) fn ask_by(socket: &UdpSocket, words: &[u8]) -> io::Result<Answer> {
    socket.send(words)?;
    let mut buffer = [0; 256];
    let length = socket.recv(&mut buffer)?;
    Answer::parse(&buffer[..length], socket.local_addr()?.ip())
}

/// Binds a socket to a port that was not used for long.
///
/// A port that the kernel chooses may be one used a moment ago, whose flow is
/// still known on the way and would lead to the server it had then.
fn bind_fresh(any: IpAddr) -> io::Result<UdpSocket> {
    const FIRST: usize = 10_000;
    const COUNT: usize = 50_000;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut result = Err(io::ErrorKind::AddrInUse.into());
    for _ in 0..10 {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = u16::try_from(port).expect("less than 60,000");
        result = UdpSocket::bind((any, port));
        match &result {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => (),
            _ => break,
        }
    }
    result
}

impl Answer {
    fn parse(line: &[u8], own: IpAddr) -> io::Result<Self> {
        let text = String::from_utf8_lossy(line);
        text.trim_end()
            .rsplit_once(' ')
            .and_then(|(server, client)| {
                Some(Self {
                    server: server.to_owned(),
                    client: client.parse().ok()?,
                    own,
                })
            })
            .ok_or_else(|| {
                let words = format!("not an answer: {text:?}");
                io::Error::new(io::ErrorKind::InvalidData, words)
            })
    }
}

/// Reads the line that a server begins a connection with.
pub(super) fn greeting(stream: &TcpStream) -> io::Result<Answer> {
    let own = stream.local_addr()?.ip();
    let mut line = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        let words = "closed without an answer";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, words));
    }
    Answer::parse(&line, own)
}

/// Gives the kernel's two words for a read that took too long one kind.
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
    fn a_datagram_without_an_answer_is_sent_again_from_the_same_port() {
        let patience = Duration::from_secs(20);
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        server.set_read_timeout(Some(patience)).unwrap();
        let target = server.local_addr().unwrap();
        let clients = thread::spawn(move || {
            let mut buffer = [0; 64];
            let clients = [(); 2].map(|()| server.recv_from(&mut buffer).unwrap().1);
            server.send_to(b"late 127.0.0.1\n", clients[1]).unwrap();
            clients
        });
        let ask = Ask::new(Protocol::Udp, target).patience(patience);
        assert_eq!(ask.resending().here().unwrap().server, "late");
        let [first, second] = clients.join().unwrap();
        assert_eq!(first, second);
    }
}
