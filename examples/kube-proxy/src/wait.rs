//! The only place where the main thread blocks.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Waits until `first` or one of the others is readable, or until a timeout.
/// Returns whether `first` is readable.
///
/// # Errors
///
/// The `poll` system call fails, except with EINTR.
pub fn readable(
    first: BorrowedFd<'_>,
    others: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let all = [first].into_iter().chain(others.iter().copied());
    let mut waited: Vec<_> = all
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    // A timeout beyond the kernel's range is no timeout.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut waited, timeout.as_ref()) {
        Ok(_) => {}
        // A signal handler has run. Its descriptor is readable in the next
        // call.
        Err(Errno::INTR) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    Ok(waited
        .first()
        .is_some_and(|first| !first.revents().is_empty()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_the_first_descriptor_counts_as_first() {
        let (first, mut first_end) = UnixStream::pair().unwrap();
        let (second, mut second_end) = UnixStream::pair().unwrap();
        let brief = Some(Duration::from_millis(1));
        let wait = |timeout| readable(first.as_fd(), &[second.as_fd()], timeout).unwrap();
        assert!(!wait(brief));
        second_end.write_all(b"x").unwrap();
        assert!(!wait(None));
        first_end.write_all(b"x").unwrap();
        assert!(wait(Some(Duration::MAX)));
    }
}
