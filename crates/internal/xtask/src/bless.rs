//! Rewrites golden files and pictures.

use anyhow::Result;

use crate::cargo::cargo;
use crate::pictures;
use crate::process::execute;

/// Runs the test binaries named `golden` of all packages with `BLESS=1`, so that
/// they write their golden files instead of comparing them, and renders the pictures.
pub(crate) fn run() -> Result<()> {
    pictures::write()?;
    let mut tests = cargo(["test", "--workspace", "--test", "golden"]);
    execute(tests.env("BLESS", "1"))?;
    eprintln!("review the diff before you commit it");
    Ok(())
}
