//! The one place where the program waits.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Waits until the first or one of the others becomes readable, or for a time;
/// tells whether the first one did.
///
/// # Errors
///
/// What the kernel says to waiting for them.
pub fn readable(
    first: BorrowedFd<'_>,
    others: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let all = [first].into_iter().chain(others.iter().copied());
    let mut waited: Vec<_> = all
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    // A timeout too long for the kernel is as good as none.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut waited, timeout.as_ref()) {
        Ok(_) => {}
        // A signal: whoever wants to know reads of it next time.
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
    fn the_first_is_told_from_the_others() {
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
