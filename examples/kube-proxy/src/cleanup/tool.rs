//! Programs of the system, run as children.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

/// Looks for a program where a shell would.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Runs a program with an input and returns what it writes.
///
/// # Errors
///
/// It cannot be run, or fails: with what it says.
pub fn run(program: &Path, args: &[&str], input: &str) -> Result<String> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let words = || format!("{name} {}", args.join(" "));
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(words)?;
    let stdin = child.stdin.take();
    // Apart from reading: it may write before it has read all.
    let output = thread::scope(|scope| {
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        child.wait_with_output()
    })
    .with_context(words)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<_> = said.lines().map(str::trim).collect();
        bail!("{}: {}: {}", words(), output.status, said.join(" "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_their_failures_told() {
        let cat = find("cat").unwrap();
        let long = "a line\n".repeat(100_000);
        assert!(run(&cat, &[], &long).unwrap() == long);
        let error = run(&cat, &["/nonexistent"], "").unwrap_err().to_string();
        assert!(
            error.starts_with("cat /nonexistent: exit status: 1: "),
            "{error}"
        );
        assert!(find("no-such-program-anywhere").is_none());
    }
}
