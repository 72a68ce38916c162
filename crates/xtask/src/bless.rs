//! Golden files, written anew.

use anyhow::Result;

use crate::cargo::{cargo, execute};

/// Runs the task: tests that compare with golden files write them instead.
pub(crate) fn run() -> Result<()> {
    let mut tests = cargo(["test", "--workspace", "--", "golden"]);
    execute(tests.env("BLESS", "1"))?;
    eprintln!("review the difference before it is committed");
    Ok(())
}
