//! Privileges to create network namespaces.

use std::time::Duration;
use std::{fs, io, thread};

use rustix::process::{getgid, getuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::netns::Netns;

/// Acquires the privilege to create network namespaces.
///
/// A process without the privilege becomes root of a new user namespace, which has no
/// privileges outside.
/// Must be called while the process has only one thread.
///
/// # Errors
///
/// If the process is not root and cannot create a user namespace.
pub fn become_root() -> io::Result<()> {
    let (user, group) = (getuid(), getgid());
    if user.is_root() && Netns::new().is_ok() {
        return Ok(());
    }
    retry_until_single_threaded(enter_user_namespace).map_err(|error| {
        let message = format!("not root, and creating a user namespace failed: {error}");
        io::Error::new(error.kind(), message)
    })?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))?;
    Netns::new().map(drop)
}

/// Retries on EINVAL: a thread that has ended may not have exited yet.
fn retry_until_single_threaded(work: impl Fn() -> io::Result<()>) -> io::Result<()> {
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
    // SAFETY: only credentials change; no file descriptor, mapping or file system
    // attribute that Rust relies on changes.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    Ok(())
}
