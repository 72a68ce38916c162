//! Golden files, written anew.

use anyhow::Result;

use crate::cargo::cargo;
use crate::process::execute;

/// Runs the task: the tests called `golden` of all members write what they
/// would compare.
pub(crate) fn run() -> Result<()> {
    let mut tests = cargo(["test", "--workspace", "--test", "golden"]);
    execute(tests.env("BLESS", "1"))?;
    eprintln!("review the difference before it is committed");
    Ok(())
}
