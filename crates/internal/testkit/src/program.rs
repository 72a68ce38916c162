//! Creates program files.
//!
//! A file that any process has open for writing cannot be executed (ETXTBSY), and a
//! child forked by another thread holds the open files of this process.
//! For this reason child processes write the files.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Creates or replaces a program by a shell script. The old program may be running.
///
/// # Errors
///
/// If the file cannot be written.
pub fn script(path: &Path, script: &str) -> io::Result<()> {
    let write =
        r#"printf '#!/bin/sh\n%s\n' "$1" >"$0.new" && chmod 755 "$0.new" && mv "$0.new" "$0""#;
    let mut shell = Command::new("sh");
    shell.args(["-c", write]).arg(path).arg(script);
    make(path, &mut shell)
}

/// Creates a copy of a program.
///
/// # Errors
///
/// If a file cannot be read or written.
pub fn copy(from: &Path, path: &Path) -> io::Result<()> {
    make(path, Command::new("cp").arg(from).arg(path))
}

fn make(path: &Path, command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let (path, message) = (path.display(), message.trim());
    Err(io::Error::other(format!("create {path}: {message}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoped::Directory;

    #[test]
    fn scripts_and_their_copies_run() {
        let folder = Directory::new().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        script(&first, "echo 'one'\necho \"$1\"").unwrap();
        copy(&first, &second).unwrap();
        script(&first, "exit 1").unwrap();
        let output = Command::new(&second).arg("two").output().unwrap();
        assert_eq!(output.stdout, b"one\ntwo\n");
        assert!(!Command::new(&first).status().unwrap().success());
        let error = copy(&folder.path().join("none"), &second).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
    }
}
