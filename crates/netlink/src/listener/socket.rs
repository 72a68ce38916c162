//! A non-blocking socket that receives notifications.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::SocketAddr;
use rustix::net::{RecvFlags, sockopt};
use socket2::SockRef;

use super::filter;
use crate::message::{Content, Message, Messages};
use crate::socket::{BUFFER, failed, receive};
use crate::{Error, Protocol};

/// Maximum number of datagrams that one call of [`Listener::read`] reads.
const MAX_DATAGRAMS: usize = 1 << 16;

/// An event of a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A notification.
    Message(Message<'a>),
    /// Notifications were lost: the receive buffer was full, or a datagram was malformed
    /// or too large.
    ///
    /// All notifications before the overrun have been read, so a dump after this
    /// event misses no change.
    Overrun,
}

/// A non-blocking socket that receives the notifications of multicast groups.
///
/// The socket stays in the network namespace in which it was opened.
///
/// ```no_run
/// use vipline_netlink::{Error, Event, Listener, Protocol};
///
/// const RTNLGRP_LINK: u32 = 1;
///
/// let mut listener = Listener::open(Protocol::Route)?;
/// listener.join(RTNLGRP_LINK)?;
/// // Once the descriptor is readable:
/// listener.read(|event| match event {
///     Event::Message(link) => println!("a link changed: {link:?}"),
///     _ => println!("many links changed"),
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    inner: netlink_sys::Socket,
    datagram: Vec<u8>,
    /// Whether an overrun has not been reported yet.
    has_overrun: bool,
}

impl Listener {
    /// Opens a socket without group memberships in the network namespace of the calling
    /// thread.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the kernel lacks the protocol or memory.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let io = |operation| move |source| Error::Io { operation, source };
        let mut inner =
            netlink_sys::Socket::new(protocol.number()).map_err(io("open a netlink socket"))?;
        inner.bind_auto().map_err(io("bind a netlink socket"))?;
        // A connected socket receives messages of the kernel only.
        inner
            .connect(&SocketAddr::new(0, 0))
            .map_err(io("connect a netlink socket"))?;
        Ok(Self {
            inner,
            datagram: Vec::with_capacity(BUFFER),
            has_overrun: false,
        })
    }

    /// Drops notifications of changes by the sockets with the given port IDs.
    ///
    /// The kernel drops the notifications, so they neither wake the listener nor fill
    /// its receive buffer.
    /// Call before [`join`](Self::join). A second call replaces the port IDs.
    /// Port IDs after the first 2,047 have no effect.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the kernel has no memory for the filter.
    pub fn ignore_port_ids(&self, port_ids: &[u32]) -> Result<(), Error> {
        SockRef::from(&self.inner)
            .attach_filter(&filter::exclude(port_ids))
            .map_err(|source| Error::Io {
                operation: "attach a filter to a netlink socket",
                source,
            })
    }

    /// Sets the size of the receive buffer, in bytes.
    ///
    /// Without `CAP_NET_ADMIN` in the initial user namespace, the size is silently
    /// limited to twice `net.core.rmem_max`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the system call fails.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> Result<(), Error> {
        // The kernel doubles the requested size, in a signed integer.
        let half = (bytes / 2).min(i32::MAX as usize / 2);
        sockopt::set_socket_recv_buffer_size_force(self.as_fd(), half)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(self.as_fd(), half))
            .map_err(failed("set the receive buffer size of a netlink socket"))
    }

    /// Joins a multicast group by its number.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the group does not exist or the caller lacks the capability to
    /// join it.
    pub fn join(&mut self, group: u32) -> Result<(), Error> {
        self.inner
            .add_membership(group)
            .map_err(|source| Error::Io {
                operation: "join a netlink multicast group",
                source,
            })
    }

    /// Calls `each` for every event since the last call. Does not block.
    ///
    /// One call reads at most 65,536 datagrams.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if reading fails; the listener is unusable then.
    pub fn read(&mut self, mut each: impl FnMut(Event<'_>)) -> Result<(), Error> {
        for _ in 0..MAX_DATAGRAMS {
            match receive(self.inner.as_fd(), &mut self.datagram, RecvFlags::DONTWAIT) {
                Ok(()) => self.has_overrun |= !deliver(&self.datagram, &mut each),
                Err(Error::Overrun | Error::Truncated { .. }) => self.has_overrun = true,
                // After an overrun the kernel drops notifications until all are read.
                Err(Error::Timeout) => {
                    if std::mem::take(&mut self.has_overrun) {
                        each(Event::Overrun);
                    }
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// Calls `each` for the messages of a datagram, and returns whether all are intact.
fn deliver(datagram: &[u8], each: &mut impl FnMut(Event<'_>)) -> bool {
    Messages::new(datagram).all(|message| match message {
        Ok(message) => match message.content() {
            Ok(Content::Data) => {
                each(Event::Message(message));
                true
            }
            Ok(Content::Noop) => true,
            _ => false,
        },
        Err(_) => false,
    })
}
