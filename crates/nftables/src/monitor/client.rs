//! The monitor socket.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use vipline_netlink::{EventSource, Listener, Protocol};

use super::{Commit, Notifications, Process};
use crate::{Client, Error, Ruleset, TableId};

// linux/netfilter/nfnetlink.h: enum nfnetlink_groups
const NFNLGRP_NFTABLES: u32 = 7;

/// Default size of the receive buffer in bytes, if the system allows it.
///
/// The notifications of all tables share the buffer.
const RECV_BUFFER_SIZE: usize = 4 << 20;

/// Monitors changes that other processes make to tables. Does not block.
///
/// The monitor stays in the network namespace in which it was opened.
/// The kernel does more work per commit while a monitor is open. If the first
/// commit is large, open the monitor after it.
///
/// ```no_run
/// use vipline_nftables::{Client, Family, Monitor, Name, TableId};
///
/// let client = Client::open()?;
/// let table = TableId::new(Family::Inet, Name::new("firewall")?);
/// let mut monitor = Monitor::open(&[table], &[client.port_id()])?;
/// // Once the descriptor is readable:
/// for commit in monitor.read()?.commits {
///     println!("{} changed {:?}", commit.process, commit.changes);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Monitor {
    listener: Listener,
    notifications: Notifications,
}

/// Changes reported by [`Monitor::read`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Notification {
    /// Commits that changed the tables.
    pub commits: Vec<Commit>,
    /// Whether notifications were lost. A dump then shows the state of the tables.
    pub is_incomplete: bool,
}

impl Notification {
    /// Returns the number of changes of tables that match, and the process, for each commit.
    pub fn changes_of(
        &self,
        matches: impl Fn(&TableId) -> bool,
    ) -> impl Iterator<Item = (usize, &Process)> {
        let commits = self.commits.iter();
        commits.filter_map(move |commit| {
            let tables = commit.changes.iter();
            let changes = tables.filter(|(table, _)| matches(table));
            let count = changes.map(|(_, changes)| changes.total()).sum();
            (count > 0).then_some((count, &commit.process))
        })
    }
}

impl Monitor {
    /// Reads a monitor if it is open. Returns `None` if it is not.
    ///
    /// A monitor that fails is closed, and the result then says that notifications were lost.
    /// The reason does not matter: whatever was missed, only a dump tells.
    pub fn read_or_close(monitor: &mut Option<Self>) -> Option<Notification> {
        let read = monitor.as_mut()?.read();
        Some(read.unwrap_or_else(|_| {
            *monitor = None;
            Notification {
                is_incomplete: true,
                ..Notification::default()
            }
        }))
    }

    /// Monitors tables in the network namespace of the calling thread.
    ///
    /// Ignores changes by sockets with the port IDs `ignored`, such as those of own
    /// [clients](crate::Client::port_id).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`]: the kernel has no nfnetlink.
    /// [`Error::Netlink`]: the socket cannot be opened or configured, with `EPERM` if
    /// `CAP_NET_ADMIN` is missing.
    pub fn open(tables: &(impl AsRef<[TableId]> + ?Sized), ignored: &[u32]) -> Result<Self, Error> {
        Self::open_with(Notifications::new(tables), ignored)
    }

    /// Monitors with a configured decoder, such as one with a filter.
    ///
    /// With [events](Notifications::with_events), dumps the tables to learn the sets that
    /// exist.
    ///
    /// ```no_run
    /// use vipline_nftables::{Monitor, Notifications};
    ///
    /// let mut monitor = Monitor::open_with(Notifications::all().with_events(), &[])?;
    /// // Once the descriptor is readable:
    /// for commit in monitor.read()?.commits {
    ///     for event in &commit.events {
    ///         println!("{} {}: {event}", commit.generation.0, commit.process);
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and those of [`Client::dump`] with events.
    pub fn open_with(notifications: Notifications, ignored: &[u32]) -> Result<Self, Error> {
        let mut listener = Listener::open(Protocol::NETFILTER)?;
        listener.ignore_port_ids(ignored)?;
        listener.set_recv_buffer_size(RECV_BUFFER_SIZE)?;
        listener.join(NFNLGRP_NFTABLES)?;
        let mut monitor = Self {
            listener,
            notifications,
        };
        // A set that is added meanwhile is in the dump, or in a notification, or in both.
        if monitor.notifications.has_events() {
            let mut client = Client::open()?;
            let tables = match monitor.notifications.tables() {
                Some(tables) => tables.to_vec(),
                None => client.tables()?.into_iter().map(|table| table.id).collect(),
            };
            monitor.learn_sets(&client.dump(&tables)?);
        }
        Ok(monitor)
    }

    /// Learns the sets of a dump after [lost notifications](Notification::is_incomplete), to
    /// decode their elements ([`Notifications::with_events`]).
    pub fn learn_sets(&mut self, installed: &Ruleset) {
        self.notifications.learn_sets(installed);
    }

    /// Returns the changes since the last call. Does not block.
    ///
    /// A call reads at most 65,536 datagrams. The descriptor stays readable if more are
    /// pending.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`]: the socket failed. Open another monitor.
    pub fn read(&mut self) -> Result<Notification, Error> {
        let mut notification = Notification::default();
        let notifications = &mut self.notifications;
        self.listener
            .read(|event| match notifications.receive(event) {
                Ok(commit) => notification.commits.extend(commit),
                // The malformed message may concern a monitored table.
                Err(_) => notification.is_incomplete = true,
            })?;
        Ok(notification)
    }

    /// Sets the size of the receive buffer in bytes. Default: 4 MiB.
    ///
    /// Without `CAP_NET_ADMIN` in the initial user namespace, the kernel limits the size
    /// to `net.core.rmem_max`.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`]: the system call failed.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> Result<(), Error> {
        Ok(self.listener.set_recv_buffer_size(bytes)?)
    }
}

impl Notifications {
    /// Processes an event of the listener. Returns a commit if the event completes one.
    fn receive(
        &mut self,
        event: vipline_netlink::Event<'_>,
    ) -> Result<Option<Commit>, vipline_netlink::Error> {
        match event {
            vipline_netlink::Event::Message(message) => Ok(self.push(message)?),
            _ => {
                self.reset();
                Err(vipline_netlink::Error::NotificationsLost)
            }
        }
    }
}

/// A commit that is incomplete, because notifications were lost or are malformed, is an error. A
/// dump then shows the state of the tables.
impl EventSource for Monitor {
    type Event = Commit;
    type Error = Error;

    fn read_events(
        &mut self,
        datagrams: usize,
        mut each: impl FnMut(Result<Commit, Error>),
    ) -> Result<bool, Error> {
        let notifications = &mut self.notifications;
        let is_read = self.listener.read_up_to(datagrams, |event| {
            let commit = notifications.receive(event).map_err(Error::from);
            if let Some(commit) = commit.transpose() {
                each(commit);
            }
        })?;
        Ok(is_read)
    }
}

vipline_netlink::impl_as_fd!(Monitor, listener);
