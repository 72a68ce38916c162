//! Rewrites golden files and pictures.

use anyhow::Result;

use crate::cargo::cargo;
use crate::pictures;
use crate::process::execute;

/// Runs the tests in modules named `golden` with `BLESS=1`, so that they write their
/// golden files instead of comparing them, and renders the pictures.
pub(crate) fn run() -> Result<()> {
    pictures::write()?;
    for (package, test) in [("proxy-core", "memory"), ("kube-proxy", "binary")] {
        let tests = ["test", "--package", package, "--test", test, "golden::"];
        execute(cargo(tests).env("BLESS", "1"))?;
    }
    eprintln!("review the diff before you commit it");
    Ok(())
}
