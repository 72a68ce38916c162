//! Rewrites golden files and pictures.

use anyhow::Result;

use crate::cargo::cargo;
use crate::pictures;
use crate::process::execute;

/// Runs the tests in modules named `golden` with `BLESS=1`, so that they write their
/// golden files instead of comparing them, and renders the pictures.
pub(crate) fn run() -> Result<()> {
    pictures::write()?;
    let tests = [
        "test",
        "--package",
        "proxy-core",
        "--test",
        "memory",
        "golden::",
    ];
    let mut tests = cargo(tests);
    execute(tests.env("BLESS", "1"))?;
    eprintln!("review the diff before you commit it");
    Ok(())
}
