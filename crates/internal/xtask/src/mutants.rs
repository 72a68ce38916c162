//! Changes the code in many ways by cargo-mutants, and lists the changes that no test notices.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cargo::{cargo, metadata, root};
use crate::process::{execute, execute_within};
use crate::tools;

/// Packages, their files to change, and the tests that must notice the changes.
///
/// The tests are in memory, so that a change takes seconds. The files are a pattern of
/// cargo-mutants.
const SUITES: [(&str, &str, &[&str]); 3] = [
    (
        "vipline-reconcile",
        "crates/reconcile/src/**",
        &["--lib", "--test=laws", "--test=rejections"],
    ),
    (
        "vipline-service-model",
        "crates/service-model/src/**",
        &["--lib", "--tests"],
    ),
    (
        "proxy-core",
        "crates/proxy-core/src/backend/*/plan/**",
        &["--lib", "--test=memory"],
    ),
];

/// Time limit of a package.
const LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Time limit of the tests of one change, in seconds.
const TEST_SECONDS: &str = "120";

/// Number of cases of each law with the default number.
const CASES: &str = "32";

/// Numbers of changes of a package, from `outcomes.json`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
struct Score {
    caught: usize,
    missed: usize,
    timeout: usize,
    /// Changes that do not compile.
    unviable: usize,
}

impl Score {
    /// Reads the results of cargo-mutants.
    fn read(folder: &Path) -> Result<Self> {
        let file = folder.join("mutants.out/outcomes.json");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Ok(serde_json::from_str(&text)?)
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            caught,
            missed,
            timeout,
            unviable,
        } = self;
        // A test that does not end notices the change.
        let noticed = caught + timeout;
        let percent = 100.0 * noticed as f64 / (noticed + missed).max(1) as f64;
        write!(
            f,
            "{caught} caught, {missed} missed, {timeout} timeouts, {unviable} unviable: {percent:.1} %"
        )
    }
}

/// Runs the task. Missed changes are no error: a change may be equivalent to the code.
pub(crate) fn run(filter: &str, list: bool) -> Result<()> {
    let target = metadata()?.target_directory;
    let program = find(&target.join("tools"))?;
    let mut scores = Vec::new();
    for (package, files, tests) in SUITES {
        let output = target.join("mutants").join(package);
        fs::create_dir_all(&output)?;
        let mut mutants = Command::new(&program);
        mutants
            .args(["mutants", "--package", package, "--file", files])
            .args(["--re", &regex::escape(filter), "--cap-lints=true"])
            .current_dir(root());
        if list {
            execute(mutants.arg("--list"))?;
            continue;
        }
        mutants
            .env("PROPTEST_CASES", CASES)
            .args(["--timeout", TEST_SECONDS, "--output"])
            .arg(&output)
            .arg("--")
            .args(tests);
        // Results of an earlier run would count again if no file matches the filter.
        let earlier = output.join("mutants.out/outcomes.json");
        if earlier.exists() {
            fs::remove_file(&earlier)?;
        }
        // The exit code reports missed changes.
        let result = execute_within(LIMIT, &mut mutants);
        match (Score::read(&output), result) {
            (Ok(score), _) => scores.push((package, score)),
            // No file matches the filter.
            (Err(_), Ok(())) => {}
            (Err(_), Err(error)) => return Err(error),
        }
    }
    for (package, score) in scores {
        println!("{package}: {score}");
    }
    Ok(())
}

/// Returns the path of cargo-mutants. Installs it in a folder if necessary.
fn find(folder: &Path) -> Result<PathBuf> {
    if let Some(program) = tools::find("cargo-mutants") {
        return Ok(program);
    }
    let program = folder.join("bin/cargo-mutants");
    if !program.is_file() {
        // Most of its time it waits for cargo, so it needs no optimization.
        let install = ["install", "--locked", "--debug", "cargo-mutants", "--root"];
        execute(cargo(install).arg(folder))?;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_counts_timeouts_as_noticed_and_leaves_out_unviable_changes() {
        let outcomes = r#"{"outcomes": [], "total_mutants": 12, "missed": 1, "caught": 6,
            "timeout": 1, "unviable": 4, "success": 0}"#;
        let score: Score = serde_json::from_str(outcomes).unwrap();
        assert_eq!(
            score.to_string(),
            "6 caught, 1 missed, 1 timeouts, 4 unviable: 87.5 %"
        );
    }
}
