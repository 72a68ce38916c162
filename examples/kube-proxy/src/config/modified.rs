//! Detection of changes of the configuration file by its time, on systems without inotify.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Time between two checks.
const INTERVAL: Duration = Duration::from_secs(5);

/// The time at which a configuration file was written. A missing file counts as unchanged.
#[derive(Clone, Debug)]
pub struct Modified {
    path: PathBuf,
    written: Option<SystemTime>,
    next: Duration,
}

impl Modified {
    /// Reads the time of a file.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            written: written(path),
            next: INTERVAL,
        }
    }

    /// Returns whether the file was written or replaced since the start. Looks at the file
    /// once per interval.
    pub fn has_changed(&mut self, now: Duration) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + INTERVAL;
        let written = written(&self.path);
        written.is_some() && written != self.written
    }

    /// Returns the time of the next check.
    pub fn next_deadline(&self) -> Duration {
        self.next
    }
}

fn written(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|it| it.modified()).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use testkit::scoped::Directory;

    use super::*;

    #[test]
    fn writing_is_a_change_and_removal_is_none() {
        let folder = Directory::new().unwrap();
        let path = folder.path().join("config.yaml");
        fs::write(&path, "a").unwrap();
        let mut modified = Modified::new(&path);
        assert!(!modified.has_changed(INTERVAL));
        assert_eq!(modified.next_deadline(), 2 * INTERVAL);
        let later = SystemTime::now() + Duration::from_secs(60);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(later).unwrap();
        assert!(!modified.has_changed(INTERVAL), "not before the next check");
        assert!(modified.has_changed(2 * INTERVAL));
        fs::remove_file(&path).unwrap();
        assert!(!modified.has_changed(3 * INTERVAL));
    }
}
