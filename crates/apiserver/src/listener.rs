//! Connections: accepted, given TLS, and handed on; or refused.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::{future, io};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::faults::Layer;
use crate::link::{Guarded, Link};
use crate::state::State;

const BACKLOG: u32 = 1024;

/// What HTTP is spoken on.
type Stream = Guarded<TlsStream<Guarded<TcpStream>>>;

/// Who is on the other side of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) link: Arc<Link>,
    /// Whether it showed a certificate.
    pub(crate) certified: bool,
}

/// An order to listen or not to; the sender is told when it is so.
pub(crate) type Order = (Listen, mpsc::Sender<()>);

/// Whether connections are taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Listen {
    Accept,
    Refuse,
}

/// The connections that are through with TLS.
#[derive(Debug)]
pub(crate) struct Accepted(UnboundedReceiver<(Stream, Peer)>);

/// A port: listened on, or only kept.
#[derive(Debug)]
enum Port {
    Open(TcpListener),
    /// Nobody else can have it meanwhile.
    Kept(TcpSocket),
}

/// Takes a port, and listens on it.
///
/// # Errors
///
/// When it is somebody else's.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    keep(address)?.listen(BACKLOG)
}

/// Accepts connections, as told by `orders`, until the runtime ends.
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
    let address = listener.local_addr()?;
    let mut port = Port::Open(listener);
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some((listen, done)) = order else { return Ok(()) };
                port = port.obey(listen, address);
                // Whoever ordered it may have gone.
                let _ = done.send(());
            }
            connection = port.accept() => {
                // One that is gone before it was taken is nobody's loss.
                if let Ok(stream) = connection {
                    let handshake = shake_hands(stream, tls.clone(), Arc::clone(&state), accepted.clone());
                    tokio::spawn(handshake);
                }
            }
        }
    }
}

/// Gives a connection TLS; one that fails is dropped, as servers do.
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
    // The server may be about to end.
    let _ = accepted.send((Guarded::new(stream, link, Layer::Http), peer));
    Ok(())
}

/// Binds to a port without listening on it.
fn keep(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

impl Port {
    fn obey(self, listen: Listen, address: SocketAddr) -> Self {
        match (self, listen) {
            (Self::Open(listener), Listen::Refuse) => {
                drop(listener);
                Self::Kept(keep(address).expect("the port was ours a moment ago"))
            }
            (Self::Kept(socket), Listen::Accept) => {
                Self::Open(socket.listen(BACKLOG).expect("the port is ours"))
            }
            (port, _) => port,
        }
    }

    async fn accept(&self) -> io::Result<TcpStream> {
        match self {
            Self::Open(listener) => Ok(listener.accept().await?.0),
            Self::Kept(_) => future::pending().await,
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
