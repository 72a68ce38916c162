//! Drift that an nf_tables monitor reports.

use vipline_nftables::{Monitor, Notification, TableId};

use crate::Drift;

/// Reads the monitor if it is open. Returns `None` if it is not.
///
/// A monitor that fails is closed; the result then says that notifications were lost.
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

/// Returns the changes of other processes to the watched tables, if there are any.
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
