//! Fault injection into connections.

use std::net::{Shutdown, TcpStream as Socket};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use std::{io, mem};

use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::faults::{CutAfter, Disconnect, Layer};

/// Handle to a connection for fault injection.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Socket,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    mode: Mode,
    cut_after: Option<CutAfter>,
    /// Wakers of tasks that wait for a stalled connection.
    wakers: Vec<Waker>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Mode {
    #[default]
    Open,
    Hung,
    Cut,
}

/// A stream that closes or stalls with its link.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    stream: T,
    link: Arc<Link>,
    layer: Layer,
}

impl Link {
    /// Creates a link from a second handle to the connection's socket.
    pub(crate) fn new(socket: Socket) -> Self {
        Self {
            socket,
            inner: Mutex::default(),
        }
    }

    /// Closes the connection.
    pub(crate) fn cut(&self, disconnect: Disconnect) {
        // Fails if the client has already closed the connection, which is fine.
        let _ = match disconnect {
            Disconnect::Close => self.socket.shutdown(Shutdown::Both),
            Disconnect::Reset => {
                set_socket_linger(&self.socket, Some(Duration::ZERO)).map_err(io::Error::from)
            }
        };
        self.enter(Mode::Cut);
    }

    /// Stalls or resumes reading and writing.
    pub(crate) fn hang(&self, hang: bool) {
        self.enter(if hang { Mode::Hung } else { Mode::Open });
    }

    /// Closes the connection after some more bytes; [`None`] cancels an earlier order.
    pub(crate) fn cut_after(&self, cut_after: Option<CutAfter>) {
        lock(&self.inner).cut_after = cut_after;
    }

    fn enter(&self, mode: Mode) {
        let mut inner = lock(&self.inner);
        if inner.mode != Mode::Cut {
            inner.mode = mode;
        }
        let wakers = mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns ready when reading and writing may continue.
    fn poll_open(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = lock(&self.inner);
        if inner.mode == Mode::Cut {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if !inner.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            inner.wakers.push(cx.waker().clone());
        }
        match inner.mode {
            Mode::Hung => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Returns the number of bytes that may be written before the cut.
    fn left(&self, layer: Layer) -> Option<usize> {
        let inner = lock(&self.inner);
        let cut_after = inner.cut_after.filter(|cut| cut.layer == layer)?;
        Some(cut_after.bytes)
    }

    fn written(&self, layer: Layer, bytes: usize) {
        let mut inner = lock(&self.inner);
        if let Some(cut) = inner.cut_after.as_mut().filter(|cut| cut.layer == layer) {
            cut.bytes -= bytes.min(cut.bytes);
        }
    }

    fn cut_here(&self) -> io::Error {
        let cut_after = lock(&self.inner).cut_after;
        self.cut(cut_after.map_or(Disconnect::Close, |cut| cut.disconnect));
        io::ErrorKind::ConnectionAborted.into()
    }
}

impl<T> Guarded<T> {
    pub(crate) fn new(stream: T, link: Arc<Link>, layer: Layer) -> Self {
        Self {
            stream,
            link,
            layer,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.link.poll_open(cx))?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.link.poll_open(cx))?;
        let left = self.link.left(self.layer);
        if left == Some(0) {
            // Flushes, so that the bytes before the cut arrive.
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            return Poll::Ready(Err(self.link.cut_here()));
        }
        let buf = &buf[..buf.len().min(left.unwrap_or(usize::MAX))];
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.link.written(self.layer, written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.link.poll_open(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.link.poll_open(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Locks a mutex, even if another thread panicked with the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
