//! Accepts or refuses connections and performs TLS handshakes.

use std::net::{SocketAddr, TcpListener as Socket};
use std::sync::{Arc, mpsc};
use std::{future, io};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use rustix::net::{Shutdown, listen, shutdown};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::faults::Layer;
use crate::link::{Guarded, Link};
use crate::state::State;

const BACKLOG: u16 = 1024;

/// Stream of an HTTP connection.
type Stream = Guarded<TlsStream<Guarded<TcpStream>>>;

/// Client of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) link: Arc<Link>,
    /// Whether the client presented a valid certificate.
    pub(crate) certified: bool,
}

/// An order to change the listening state, with a channel for its completion.
pub(crate) type Order = (Listen, mpsc::Sender<()>);

/// Listening state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Listen {
    Accept,
    Refuse,
}

/// Connections with a completed TLS handshake.
#[derive(Debug)]
pub(crate) struct Accepted(UnboundedReceiver<(Stream, Peer)>);

/// A listening or bound socket.
#[derive(Debug)]
enum Port {
    Open(TcpListener),
    /// The bound socket keeps the port. It is the same socket, because a closed one may
    /// still be open in a forked child before its `execve`.
    Bound(Socket),
}

/// Binds a port and listens on it.
///
/// # Errors
///
/// If the port is in use.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    // Binds again to the port that the kernel chose: an explicitly bound port stays
    // reserved when the socket stops listening.
    let chosen = bound(address)?;
    bound(chosen.local_addr()?)?.listen(BACKLOG.into())
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Accepts connections according to `orders`, until the runtime ends.
pub(crate) fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    state: Arc<State>,
    orders: UnboundedReceiver<Order>,
) -> Accepted {
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(run(listener, tls, state, orders, sender));
    Accepted(receiver)
}

async fn run(
    listener: TcpListener,
    tls: TlsAcceptor,
    state: Arc<State>,
    mut orders: UnboundedReceiver<Order>,
    accepted: UnboundedSender<(Stream, Peer)>,
) -> io::Result<()> {
    let mut port = Port::Open(listener);
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some((order, done)) = order else { return Ok(()) };
                port = port.obey(order)?;
                // The sender of the order may have gone.
                let _ = done.send(());
            }
            connection = port.accept() => {
                // The connection may have ended before it was accepted.
                if let Ok(stream) = connection {
                    let handshake = shake_hands(stream, tls.clone(), Arc::clone(&state), accepted.clone());
                    tokio::spawn(handshake);
                }
            }
        }
    }
}

/// Performs the TLS handshake of a connection. Drops the connection if it fails.
async fn shake_hands(
    stream: TcpStream,
    tls: TlsAcceptor,
    state: Arc<State>,
    accepted: UnboundedSender<(Stream, Peer)>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    let link = Arc::new(Link::new(stream.try_clone()?));
    state.admit(&link);
    let stream = TcpStream::from_std(stream)?;
    let raw = Guarded::new(stream, Arc::clone(&link), Layer::Tcp);
    let stream = tls.accept(raw).await?;
    let certified = stream.get_ref().1.peer_certificates().is_some();
    let peer = Peer {
        link: Arc::clone(&link),
        certified,
    };
    // The server may be shutting down.
    let _ = accepted.send((Guarded::new(stream, link, Layer::Http), peer));
    Ok(())
}

impl Port {
    fn obey(self, order: Listen) -> io::Result<Self> {
        Ok(match (self, order) {
            (Self::Open(listener), Listen::Refuse) => {
                let socket = listener.into_std()?;
                shutdown(&socket, Shutdown::Read)?;
                Self::Bound(socket)
            }
            (Self::Bound(socket), Listen::Accept) => {
                listen(&socket, BACKLOG.into())?;
                Self::Open(TcpListener::from_std(socket)?)
            }
            (port, _) => port,
        })
    }

    async fn accept(&self) -> io::Result<TcpStream> {
        match self {
            Self::Open(listener) => Ok(listener.accept().await?.0),
            Self::Bound(_) => future::pending().await,
        }
    }
}

impl Listener for Accepted {
    type Io = Stream;
    type Addr = Peer;

    async fn accept(&mut self) -> (Stream, Peer) {
        match self.0.recv().await {
            Some(accepted) => accepted,
            // The runtime is ending.
            None => future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Connected<IncomingStream<'_, Accepted>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Accepted>) -> Self {
        stream.remote_addr().clone()
    }
}
