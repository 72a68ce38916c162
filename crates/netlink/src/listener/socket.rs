//! The socket that listens.
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

/// How many datagrams are read at once; the others wait for the next time.
const DATAGRAMS: usize = 1 << 16;

/// What a listener hears.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Something happened.
    Message(Message<'a>),
    /// More happened than the socket could hold, and what it was is lost.
    ///
    /// All that was heard before is read: who asks for the state now misses
    /// nothing.
    Overrun,
}

/// A socket that hears what happens to the kernel's state, and never waits.
///
/// It stays in the network namespace in which it was opened.
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
    /// Whether something is lost that nobody was told of yet.
    is_lost: bool,
}

impl Listener {
    /// Opens a socket that hears nothing yet, in the network namespace of the
    /// calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the kernel lacks the protocol, or has no room.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let io = |operation| move |source| Error::Io { operation, source };
        let mut inner =
            netlink_sys::Socket::new(protocol.number()).map_err(io("open a netlink socket"))?;
        inner.bind_auto().map_err(io("bind a netlink socket"))?;
        // Connected, nobody but the kernel can send to it.
        inner
            .connect(&SocketAddr::new(0, 0))
            .map_err(io("connect a netlink socket"))?;
        Ok(Self {
            inner,
            datagram: Vec::with_capacity(BUFFER),
            is_lost: false,
        })
    }

    /// Hears nothing any more of what sockets with these ports do.
    ///
    /// What they do takes no room, either, however much it is.
    /// To be called before [`join`](Self::join); of more than 2,000 ports the
    /// others are heard.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the kernel has no room for the filter.
    pub fn ignore(&self, ports: &[u32]) -> Result<(), Error> {
        SockRef::from(&self.inner)
            .attach_filter(&filter::others_than(ports))
            .map_err(|source| Error::Io {
                operation: "filter what a netlink socket hears",
                source,
            })
    }

    /// Makes room for so many bytes of what happened and was not read yet.
    ///
    /// Only the administrator of the initial user namespace gets more than
    /// `net.core.rmem_max`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the kernel does not know sizes of buffers.
    pub fn set_room(&self, bytes: usize) -> Result<(), Error> {
        // The kernel doubles what it is asked for, in a signed number.
        let half = (bytes / 2).min(i32::MAX as usize / 2);
        sockopt::set_socket_recv_buffer_size_force(self.as_fd(), half)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(self.as_fd(), half))
            .map_err(failed("size the buffer of a netlink socket"))
    }

    /// Hears from now on what the kernel tells a group.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the kernel has no such group, or the caller may not
    /// listen to it.
    pub fn join(&mut self, group: u32) -> Result<(), Error> {
        self.inner
            .add_membership(group)
            .map_err(|source| Error::Io {
                operation: "listen to a netlink group",
                source,
            })
    }

    /// Gives what was heard since the last time to `each`, and does not wait.
    ///
    /// # Errors
    ///
    /// What the system says to reading; nothing will be heard any more then.
    pub fn read(&mut self, mut each: impl FnMut(Event<'_>)) -> Result<(), Error> {
        for _ in 0..DATAGRAMS {
            match receive(self.inner.as_fd(), &mut self.datagram, RecvFlags::DONTWAIT) {
                Ok(()) => self.is_lost |= !tell(&self.datagram, &mut each),
                Err(Error::Overrun | Error::Truncated { .. }) => self.is_lost = true,
                // The kernel goes on to drop what happens until all is read.
                Err(Error::Timeout) => {
                    if std::mem::take(&mut self.is_lost) {
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

/// Gives the messages of a datagram to `each`; false if they are not all there.
fn tell(datagram: &[u8], each: &mut impl FnMut(Event<'_>)) -> bool {
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
