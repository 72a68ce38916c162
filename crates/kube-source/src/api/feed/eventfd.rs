//! A wakeup by an eventfd, which a caller can wait for together with other descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Wakes the thread of the receiver.
#[derive(Debug)]
pub(super) struct Wakeup {
    eventfd: OwnedFd,
    /// Whether the eventfd was written since the last [`clear`](Self::clear). It saves a system
    /// call for each item of a list of ten thousand objects.
    is_set: AtomicBool,
}

impl Wakeup {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            // Nonblocking, because `clear` reads it also if it is not set. Not inherited: the proxy
            // starts programs, which would keep it open.
            eventfd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_set: AtomicBool::new(false),
        })
    }

    /// Wakes the thread now, or at its next [`wait`](Self::wait).
    pub(super) fn set(&self) {
        if !self.is_set.swap(true, Ordering::AcqRel) {
            // The only error of a valid eventfd is EAGAIN of a full counter, which is readable
            // as well.
            let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Resets the wakeup. Items sent before the call are visible after it.
    pub(super) fn clear(&self) {
        let mut count = [0; 8];
        // EAGAIN if it was not set, which is the state that is wanted.
        let _ = rustix::io::read(&self.eventfd, &mut count);
        // After the read. In the other order a sender in between would write, the read would
        // take its wakeup away, and `is_set` would keep all later senders from writing: the
        // thread would sleep for ever. In this order a sender in between writes nothing, but its
        // item is queued and will be seen. A swap and not a store, because it must see that item:
        // the swap reads what the sender wrote (acquire).
        self.is_set.swap(false, Ordering::AcqRel);
    }

    /// Waits until the wakeup is set. Returns `false` after the timeout or a signal.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        // A timeout beyond the kernel's range is no timeout.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut files = [PollFd::new(&self.eventfd, PollFlags::IN)];
        match poll(&mut files, timeout.as_ref()) {
            Ok(count) => Ok(count > 0),
            // A signal. The caller looks at its flags, such as the request to stop.
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
