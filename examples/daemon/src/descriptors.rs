//! The number of files and sockets that a process may open.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit, as Go programs do, and returns the
/// limit in force. systemd and containerd start programs with a soft limit of 1,024, because
/// of programs that use `select`.
///
/// # Errors
///
/// The limit that stays in force, and the error of the system call.
pub fn raise_limit() -> Result<usize, (usize, Errno)> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let count = |limit: Rlimit| {
        let current = limit.current.and_then(|limit| usize::try_from(limit).ok());
        current.unwrap_or(usize::MAX)
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => Ok(count(raised)),
        Err(error) => Err((count(limit), error)),
    }
}
