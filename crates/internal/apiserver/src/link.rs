//! A connection that can be cut at any byte, or hang.

use std::net::{Shutdown, TcpStream as Socket};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use std::{io, mem};

use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::faults::{CutAfter, Ending, Layer};
use crate::state::lock;

/// One connection, as those see it who may cut it.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Socket,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    mode: Mode,
    cut_after: Option<CutAfter>,
    /// Those who wait for the connection to go on or to end.
    wakers: Vec<Waker>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Mode {
    #[default]
    Open,
    Hung,
    Cut,
}

/// A stream that ends or hangs when its link does.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    stream: T,
    link: Arc<Link>,
    layer: Layer,
}

impl Link {
    /// Makes one of a second handle to the connection's socket.
    pub(crate) fn new(socket: Socket) -> Self {
        Self {
            socket,
            inner: Mutex::default(),
        }
    }

    /// Cuts the connection now.
    pub(crate) fn cut(&self, ending: Ending) {
        // A socket that the client closed already cannot be cut: all the same.
        let _ = match ending {
            Ending::Close => self.socket.shutdown(Shutdown::Both),
            Ending::Reset => {
                set_socket_linger(&self.socket, Some(Duration::ZERO)).map_err(io::Error::from)
            }
        };
        self.enter(Mode::Cut);
    }

    /// Stops or goes on reading and writing.
    pub(crate) fn hang(&self, hang: bool) {
        self.enter(if hang { Mode::Hung } else { Mode::Open });
    }

    /// Cuts the connection after some more bytes, or not if `None`.
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

    /// Is ready when reading and writing may go on.
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

    /// Returns how many bytes may be written until the cut.
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
        self.cut(cut_after.map_or(Ending::Close, |cut| cut.ending));
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
            // What was written is to arrive.
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
