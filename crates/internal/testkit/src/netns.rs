//! Network namespaces.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::{io, panic, process, thread};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::link;

/// A network namespace, removed when dropped.
///
/// [`run`](Self::run) runs a closure on a thread in the namespace.
/// Sockets, processes and threads that the closure creates are in the namespace, too,
/// and keep it alive.
///
/// ```no_run
/// # use std::process::Command;
/// # use testkit::netns::Netns;
/// let netns = Netns::new()?;
/// let rules = netns.run(|| Command::new("nft").args(["list", "ruleset"]).output())?;
/// assert!(rules.stdout.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Netns {
    handle: File,
}

impl Netns {
    /// Creates a namespace in which `lo` is up.
    ///
    /// # Errors
    ///
    /// If the process lacks CAP_SYS_ADMIN.
    pub fn new() -> io::Result<Self> {
        let handle = on_thread(|| {
            unshare_network()?;
            link::up("lo")?;
            File::open("/proc/thread-self/ns/net")
        })?;
        Ok(Self { handle })
    }

    /// Opens an existing namespace, such as `/run/netns/NAME`.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let handle = File::open(path)?;
        Ok(Self { handle })
    }

    /// Runs `work` on a thread in the namespace and returns its value.
    ///
    /// # Panics
    ///
    /// If `work` panics, with the same payload, or if the thread cannot enter the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        on_thread(|| {
            move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("a namespace that is open can be entered");
            work()
        })
    }

    /// Returns a path of the namespace for other programs.
    ///
    /// The path is valid for `ip link set … netns PATH` and `nsenter --net=PATH` of this
    /// process or a child, while the value exists.
    pub fn path(&self) -> PathBuf {
        let fd = self.handle.as_raw_fd();
        PathBuf::from(format!("/proc/{}/fd/{fd}", process::id()))
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Runs `work` on a new thread.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|payload| panic::resume_unwind(payload))
}

/// Moves the calling thread into a new network namespace.
#[allow(unsafe_code, reason = "unshare can break other flags' invariants")]
fn unshare_network() -> io::Result<()> {
    // SAFETY: the new network namespace affects only the calling thread; no file
    // descriptor, mapping or file system attribute that Rust relies on changes.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::read_link;
    use std::net::TcpListener;
    use std::process::Command;

    use super::*;

    fn current() -> PathBuf {
        read_link("/proc/thread-self/ns/net").unwrap()
    }

    #[test]
    fn a_closure_runs_in_the_namespace_and_the_caller_does_not_move() {
        let before = current();
        let (first, second) = (Netns::new().unwrap(), Netns::new().unwrap());
        let (inside, again, other) = (first.run(current), first.run(current), second.run(current));
        assert_eq!(inside, again);
        assert_ne!(inside, other);
        assert_ne!(inside, before);
        assert_eq!(current(), before);
    }

    #[test]
    fn loopback_is_up_and_sockets_are_isolated() {
        let netns = Netns::new().unwrap();
        let listener = netns.run(|| TcpListener::bind("127.0.0.1:7777")).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(netns.run(|| std::net::TcpStream::connect(address)).is_ok());
        let elsewhere = Netns::new().unwrap();
        let refused = elsewhere.run(|| std::net::TcpStream::connect(address));
        assert_eq!(
            refused.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }

    #[test]
    fn children_inherit_the_namespace_and_can_open_its_path() {
        let netns = Netns::new().unwrap();
        let made = netns.run(|| {
            Command::new("ip")
                .args(["link", "add", "inner", "type", "veth"])
                .output()
        });
        assert!(made.unwrap().status.success());
        let seen = Netns::open(netns.path())
            .unwrap()
            .run(|| Command::new("ip").args(["link", "show", "inner"]).output());
        assert!(seen.unwrap().status.success());
    }

    #[test]
    fn a_panic_of_the_closure_reaches_the_caller() {
        let netns = Netns::new().unwrap();
        let caught = panic::catch_unwind(|| netns.run(|| panic!("inside")));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "inside");
    }
}
