//! iptables programs for tests: real programs with a separate lock, and fake programs.

use std::path::PathBuf;
use std::{fs, io};

use crate::program;
use crate::scoped::Directory;

/// A folder of programs, removed when dropped.
///
/// The legacy variant has one lock for the whole host.
/// The programs of [`variant`](Self::variant) use a lock in the folder instead, so that
/// tests do not wait for each other or for other processes.
#[derive(Debug)]
pub struct Programs {
    folder: Directory,
}

impl Programs {
    /// Creates an empty folder.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created.
    pub fn new() -> io::Result<Self> {
        let folder = Directory::new()?;
        let programs = Self { folder };
        fs::write(programs.lock(), "")?;
        Ok(programs)
    }

    /// Creates a program from a shell script, and returns its path.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn script(&self, name: &str, script: &str) -> io::Result<PathBuf> {
        let path = self.path(name);
        program::script(&path, script)?;
        Ok(path)
    }

    /// Creates programs that run `PREFIX-save`, `PREFIX-restore` and `PREFIX` with the
    /// folder's lock, and returns the paths of the first two.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn variant(&self, prefix: &str) -> io::Result<[PathBuf; 2]> {
        let make = |name: String| {
            let lock = self.lock();
            let script = format!(
                "PATH=$PATH:/usr/sbin:/sbin XTABLES_LOCKFILE={} exec {name} \"$@\"",
                lock.display()
            );
            self.script(&name, &script)
        };
        make(prefix.to_owned())?;
        Ok([
            make(format!("{prefix}-save"))?,
            make(format!("{prefix}-restore"))?,
        ])
    }

    /// Returns the path of the lock file of [`variant`](Self::variant), for `flock`.
    pub fn lock(&self) -> PathBuf {
        self.path("lock")
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use std::path::Path;

    use super::*;
    use crate::netns::Netns;

    #[test]
    fn programs_of_a_variant_run_the_real_ones_with_a_separate_lock() {
        let programs = Programs::new().unwrap();
        let [save, restore] = programs.variant("iptables-legacy").unwrap();
        let netns = Netns::new().unwrap();
        let run = |program: &Path, args: &[&str]| {
            let output = netns.run(|| {
                Command::new(program)
                    .args(args)
                    .stdin(Stdio::null())
                    .output()
                    .unwrap()
            });
            String::from_utf8(output.stdout).unwrap()
        };
        assert!(run(&restore, &["--version"]).starts_with("iptables-restore v1."));
        assert!(run(&save, &["-t", "filter"]).contains("\n:INPUT ACCEPT "));
    }

    #[test]
    fn a_script_runs_with_its_arguments() {
        let programs = Programs::new().unwrap();
        let path = programs.script("say", "echo \"$1 'it'\" %s").unwrap();
        let output = Command::new(path).arg("say").output().unwrap();
        assert_eq!(output.stdout, b"say 'it' %s\n");
    }
}
