//! Network namespaces in which sockets are opened.
#![allow(clippy::disallowed_types, reason = "IO file")]

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Error;
use crate::descriptor::{failed, io_error};

/// A network namespace.
///
/// A socket stays in the namespace in which it was opened. To open a client of any
/// Vipline crate in another namespace, call its `open` in [`run`](Self::run).
///
/// ```no_run
/// use vipline_netlink::{NetworkNamespace, Protocol, Socket};
///
/// let pod = NetworkNamespace::open("/run/netns/pod")?;
/// let socket = pod.run(|| Socket::open(Protocol::ROUTE))??;
/// # Ok::<(), vipline_netlink::Error>(())
/// ```
#[derive(Debug)]
pub struct NetworkNamespace {
    fd: OwnedFd,
}

impl NetworkNamespace {
    /// Opens a namespace by its path, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let file = File::open(path).map_err(io_error("open a network namespace"))?;
        Ok(Self { fd: file.into() })
    }

    /// Opens the namespace of the calling thread. Requires a mounted `/proc`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if `/proc/thread-self/ns/net` cannot be opened.
    pub fn current() -> Result<Self, Error> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// Calls `work` in the namespace, on the calling thread, and returns its value.
    ///
    /// The thread returns to its namespace before this function returns, also after a
    /// panic of `work`. `work` must not move the thread into a further namespace.
    /// Requires `CAP_SYS_ADMIN` in the user namespaces of both network namespaces.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the thread cannot leave and re-enter its namespace, or cannot
    /// enter this one. `work` was not called.
    ///
    /// # Panics
    ///
    /// If the thread cannot return to its namespace, which the kernel allowed before.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        let origin = Self::current()?;
        // A thread that may not enter its own namespace could not return.
        origin
            .enter()
            .map_err(failed("re-enter the network namespace of the thread"))?;
        self.enter().map_err(failed("enter a network namespace"))?;
        let _return = Return(origin);
        Ok(work())
    }

    /// Moves the calling thread into the namespace.
    fn enter(&self) -> rustix::io::Result<()> {
        move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Uses a descriptor of a namespace. Entering fails if the descriptor is not of one.
impl From<OwnedFd> for NetworkNamespace {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

/// Moves the thread back into its namespace when dropped.
struct Return(NetworkNamespace);

impl Drop for Return {
    fn drop(&mut self) {
        let entered = self.0.enter();
        assert!(
            entered.is_ok() || std::thread::panicking(),
            "return to the network namespace of the thread: {entered:?}"
        );
    }
}
