//! The privilege that namespaces need.

use std::time::Duration;
use std::{fs, io, thread};

use rustix::process::{getgid, getuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::netns::Netns;

/// Makes sure that the process may make network namespaces.
///
/// Root may; anybody else becomes root of a user namespace of their own, in
/// which everything but what is made in it stays out of reach.
/// To be called while the process has one thread.
///
/// # Errors
///
/// Neither works, and why the second did not.
pub fn become_root() -> io::Result<()> {
    let (user, group) = (getuid(), getgid());
    if user.is_root() && Netns::new().is_ok() {
        return Ok(());
    }
    alone(enter_user_namespace).map_err(|error| {
        let words = format!("neither root nor allowed to make a user namespace: {error}");
        io::Error::new(error.kind(), words)
    })?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))?;
    Netns::new().map(drop)
}

/// Tries again while a thread that ended is still on its way out.
fn alone(work: impl Fn() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..100 {
        match work() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
    work()
}

/// Moves the process into a new user namespace.
#[allow(unsafe_code, reason = "unshare can break other flags' invariants")]
fn enter_user_namespace() -> io::Result<()> {
    // SAFETY: only the credentials change; no file descriptor, mapping or file
    // system attribute that Rust relies on does.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    Ok(())
}
