//! Signals that end the process, and the shutdown limit.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use std::{process, thread};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use tracing::error;

/// Time from a signal to the forced end of the process. Kubernetes sends
/// SIGKILL after ten seconds.
const GRACE: Duration = Duration::from_secs(8);

/// Stack size of the thread that enforces the limit. It only logs.
const STACK: usize = 256 << 10;

/// A descriptor that becomes readable after SIGTERM or SIGINT.
#[derive(Debug)]
pub struct Signals {
    signaled: UnixStream,
}

impl Signals {
    /// Registers handlers for SIGTERM and SIGINT.
    ///
    /// # Errors
    ///
    /// The descriptors or handlers cannot be created.
    pub fn listen() -> io::Result<Self> {
        let (signaled, signal) = UnixStream::pair()?;
        pipe::register(SIGTERM, signal.try_clone()?)?;
        pipe::register(SIGINT, signal)?;
        Ok(Self { signaled })
    }

    /// Ends the process a limited time after a signal, even if it is busy, for
    /// example with a hanging iptables program or name server.
    ///
    /// A running sync has 8 s to finish. Then the process ends with exit code
    /// 1, and the kernel kills the child process that it waits for. Tables of
    /// iptables and transactions of nftables are atomic.
    ///
    /// # Errors
    ///
    /// The descriptors, handlers or thread cannot be created.
    pub fn limit_shutdown() -> io::Result<()> {
        let (mut signaled, signal) = UnixStream::pair()?;
        pipe::register(SIGTERM, signal.try_clone()?)?;
        pipe::register(SIGINT, signal)?;
        let wait = move || {
            // Only the signal handler writes, and nothing closes the
            // descriptor.
            let _ = signaled.read_exact(&mut [0]);
            thread::sleep(GRACE);
            error!(
                "shutdown did not finish within {GRACE:?} after the signal; exiting now, and the rules stay"
            );
            process::exit(1);
        };
        let builder = thread::Builder::new().name("shutdown".to_owned());
        builder.stack_size(STACK).spawn(wait).map(drop)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signaled.as_fd()
    }
}
