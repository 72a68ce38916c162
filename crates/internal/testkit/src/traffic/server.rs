//! Servers that answer with their name and the client's address.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Protocol;
use crate::netns::Netns;

/// Interval of checking whether to stop.
const TICK: Duration = Duration::from_millis(20);

/// A server in a namespace. Closes its connections and its port when dropped.
///
/// The answer is one line: the server's name, a space, and the client's address as seen
/// by the server.
/// A TCP server then echoes all data until the client closes the connection.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server at `address` in a namespace. Port 0 selects a free port.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub fn start(
        netns: &Netns,
        protocol: Protocol,
        address: SocketAddr,
        name: &str,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let requests = Arc::new(AtomicUsize::new(0));
        let shared = Shared {
            name: name.to_owned(),
            requests: Arc::clone(&requests),
            stop: Arc::clone(&stop),
        };
        let (address, thread) = netns.run(move || match protocol {
            Protocol::Tcp => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                let thread = thread::spawn(move || shared.serve_connections(&listener));
                io::Result::Ok((address, thread))
            }
            Protocol::Udp => {
                let socket = UdpSocket::bind(address)?;
                socket.set_read_timeout(Some(TICK))?;
                let address = socket.local_addr()?;
                let thread = thread::spawn(move || shared.serve_datagrams(&socket));
                Ok((address, thread))
            }
        })?;
        Ok(Self {
            address,
            requests,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of requests.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State shared by the threads of a server.
struct Shared {
    name: String,
    requests: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Shared {
    fn serve_connections(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            while !self.stopped() {
                match listener.accept() {
                    Ok((stream, peer)) => {
                        scope.spawn(move || self.serve_connection(stream, peer.ip()));
                    }
                    Err(_) => wait_readable(listener),
                }
            }
        });
    }

    /// Answers, then echoes. Ignores errors, which the client reports.
    fn serve_connection(&self, mut stream: TcpStream, client: IpAddr) {
        let ready = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(TICK)));
        if ready.is_err() || stream.write_all(&self.answer(client)).is_err() {
            return;
        }
        let mut buffer = [0; 4096];
        while !self.stopped() {
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) if stream.write_all(&buffer[..length]).is_err() => return,
                Err(error) if !is_timeout(&error) => return,
                Ok(_) | Err(_) => (),
            }
        }
    }

    fn serve_datagrams(&self, socket: &UdpSocket) {
        let mut buffer = [0; 64];
        while !self.stopped() {
            if let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&self.answer(peer.ip()), peer);
            }
        }
    }

    fn answer(&self, client: IpAddr) -> Vec<u8> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        format!("{} {client}\n", self.name).into_bytes()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Waits for a connection, for at most [`TICK`].
fn wait_readable(listener: &TcpListener) {
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: TICK.subsec_nanos().into(),
    };
    let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&tick));
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
