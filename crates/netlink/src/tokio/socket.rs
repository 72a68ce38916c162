//! Notifications for which a task waits.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixDatagram as Datagram;

use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::task::coop::consume_budget;

use crate::descriptor::io_error;
use crate::{Error, EventSource};

/// Datagrams that are read before the first of their events is returned.
///
/// Few, because the rest is better kept in the receive buffer of the kernel, whose size is known
/// and whose overrun is reported.
const DATAGRAMS: usize = 64;

/// The events of a listener or a monitor, for which a task waits.
///
/// ```no_run
/// # async fn f() -> Result<(), vipline_netlink::Error> {
/// use vipline_netlink::tokio::EventStream;
/// use vipline_netlink::{Error, Listener, Protocol};
///
/// const RTNLGRP_LINK: u32 = 1;
///
/// let mut listener = Listener::open(Protocol::ROUTE)?;
/// listener.join(RTNLGRP_LINK)?;
/// let mut events = EventStream::new(listener)?;
/// loop {
///     match events.next().await {
///         Ok(link) => println!("a link changed: {link:?}"),
///         Err(Error::NotificationsLost) => println!("many links changed: dump them"),
///         Err(error) => return Err(error),
///     }
/// }
/// # }
/// ```
///
/// The type does not implement `Stream`, for which you do not need it:
/// `futures_util::stream::unfold(events, async |mut events| Some((events.next().await, events)))`
/// is one.
#[derive(Debug)]
pub struct EventStream<S: EventSource> {
    source: S,
    /// A duplicate of the descriptor, which is only waited for.
    ///
    /// `AsyncFd` would be the type for any descriptor, but its constructor is `unsafe`, because
    /// `AsRawFd` of the source may return another number each time. A datagram socket of
    /// tokio owns its descriptor, and waits for one of any kind.
    readiness: UnixDatagram,
    /// Events that were read and not yet returned.
    received: VecDeque<Result<S::Event, S::Error>>,
}

impl<S: EventSource> EventStream<S> {
    /// Takes a source, whose descriptor becomes non-blocking.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the descriptor cannot be duplicated or registered.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio with IO (`Builder::enable_io`).
    pub fn new(source: S) -> Result<Self, Error> {
        let duplicate = source.as_fd().try_clone_to_owned();
        let descriptor = duplicate.map_err(io_error("duplicate the descriptor of a listener"))?;
        let descriptor = Datagram::from(descriptor);
        let register = io_error("wait for the descriptor of a listener");
        descriptor.set_nonblocking(true).map_err(&register)?;
        Ok(Self {
            source,
            readiness: UnixDatagram::from_std(descriptor).map_err(&register)?,
            received: VecDeque::new(),
        })
    }

    /// Waits for the next event.
    ///
    /// Notifications that were lost are [`Error::NotificationsLost`], after all events that were
    /// received before. Dump the objects, and call again.
    ///
    /// Cancel safe: if another branch of `select!` completes first, no event is lost.
    ///
    /// # Errors
    ///
    /// Those of [`EventSource::read_events`], including those that it passes on in place of an
    /// event.
    pub async fn next(&mut self) -> Result<S::Event, S::Error> {
        loop {
            // If events arrive faster than they are processed, this task never waits for
            // anything else, and the other tasks of its thread would not run.
            consume_budget().await;
            if let Some(event) = self.received.pop_front() {
                return event;
            }
            // The kernel may report an overrun after the last datagram was read: then the
            // socket has an error and no data, and drops notifications until somebody reads
            // the error.
            let ready = self.readiness.ready(Interest::READABLE | Interest::ERROR);
            let ready = ready.await.map_err(io_error("wait for notifications"))?;
            self.read(if ready.is_readable() {
                Interest::READABLE
            } else {
                Interest::ERROR
            });
        }
    }

    /// Reads events. Forgets that the descriptor is ready if everything was read.
    fn read(&mut self, interest: Interest) {
        let Self {
            source,
            readiness,
            received,
        } = self;
        // No other error than `WouldBlock` is returned to tokio, which forgets the readiness.
        let _ = readiness.try_io(interest, || {
            let read = source.read_events(DATAGRAMS, |event| received.push_back(event));
            match read {
                Ok(true) => Err(io::ErrorKind::WouldBlock.into()),
                Ok(false) => Ok(()),
                Err(error) => {
                    received.push_back(Err(error));
                    Ok(())
                }
            }
        });
    }

    /// Returns the source.
    pub fn get_ref(&self) -> &S {
        &self.source
    }

    /// Returns the source, such as to join another group.
    ///
    /// Do not read its events: those that the stream has read already come first.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Returns the source. Drops the events that were read and not yet returned.
    pub fn into_inner(self) -> S {
        self.source
    }
}
