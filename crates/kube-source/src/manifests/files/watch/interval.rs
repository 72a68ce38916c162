//! All files are read again at intervals, on systems without inotify.

use std::io;
use std::time::Duration;

use super::Changes;
use crate::manifests::files::directory::Directory;

/// Time between two reads.
const INTERVAL: Duration = Duration::from_secs(5);

/// Knows when files are read next.
#[derive(Debug)]
pub(crate) struct Watch {
    next: Duration,
}

impl Watch {
    #[allow(clippy::unnecessary_wraps, reason = "inotify can fail")]
    pub(crate) fn open(_: &Directory) -> io::Result<Self> {
        Ok(Self { next: INTERVAL })
    }

    /// Returns that all files may have changed if the interval is over.
    #[allow(clippy::unnecessary_wraps, reason = "inotify can fail")]
    pub(crate) fn changes(&mut self, _: &Directory, now: Duration) -> io::Result<Changes> {
        let is_due = now >= self.next;
        if is_due {
            self.next = now + INTERVAL;
        }
        Ok(Changes {
            all: is_due,
            ..Changes::default()
        })
    }

    /// Returns the time of the next read.
    #[allow(clippy::unnecessary_wraps, reason = "inotify needs no time")]
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        Some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn files_are_read_once_per_interval() {
        let directory = Directory::new(Path::new(".")).unwrap();
        let mut watch = Watch::open(&directory).unwrap();
        let mut is_due = |seconds| {
            let now = Duration::from_secs(seconds);
            let changes = watch.changes(&directory, now).unwrap();
            (changes.all, watch.next_deadline().unwrap().as_secs())
        };
        assert_eq!(is_due(4), (false, 5));
        assert_eq!(is_due(7), (true, 12));
        assert_eq!(is_due(7), (false, 12));
        assert_eq!(is_due(12), (true, 17));
    }
}
