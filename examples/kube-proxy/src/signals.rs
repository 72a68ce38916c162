//! The signals that end the program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

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
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.asked.as_fd()
    }
}
