//! A socket that hears what happens to flows.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::os::fd::{AsFd, BorrowedFd};

use vipline_netlink::{Listener, Protocol};

use crate::{Error, Event, Groups};

/// What happens to flows, without waiting for it.
///
/// It stays in the network namespace in which it was opened.
/// The kernel tells of flows that begin once somebody listens; where
/// `net.netfilter.nf_conntrack_events` is 0 it tells nothing, and where it is 2,
/// as it is by default, nothing of flows that were there before.
///
/// ```no_run
/// use vipline_conntrack::{Error, Event, Events, Groups};
///
/// let mut events = Events::open(Groups::NEW | Groups::DESTROY, &[])?;
/// // Once the descriptor is readable:
/// events.read(|event| match event {
///     Event::New(flow) => println!("[NEW] {flow}"),
///     Event::Destroy(flow) => println!("[DESTROY] {flow}"),
///     _ => println!("many flows came and went"),
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Events {
    listener: Listener,
}

impl Events {
    /// Listens in the network namespace of the calling thread.
    ///
    /// What sockets with the `ignored` ports do is not heard, such as that of
    /// the own [`Client`](crate::Client::port_id).
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the kernel lacks netfilter, or the caller may not
    /// listen.
    pub fn open(groups: Groups, ignored: &[u32]) -> Result<Self, Error> {
        let mut listener = Listener::open(Protocol::Netfilter)?;
        if !ignored.is_empty() {
            listener.ignore_port_ids(ignored)?;
        }
        for group in groups.numbers() {
            listener.join(group)?;
        }
        Ok(Self { listener })
    }

    /// Makes room for so many bytes of what happened and was not read yet.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the kernel does not know sizes of buffers.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> Result<(), Error> {
        Ok(self.listener.set_recv_buffer_size(bytes)?)
    }

    /// Gives what was heard since the last time to `each`, and does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::Decode`] of the first message that is no event, once all
    /// others are told; what the system says to reading, and nothing will be
    /// heard any more then.
    pub fn read(&mut self, mut each: impl FnMut(Event)) -> Result<(), Error> {
        let mut wrong = None;
        self.listener.read(|heard| match heard {
            vipline_netlink::Event::Message(message) => match Event::decode(&message) {
                Ok(Some(event)) => each(event),
                Ok(None) => {}
                Err(error) => wrong = wrong.or(Some(error)),
            },
            _ => each(Event::Overrun),
        })?;
        wrong.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
