//! Reading of the lists of match `recent`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::fs;
use std::io::ErrorKind;

use vipline_iptables::evaluate::RecentLookup;
use vipline_iptables::{Jiffies, RecentEntry};

use crate::backend::evaluate::{RecentLists, is_listed};

/// Folders of the lists of both families, in the network namespace of the calling thread.
pub(in crate::backend) const FOLDER: &str = "/proc/thread-self/net/xt_recent";

/// Files with the current time.
pub(in crate::backend) const TIMER_LIST: &str = "/proc/timer_list";
pub(in crate::backend) const UPTIME: &str = "/proc/uptime";

/// The lists of the kernel. Nodes have thousands, and an evaluation reads few.
///
/// The time is that of the creation.
pub(in crate::backend) struct InstalledLists {
    time: Option<Jiffies>,
}

impl InstalledLists {
    /// Reads the current time.
    pub(in crate::backend) fn new() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            time: Jiffies::parse(&read(TIMER_LIST), &read(UPTIME)),
        }
    }
}

impl RecentLists for InstalledLists {
    fn has(&self, lookup: &RecentLookup<'_>) -> Option<bool> {
        match fs::read_to_string(format!("{FOLDER}/{}", lookup.name)) {
            Ok(text) => is_listed(&RecentEntry::parse_list(&text).ok()?, lookup, self.time),
            // The list was created after the rules were read, or was deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => Some(false),
            Err(_) => None,
        }
    }
}
