//! What is heard of others by a monitor of nf_tables.

use vipline_nftables::{Monitor, Notification, TableId};

use crate::Drift;

/// Reads a monitor, if there is one.
///
/// One that fails is dropped: then everything may have been done.
pub(crate) fn read(monitor: &mut Option<Monitor>) -> Option<Notification> {
    match monitor.as_mut()?.read() {
        Ok(heard) => Some(heard),
        Err(_) => {
            *monitor = None;
            let mut heard = Notification::default();
            heard.is_incomplete = true;
            Some(heard)
        }
    }
}

/// Returns what was done to some tables, if anything was.
pub(crate) fn drift(heard: &Notification, is_watched: impl Fn(&TableId) -> bool) -> Option<Drift> {
    let mut drift = Drift {
        is_lost: heard.is_incomplete,
        ..Drift::default()
    };
    for commit in &heard.commits {
        let changes = commit.changes.iter();
        for (_, changes) in changes.filter(|(table, _)| is_watched(table)) {
            drift.add(Drift {
                changes: changes.total(),
                by: vec![commit.process.to_string().into()],
                is_lost: false,
            });
        }
    }
    (drift != Drift::default()).then_some(drift)
}
