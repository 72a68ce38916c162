//! A socket that receives events of flows.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use vipline_netlink::{EventSource, Listener, Protocol};

use crate::{Error, Event, Groups};

/// A non-blocking socket that receives events of flows.
///
/// The socket stays in the network namespace in which it was opened.
/// With `net.netfilter.nf_conntrack_events=2`, the default since Linux 5.19, the kernel
/// sends events only of flows that are created while a listener exists. With 0 the kernel
/// sends no events.
///
/// ```no_run
/// use vipline_conntrack::{Error, Event, Events, Groups};
///
/// let mut events = Events::open(Groups::NEW | Groups::DESTROY, &[])?;
/// // Once the descriptor is readable:
/// events.read(|event| match event {
///     Event::New(flow) => println!("[NEW] {flow}"),
///     Event::Destroy(flow) => println!("[DESTROY] {flow}"),
///     _ => println!("events were lost"),
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Events {
    listener: Listener,
}

impl Events {
    /// Opens a socket in the network namespace of the calling thread and joins `groups`.
    ///
    /// Changes by sockets with the `ignored` port IDs cause no events, such as the
    /// caller's own [`Client`](crate::Client::port_id). At most 2,047 port IDs are used.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`] if the kernel lacks nfnetlink, or the caller lacks
    /// `CAP_NET_ADMIN`.
    pub fn open(groups: Groups, ignored: &[u32]) -> Result<Self, Error> {
        let mut listener = Listener::open(Protocol::NETFILTER)?;
        if !ignored.is_empty() {
            listener.ignore_port_ids(ignored)?;
        }
        for group in groups.numbers() {
            listener.join(group)?;
        }
        Ok(Self { listener })
    }

    /// Sets the size of the receive buffer, in bytes.
    ///
    /// Without `CAP_NET_ADMIN` in the initial user namespace, the size is silently
    /// limited to twice `net.core.rmem_max`.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`] if the system call fails.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> Result<(), Error> {
        Ok(self.listener.set_recv_buffer_size(bytes)?)
    }

    /// Calls `each` for every event since the last call. Does not block.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`] if the flow of an event is malformed; all other events are
    /// delivered. [`Error::Netlink`] with [`errno`](Error::errno) if reading failed; the
    /// socket is unusable then.
    pub fn read(&mut self, mut each: impl FnMut(Event)) -> Result<(), Error> {
        let mut first_error = None;
        self.listener.read(|event| match decode(event) {
            Some(Ok(event)) => each(event),
            Some(Err(error)) => first_error = first_error.take().or(Some(error)),
            None => {}
        })?;
        first_error.map_or(Ok(()), Err)
    }
}

/// Lost events are [`Error::NotificationsLost`] instead of [`Event::Overrun`].
impl EventSource for Events {
    type Event = Event;
    type Error = Error;

    fn read_events(
        &mut self,
        datagrams: usize,
        mut each: impl FnMut(Result<Event, Error>),
    ) -> Result<bool, Error> {
        let is_read = self
            .listener
            .read_up_to(datagrams, |event| match decode(event) {
                Some(Ok(Event::Overrun)) => each(Err(Error::NotificationsLost)),
                Some(event) => each(event),
                None => {}
            })?;
        Ok(is_read)
    }
}

/// Decodes a notification. Returns `None` for one of something else.
fn decode(event: vipline_netlink::Event<'_>) -> Option<Result<Event, Error>> {
    match event {
        vipline_netlink::Event::Message(message) => {
            Event::decode(&message).map_err(Error::from).transpose()
        }
        _ => Some(Ok(Event::Overrun)),
    }
}

vipline_netlink::impl_as_fd!(Events, listener);
