//! Programs of iptables for tests: real ones that disturb nobody, and others.

use std::path::PathBuf;
use std::{fs, io};

use crate::leftovers::Directory;
use crate::program;

/// A folder with programs that a test wrote, gone when dropped.
///
/// The legacy variant has one lock for the whole machine; started through
/// programs of [`variant`](Self::variant), it has a lock for each folder, so
/// tests neither wait for each other nor make others wait.
#[derive(Debug)]
pub struct Programs {
    folder: Directory,
}

impl Programs {
    /// Makes an empty folder.
    ///
    /// # Errors
    ///
    /// The folder cannot be made.
    pub fn new() -> io::Result<Self> {
        let folder = Directory::new()?;
        let programs = Self { folder };
        fs::write(programs.lock(), "")?;
        Ok(programs)
    }

    /// Makes a program of a shell script, and returns its path.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn script(&self, name: &str, script: &str) -> io::Result<PathBuf> {
        let path = self.path(name);
        program::script(&path, script)?;
        Ok(path)
    }

    /// Makes programs that run those of iptables with these names: the paths of
    /// `PREFIX-save` and `PREFIX-restore`.
    ///
    /// # Errors
    ///
    /// The files cannot be written.
    pub fn variant(&self, prefix: &str) -> io::Result<[PathBuf; 2]> {
        let make = |name: String| {
            let lock = self.lock();
            let script = format!(
                "PATH=$PATH:/usr/sbin:/sbin XTABLES_LOCKFILE={} exec {name} \"$@\"",
                lock.display()
            );
            self.script(&name, &script)
        };
        Ok([
            make(format!("{prefix}-save"))?,
            make(format!("{prefix}-restore"))?,
        ])
    }

    /// Returns the lock of the programs of [`variant`](Self::variant), a file
    /// to be locked by `flock`.
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
    fn a_program_of_a_variant_is_the_real_one_with_a_lock_of_its_own() {
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
    fn a_script_is_run_as_it_was_written() {
        let programs = Programs::new().unwrap();
        let path = programs.script("say", "echo \"$1 'it'\" %s").unwrap();
        let output = Command::new(path).arg("say").output().unwrap();
        assert_eq!(output.stdout, b"say 'it' %s\n");
    }
}
