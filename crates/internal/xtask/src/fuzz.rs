//! Builds the fuzz targets, replays their corpora, and runs each for a while.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cargo::{Metadata, metadata, root};
use crate::process::{LIMIT, execute, execute_within};
use crate::steps::Steps;
use crate::tools;

/// Limit of the time for one input: 10 s.
const INPUT_TIMEOUT: &str = "-timeout=10";
/// Limit of the memory of a target: 2,048 MB.
const INPUT_MEMORY: &str = "-rss_limit_mb=2048";

/// Suppresses all output except findings and final statistics.
const QUIET: &str = "-verbosity=0";

/// Runs the task.
pub(crate) fn run(seconds: u64) -> Result<()> {
    let mut all = Steps::new();
    steps(&mut all, &metadata()?, seconds)?;
    eprintln!("all fuzz targets passed");
    Ok(())
}

/// Adds the steps of building, replaying and running to a task.
pub(crate) fn steps(steps: &mut Steps, metadata: &Metadata, seconds: u64) -> Result<()> {
    let folder = root().join("fuzz");
    if !folder.join("Cargo.toml").exists() {
        eprintln!("fuzz/Cargo.toml does not exist: nothing to fuzz");
        return Ok(());
    }
    let targets = targets(&folder)?;
    let mut program = PathBuf::new();
    steps.step("fuzz: tools", || {
        tools::install(tools::FUZZ_TOOLS)?;
        program = tools::cargo_fuzz(&metadata.target_directory)?;
        Ok(())
    })?;
    let fuzz = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command
            .args(["fuzz", arguments[0], "--sanitizer", "none"])
            .args(&arguments[1..])
            .current_dir(root())
            .stdin(Stdio::null());
        command
    };
    steps.step("fuzz: build", || execute(&mut fuzz(&["build"])))?;
    steps.step("fuzz: replay corpora", || {
        for target in &targets {
            let corpus = corpus(&folder, target)?;
            let corpus = corpus.to_string_lossy();
            execute(&mut fuzz(&[
                "run",
                target,
                &corpus,
                "--",
                "-runs=0",
                INPUT_TIMEOUT,
                QUIET,
            ]))?;
        }
        Ok(())
    })?;
    steps.step(&format!("fuzz: run, {seconds} s each"), || {
        for target in &targets {
            // libFuzzer writes new inputs to the first folder and only reads the others.
            let found = metadata.target_directory.join("fuzz-found").join(target);
            fs::create_dir_all(&found)?;
            let (found, corpus) = (found.to_string_lossy(), corpus(&folder, target)?);
            let time = format!("-max_total_time={seconds}");
            let corpus = corpus.to_string_lossy();
            let mut run = fuzz(&[
                "run",
                target,
                &found,
                &corpus,
                "--",
                &time,
                INPUT_TIMEOUT,
                INPUT_MEMORY,
                QUIET,
                "-print_final_stats=1",
            ]);
            execute_within(LIMIT + Duration::from_secs(seconds), &mut run)?;
        }
        Ok(())
    })
}

/// Returns the names of all targets. An empty list is an error.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let folder = folder.join("fuzz_targets");
    let files = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut names = Vec::new();
    for file in files {
        let path = file?.path();
        if path.extension() == Some(OsStr::new("rs")) {
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
