//! A TLS endpoint with a server's certificate, which forwards connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// A TLS endpoint in front of a TCP server, such as the HTTPS side of a proxy.
///
/// Its certificate is that of the [`ApiServer`](crate::ApiServer) that started it.
/// It closes all connections when dropped.
#[derive(Debug)]
pub struct TlsTerminator {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TlsTerminator {
    /// Listens on a free port of the address of `target`, to which connections are
    /// forwarded.
    pub(crate) fn start(config: Arc<ServerConfig>, target: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((target.ip(), 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = thread::Builder::new()
            .name("tls-terminator".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        // The thread ends in either case.
                        _ = serve(listener, config.into(), target) => (),
                        _ = stopped => (),
                    }
                });
            })?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the address on which the endpoint listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TlsTerminator {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed.
            let _ = thread.join();
        }
    }
}

async fn serve(
    listener: std::net::TcpListener,
    tls: TlsAcceptor,
    target: SocketAddr,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(forward(stream, tls.clone(), target));
    }
}

async fn forward(stream: TcpStream, tls: TlsAcceptor, target: SocketAddr) -> io::Result<()> {
    let mut stream = tls.accept(stream).await?;
    let mut target = TcpStream::connect(target).await?;
    copy_bidirectional(&mut stream, &mut target).await?;
    Ok(())
}
