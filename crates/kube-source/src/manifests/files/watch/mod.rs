//! Detection of changed manifests: by inotify on Linux, elsewhere by time.

#[cfg(target_os = "linux")]
mod inotify;

#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", allow(dead_code, reason = "only tests use it"))]
mod interval;

use std::collections::BTreeSet;
use std::ffi::OsString;

#[cfg(target_os = "linux")]
pub(crate) use inotify::Watch;
#[cfg(not(target_os = "linux"))]
pub(crate) use interval::Watch;

/// Names of changed files.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Changes {
    /// Files that were written, moved or removed.
    pub(crate) changed: BTreeSet<OsString>,
    /// Files that were created, still empty, or whose mode changed.
    pub(crate) maybe_changed: BTreeSet<OsString>,
    /// Whether any file may have changed.
    pub(crate) all: bool,
}
