//! The monitor: what others change, as the kernel tells it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::os::fd::{AsFd, BorrowedFd};

use vipline_netlink::{Event, Listener, Protocol};

use super::{Commit, Notifications};
use crate::{Error, TableId};

/// `NFNLGRP_NFTABLES` of `linux/netfilter/nfnetlink.h`.
const GROUP: u32 = 7;

/// How many bytes of notices there is room for, if the system allows it: what
/// others do to tables of their own fills it, too.
const ROOM: usize = 4 << 20;

/// Hears what others change in some tables, and never waits.
///
/// It stays in the network namespace in which it was opened.
/// While anybody listens the kernel has more work with each commit, so the
/// time to open it is after a first, large one.
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
    notices: Notifications,
}

/// What a monitor heard.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Notification {
    /// The commits that changed the tables.
    pub commits: Vec<Commit>,
    /// Whether more was changed than could be heard: then who wants to know
    /// the tables has to dump them.
    pub is_incomplete: bool,
}

impl Monitor {
    /// Watches these tables in the network namespace of the calling thread,
    /// except for what [clients](crate::Client::port_id) with these ports do.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] when the kernel has no nfnetlink, or what else it
    /// says to a listener.
    pub fn open(tables: &[TableId], ours: &[u32]) -> Result<Self, Error> {
        Self::open_with(Notifications::new(tables), ours)
    }

    /// Watches what [`Notifications`] count, except for what clients with these ports do.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(notices: Notifications, ours: &[u32]) -> Result<Self, Error> {
        let mut listener = Listener::open(Protocol::Netfilter)?;
        listener.ignore(ours)?;
        listener.set_room(ROOM)?;
        listener.join(GROUP)?;
        Ok(Self { listener, notices })
    }

    /// Returns what was heard since the last time.
    ///
    /// # Errors
    ///
    /// What the system says to reading; nothing will be heard any more then.
    pub fn read(&mut self) -> Result<Notification, Error> {
        let (mut heard, notices) = (Notification::default(), &mut self.notices);
        self.listener.read(|event| {
            let taken = match event {
                Event::Message(message) => notices.push(message),
                _ => {
                    notices.reset();
                    heard.is_incomplete = true;
                    return;
                }
            };
            match taken {
                Ok(commit) => heard.commits.extend(commit),
                // What it was about may be in our tables.
                Err(_) => heard.is_incomplete = true,
            }
        })?;
        Ok(heard)
    }

    /// Makes room for so many bytes of notices that were not read yet.
    ///
    /// # Errors
    ///
    /// What the system says to it.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> Result<(), Error> {
        Ok(self.listener.set_room(bytes)?)
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
