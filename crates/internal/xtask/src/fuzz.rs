//! Builds the fuzz targets, replays their corpora, and runs each for a while.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::binaries::Artifacts;
use crate::cargo::{Metadata, cargo, metadata, root};
use crate::jobs::{Job, Output};
use crate::passed::Passed;
use crate::process::{LIMIT, execute, execute_within};
use crate::steps::{Steps, Tally};
use crate::tools;

/// Limit of the time for one input: 10 s.
const INPUT_TIMEOUT: &str = "-timeout=10";
/// Limit of the memory of a target: 2,048 MB.
const INPUT_MEMORY: &str = "-rss_limit_mb=2048";

/// The build of the targets.
///
/// Like the build of the tests, it selects the whole workspace and a test. So the
/// dependencies have the same features in both builds and are compiled once.
const BUILD: [&str; 5] = [
    "build",
    "--workspace",
    "--test=fuzz",
    "--features=fuzz/libfuzzer",
    "--config=fuzz/config.toml",
];

/// Suppresses all output except findings and final statistics.
const QUIET: &str = "-verbosity=0";

/// Runs the task.
pub(crate) fn run(seconds: u64) -> Result<()> {
    let mut all = Steps::new();
    let metadata = metadata()?;
    let passed = Passed::open(&metadata.target_directory, true)?;
    all.jobs("fuzz", vec![job(&metadata, &passed, seconds)], 1)?;
    eprintln!("all fuzz targets passed");
    Ok(())
}

/// Returns the job that only builds all targets.
pub(crate) fn build_job<'a>() -> Job<'a> {
    Job::new("fuzz: build", |_| {
        build(&root().join("fuzz"))?;
        Ok(Tally::default())
    })
}

/// Returns the job that builds, replays and runs all targets.
pub(crate) fn job<'a>(metadata: &'a Metadata, passed: &'a Passed, seconds: u64) -> Job<'a> {
    Job::new("fuzz", move |output| {
        let program = build(&root().join("fuzz"))?;
        let found = metadata.target_directory.join("fuzz-found");
        let run = || replay_and_run(&program, &found, seconds, output);
        passed.run("fuzz", &[&program], output, run)
    })
}

/// Replays the corpora of all targets, and then runs each for a while.
///
/// libFuzzer writes inputs to the folder `found`: those that fail, and in a folder of each
/// target those that increase coverage.
fn replay_and_run(program: &Path, found: &Path, seconds: u64, output: &Output) -> Result<Tally> {
    let folder = root().join("fuzz");
    let targets = targets(&folder)?;
    fs::create_dir_all(found)?;
    let fuzz = |target: &str| {
        let mut command = Command::new(program);
        command.env("FUZZ_TARGET", target).current_dir(found);
        command.stdin(Stdio::null());
        command
    };
    for target in &targets {
        output.line(&format!("{target}: replay"));
        let corpus = corpus(&folder, target)?;
        let mut run = fuzz(target);
        execute(run.args(["-runs=0", INPUT_TIMEOUT, QUIET]).arg(&corpus))?;
    }
    for target in &targets {
        output.line(&format!("{target}: run for {seconds} s"));
        // libFuzzer writes to the first folder and only reads the others.
        let found = found.join(target);
        fs::create_dir_all(&found)?;
        let mut run = fuzz(target);
        run.arg(format!("-max_total_time={seconds}"))
            .args([INPUT_TIMEOUT, INPUT_MEMORY, QUIET, "-print_final_stats=1"])
            .arg(found)
            .arg(corpus(&folder, target)?);
        execute_within(LIMIT + Duration::from_secs(seconds), &mut run)?;
    }
    Ok(Tally::default())
}

/// Builds the program of all targets.
fn build(folder: &Path) -> Result<PathBuf> {
    tools::install(tools::FUZZ_TOOLS)?;
    let artifacts = Artifacts::build(&mut cargo(BUILD))?;
    let program = artifacts.find(folder, "test", "fuzz");
    program.context("cargo did not build the fuzz targets")
}

/// Returns the names of all targets: the modules of the library. An empty list is an error.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let folder = folder.join("fuzz_targets");
    let files = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut names = Vec::new();
    for file in files {
        let path = file?.path();
        let stem = path.file_stem().and_then(OsStr::to_str);
        if path.extension() == Some(OsStr::new("rs")) {
            names.extend(
                stem.filter(|stem| !["lib", "main"].contains(stem))
                    .map(str::to_owned),
            );
        }
    }
    names.sort();
    if names.is_empty() {
        bail!("{} contains no fuzz target", folder.display());
    }
    Ok(names)
}

/// Returns the folder of a target's corpus. An empty corpus is an error.
fn corpus(folder: &Path, target: &str) -> Result<PathBuf> {
    let corpus = folder.join("corpus").join(target);
    match fs::read_dir(&corpus).map(|mut files| files.next().is_some()) {
        Ok(true) => Ok(corpus),
        Ok(false) => bail!("{} contains no input", corpus.display()),
        Err(error) => bail!("{}: {error}", corpus.display()),
    }
}
