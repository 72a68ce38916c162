//! The signals that end the program, and the time that it has for that.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use std::{process, thread};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use tracing::error;

/// Time from a signal to the end of the process; Kubernetes kills it after ten seconds.
const GRACE: Duration = Duration::from_secs(8);

/// Stack of the thread that waits for the signal, which only logs.
const STACK: usize = 256 << 10;

/// Becomes readable when the program was asked to end.
#[derive(Debug)]
pub struct Signals {
    asked: UnixStream,
}

impl Signals {
    /// Begins to listen for SIGTERM and SIGINT.
    ///
    /// # Errors
    ///
    /// The system has no room for it.
    pub fn listen() -> io::Result<Self> {
        let (asked, signal) = UnixStream::pair()?;
        pipe::register(SIGTERM, signal.try_clone()?)?;
        pipe::register(SIGINT, signal)?;
        Ok(Self { asked })
    }

    /// Ends the process after a signal, even if it is busy: with a program of iptables that hangs,
    /// or a name server that does not answer.
    ///
    /// A sync that is under way has 8 s to end. Then the process ends with exit code 1, and the
    /// kernel kills the program that it waits for. A table of iptables and a transaction of
    /// nftables are applied as a whole or not at all.
    ///
    /// # Errors
    ///
    /// The system has no room for it.
    pub fn limit_shutdown() -> io::Result<()> {
        let (mut asked, signal) = UnixStream::pair()?;
        pipe::register(SIGTERM, signal.try_clone()?)?;
        pipe::register(SIGINT, signal)?;
        let wait = move || {
            // Only a signal writes to it, and nothing closes it.
            let _ = asked.read_exact(&mut [0]);
            thread::sleep(GRACE);
            error!("still busy {GRACE:?} after the signal: ending now; the rules stay");
            process::exit(1);
        };
        let builder = thread::Builder::new().name("shutdown".to_owned());
        builder.stack_size(STACK).spawn(wait).map(drop)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.asked.as_fd()
    }
}
