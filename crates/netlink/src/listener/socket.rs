//! A non-blocking socket that receives notifications.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::net::RecvFlags;
use socket2::SockRef;

use super::filter;
use crate::descriptor::{BUFFER, Descriptor, io_error, receive};
use crate::message::{Content, Message, Messages, OwnedMessage};
use crate::{Error, EventSource, Protocol, SocketOption};

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
/// let mut listener = Listener::open(Protocol::ROUTE)?;
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
    descriptor: Descriptor,
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
        Ok(Self::new(Descriptor::open(protocol)?))
    }

    /// Uses an existing descriptor of a netlink socket, with its options and memberships.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the descriptor is not a netlink socket, or a system call fails.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Error> {
        Descriptor::from_fd(fd).map(Self::new)
    }

    fn new(descriptor: Descriptor) -> Self {
        Self {
            descriptor,
            datagram: Vec::with_capacity(BUFFER),
            has_overrun: false,
        }
    }

    /// Enables or disables an option.
    ///
    /// With [`SocketOption::NoEnobufs`], lost notifications are not reported.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the kernel rejects the option, or if the socket is an
    /// [existing descriptor](Self::from_fd) (`ErrorKind::Unsupported`).
    pub fn set_option(&self, option: SocketOption, value: bool) -> Result<(), Error> {
        self.descriptor.set_option(option, value)
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
        SockRef::from(&self.descriptor)
            .attach_filter(&filter::exclude(port_ids))
            .map_err(io_error("attach a filter to a netlink socket"))
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
        self.descriptor.set_recv_buffer_size(bytes)
    }

    /// Joins a multicast group by its number.
    ///
    /// [`Socket::generic_family`](crate::Socket::generic_family) returns the numbers of
    /// the groups of a generic netlink family.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the group does not exist, the caller lacks the capability to
    /// join it, or the socket is an [existing descriptor](Self::from_fd).
    pub fn join(&mut self, group: u32) -> Result<(), Error> {
        self.descriptor.join(group)
    }

    /// Leaves a multicast group by its number.
    ///
    /// Notifications that were received before remain to be [read](Self::read).
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the group does not exist, or the socket is an
    /// [existing descriptor](Self::from_fd).
    pub fn leave(&mut self, group: u32) -> Result<(), Error> {
        self.descriptor.leave(group)
    }

    /// Calls `each` for every event since the last call. Does not block.
    ///
    /// One call reads at most 65,536 datagrams.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if reading fails; the listener is unusable then.
    pub fn read(&mut self, each: impl FnMut(Event<'_>)) -> Result<(), Error> {
        self.read_up_to(MAX_DATAGRAMS, each)?;
        Ok(())
    }

    /// Reads at most `datagrams` datagrams, and calls `each` for every event. Does not block.
    ///
    /// Returns whether everything was read. Otherwise the descriptor stays readable. An
    /// overrun is reported by the call that reads the last notification before it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if reading fails; the listener is unusable then.
    pub fn read_up_to(
        &mut self,
        datagrams: usize,
        mut each: impl FnMut(Event<'_>),
    ) -> Result<bool, Error> {
        for _ in 0..datagrams {
            match receive(
                self.descriptor.as_fd(),
                &mut self.datagram,
                RecvFlags::DONTWAIT,
            ) {
                Ok(()) => self.has_overrun |= !deliver(&self.datagram, &mut each),
                Err(Error::Overrun | Error::Truncated { .. }) => self.has_overrun = true,
                // After an overrun the kernel drops notifications until all are read.
                Err(Error::Timeout) => {
                    if std::mem::take(&mut self.has_overrun) {
                        each(Event::Overrun);
                    }
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

impl EventSource for Listener {
    type Event = OwnedMessage;
    type Error = Error;

    fn read_events(
        &mut self,
        datagrams: usize,
        mut each: impl FnMut(Result<OwnedMessage, Error>),
    ) -> Result<bool, Error> {
        self.read_up_to(datagrams, |event| {
            each(match event {
                Event::Message(message) => Ok(message.into()),
                Event::Overrun => Err(Error::NotificationsLost),
            });
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
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
