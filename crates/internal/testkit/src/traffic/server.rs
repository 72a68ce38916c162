//! Servers that answer with their name and the client's address.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};

use super::Protocol;
use crate::netns::Netns;

/// A server in a namespace. Closes its connections and its port when dropped.
///
/// The answer is one line: the server's name, a space, and the client's address as seen
/// by the server.
/// A TCP server then echoes all data until the client closes the connection.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    /// Stops the thread when closed.
    stop: Option<UnixStream>,
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
        let (stop, stopped) = UnixStream::pair()?;
        let requests = Arc::new(AtomicUsize::new(0));
        let worker = Worker {
            name: name.to_owned(),
            requests: Arc::clone(&requests),
            stopped,
        };
        let (address, thread) = netns.run(move || match protocol {
            Protocol::Tcp => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                let thread = thread::spawn(move || worker.serve_connections(&listener));
                io::Result::Ok((address, thread))
            }
            Protocol::Udp => {
                let socket = UdpSocket::bind(address)?;
                socket.set_nonblocking(true)?;
                let address = socket.local_addr()?;
                let thread = thread::spawn(move || worker.serve_datagrams(&socket));
                Ok((address, thread))
            }
        })?;
        Ok(Self {
            address,
            requests,
            stop: Some(stop),
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
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the thread of a server, which sleeps until a socket is readable.
struct Worker {
    name: String,
    requests: Arc<AtomicUsize>,
    /// At its end when the server is dropped.
    stopped: UnixStream,
}

impl Worker {
    /// Answers each connection and echoes its data. Ignores errors, which the client
    /// reports.
    fn serve_connections(&self, listener: &TcpListener) {
        let mut streams: Vec<TcpStream> = Vec::new();
        loop {
            let sockets = streams.iter().map(AsFd::as_fd);
            let Some(ready) = self.wait([listener.as_fd()].into_iter().chain(sockets)) else {
                return;
            };
            let mut are_ready = ready[1..].iter();
            streams.retain_mut(|stream| match are_ready.next() {
                Some(true) => echo(stream).is_ok(),
                _ => true,
            });
            while let Ok((mut stream, peer)) = listener.accept() {
                if stream.write_all(&self.answer(peer.ip())).is_ok() {
                    streams.push(stream);
                }
            }
        }
    }

    fn serve_datagrams(&self, socket: &UdpSocket) {
        let mut buffer = [0; 64];
        while self.wait([socket.as_fd()]).is_some() {
            if let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&self.answer(peer.ip()), peer);
            }
        }
    }

    /// Waits until a socket is readable. Returns whether each of them is, or `None` after
    /// the server is dropped.
    fn wait<'a>(&'a self, sockets: impl IntoIterator<Item = BorrowedFd<'a>>) -> Option<Vec<bool>> {
        let sockets = [self.stopped.as_fd()].into_iter().chain(sockets);
        let mut sockets: Vec<_> = sockets
            .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN))
            .collect();
        // After an error, which is an interruption, no socket is ready.
        let _ = poll(&mut sockets, None);
        let mut are_ready = sockets.iter().map(|socket| !socket.revents().is_empty());
        match are_ready.next() {
            Some(true) => None,
            _ => Some(are_ready.collect()),
        }
    }

    fn answer(&self, client: IpAddr) -> Vec<u8> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        format!("{} {client}\n", self.name).into_bytes()
    }
}

/// Sends data of a connection back. The end of the connection is an error.
fn echo(stream: &mut TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length => stream.write_all(&buffer[..length]),
    }
}
