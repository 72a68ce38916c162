//! Builds the fuzz targets, replays their corpora, and runs each for a while.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

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

/// The platform of the targets. It is named so that build scripts are not instrumented.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Coverage counters for libFuzzer (`SanitizerCoverage` of LLVM).
const INSTRUMENTATION: [&str; 8] = [
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-sanitizer-coverage-stack-depth",
    "-Cforce-frame-pointers",
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

/// Returns the job that builds, replays and runs all targets.
pub(crate) fn job<'a>(metadata: &'a Metadata, passed: &'a Passed, seconds: u64) -> Job<'a> {
    Job::new("fuzz", move |output| {
        tools::install(tools::FUZZ_TOOLS)?;
        let program = build(
            &root().join("fuzz"),
            &metadata.target_directory.join("fuzz"),
        )?;
        let run = || replay_and_run(metadata, &program, seconds, output);
        passed.run("fuzz", &[&program], output, run)
    })
}

/// Replays the corpora of all targets, and then runs each for a while.
fn replay_and_run(
    metadata: &Metadata,
    program: &Path,
    seconds: u64,
    output: &Output,
) -> Result<Tally> {
    let folder = root().join("fuzz");
    let targets = targets(&folder)?;
    for target in &targets {
        output.line(&format!("{target}: replay"));
        let corpus = corpus(&folder, target)?;
        let mut run = fuzz(program, target);
        execute(run.args(["-runs=0", INPUT_TIMEOUT, QUIET]).arg(&corpus))?;
    }
    for target in &targets {
        output.line(&format!("{target}: run for {seconds} s"));
        // libFuzzer writes new inputs to the first folder and only reads the others.
        let found = metadata.target_directory.join("fuzz-found").join(target);
        fs::create_dir_all(&found)?;
        let mut run = fuzz(program, target);
        run.arg(format!("-max_total_time={seconds}"))
            .args([INPUT_TIMEOUT, INPUT_MEMORY, QUIET, "-print_final_stats=1"])
            .arg(found)
            .arg(corpus(&folder, target)?);
        execute_within(LIMIT + Duration::from_secs(seconds), &mut run)?;
    }
    Ok(Tally::default())
}

/// Builds the binary of all targets with the instrumentation of libFuzzer.
fn build(folder: &Path, target: &Path) -> Result<PathBuf> {
    let mut build = cargo(["build", "--release", "--target", TRIPLE]);
    build.arg("--manifest-path").arg(folder.join("Cargo.toml"));
    build.arg("--target-dir").arg(target);
    execute(build.env("RUSTFLAGS", INSTRUMENTATION.join(" ")))?;
    Ok(target.join(TRIPLE).join("release/fuzz"))
}

/// Returns the command that runs a target in a folder for the inputs it fails on.
fn fuzz(program: &Path, target: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("FUZZ_TARGET", target)
        .current_dir(program.parent().unwrap_or(program))
        .stdin(Stdio::null());
    command
}

/// Returns the names of all targets. An empty list is an error.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let folder = folder.join("fuzz_targets");
    let files = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut names = Vec::new();
    for file in files {
        let path = file?.path();
        if path.extension() == Some(OsStr::new("rs"))
            && path.file_stem() != Some(OsStr::new("main"))
        {
            names.extend(path.file_stem().and_then(OsStr::to_str).map(str::to_owned));
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
