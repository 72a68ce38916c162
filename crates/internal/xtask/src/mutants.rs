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

/// Packages, the folders of their files, the part of a path that files to change have, and
/// the tests that must notice the changes.
///
/// The tests are in memory, so that a change takes seconds.
const SUITES: [Suite; 5] = [
    Suite {
        package: "vipline-reconcile",
        folder: "crates/reconcile/src",
        part: "",
        tested_by: &["vipline-reconcile"],
        tests: ["--lib", "--tests"],
    },
    Suite {
        package: "vipline-service-model",
        folder: "crates/service-model/src",
        part: "",
        tested_by: &["vipline-service-model"],
        tests: ["--lib", "--tests"],
    },
    Suite {
        package: "proxy-engine",
        folder: "crates/proxy-engine/src",
        part: "",
        tested_by: &["proxy-engine", "proxy-core"],
        tests: ["--lib", "--test=memory"],
    },
    Suite {
        package: "proxy-nftables",
        folder: "crates/proxy-nftables/src",
        part: "/plan/",
        tested_by: &["proxy-nftables", "proxy-core"],
        tests: ["--lib", "--test=memory"],
    },
    Suite {
        package: "proxy-core",
        folder: "crates/proxy-core/src/backend",
        part: "/plan/",
        tested_by: &["proxy-core"],
        tests: ["--lib", "--test=memory"],
    },
];

/// Files to change, and the tests that must notice.
struct Suite {
    package: &'static str,
    folder: &'static str,
    /// Part of the path of each file.
    part: &'static str,
    /// Packages of the tests.
    tested_by: &'static [&'static str],
    /// Arguments of `cargo test`.
    tests: [&'static str; 2],
}

/// A generator of random objects. Its changes give other objects, which tests accept.
const GENERATOR: &str = "arbitrary.rs";

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
    for suite in SUITES {
        let Suite {
            package,
            folder,
            part,
            tested_by,
            tests,
        } = suite;
        let mut files = Vec::new();
        add_files(&root().join(folder), &mut files)?;
        files.retain(|file| file.contains(part) && file.contains(filter));
        files.retain(|file| !file.ends_with(GENERATOR));
        if files.is_empty() {
            continue;
        }
        let output = target.join("mutants").join(package);
        fs::create_dir_all(&output)?;
        let mut mutants = Command::new(&program);
        mutants
            .args(["mutants", "--package", package, "--cap-lints=true"])
            .args(files.iter().flat_map(|file| ["--file", file]))
            .args(tested_by.iter().flat_map(|it| ["--test-package", it]))
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
        // Without a result, the score of an earlier run would count.
        let earlier = output.join("mutants.out/outcomes.json");
        if earlier.exists() {
            fs::remove_file(&earlier)?;
        }
        // The exit code reports missed changes.
        let result = execute_within(LIMIT, &mut mutants);
        match Score::read(&output) {
            Ok(score) => scores.push((package, score)),
            Err(error) => return result.and(Err(error)),
        }
    }
    for (package, score) in scores {
        println!("{package}: {score}");
    }
    Ok(())
}

/// Adds the files of a folder and its subfolders, relative to the root.
fn add_files(folder: &Path, files: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            add_files(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path.strip_prefix(root())?.display().to_string());
        }
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
    fn the_files_of_each_suite_and_the_generator_are_found() {
        let generator = root().join("crates/service-model/src").join(GENERATOR);
        assert!(generator.is_file());
        for suite in SUITES {
            let (package, folder, part) = (suite.package, suite.folder, suite.part);
            let mut files = Vec::new();
            add_files(&root().join(folder), &mut files).unwrap();
            let is_in_suite = |file: &&String| file.starts_with(folder) && file.contains(part);
            assert!(files.iter().filter(is_in_suite).count() > 5, "{package}");
        }
    }

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
