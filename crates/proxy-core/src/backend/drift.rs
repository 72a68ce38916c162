//! What is heard of others by a monitor of nf_tables.

use vipline_nftables::{Monitor, Notification, TableId};

use crate::Drift;

/// Reads a monitor, if there is one.
///
/// One that fails is dropped: then everything may have been done.
pub(crate) fn read(monitor: &mut Option<Monitor>) -> Option<Notification> {
    match monitor.as_mut()?.read() {
        Ok(notification) => Some(notification),
        Err(_) => {
            *monitor = None;
            let mut notification = Notification::default();
            notification.is_incomplete = true;
            Some(notification)
        }
    }
}

/// Returns what was done to some tables, if anything was.
pub(crate) fn of_tables(
    notification: &Notification,
    is_watched: impl Fn(&TableId) -> bool,
) -> Option<Drift> {
    let mut drift = Drift {
        is_incomplete: notification.is_incomplete,
        ..Drift::default()
    };
    for commit in &notification.commits {
        let changes = commit.changes.iter();
        for (_, changes) in changes.filter(|(table, _)| is_watched(table)) {
            drift.add(Drift {
                changes: changes.total(),
                processes: vec![commit.process.to_string().into()],
                is_incomplete: false,
            });
        }
    }
    (drift != Drift::default()).then_some(drift)
}
