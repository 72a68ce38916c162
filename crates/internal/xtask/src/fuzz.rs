//! Builds the fuzz targets, replays their corpora, and runs each for a while.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
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

/// Suppresses all output except findings.
const QUIET: &str = "-verbosity=0";

/// Number of lines of the log that are printed after a finding.
const LOG_LINES: usize = 60;

/// Figures of the run of one target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Figures {
    executions: u64,
    /// Number of covered code blocks.
    coverage: u64,
    /// Number of inputs with different coverage.
    corpus: u64,
}

impl Figures {
    /// Reads the last line of statistics in libFuzzer's log, such as `#4096 DONE cov: 27 ft:
    /// 30 corp: 9/43b lim: 4 exec/s: 0 rss: 26Mb`.
    fn parse(log: &str) -> Option<Self> {
        let is_end = |line: &&str| line.starts_with('#') && line.contains("DONE");
        let line = log.lines().rfind(is_end)?;
        let (executions, rest) = line[1..].split_once("DONE")?;
        let number = |name| {
            let (_, after) = rest.split_once(name)?;
            let digits = after.trim_start();
            let end = digits.find(|it: char| !it.is_ascii_digit());
            digits[..end.unwrap_or(digits.len())].parse().ok()
        };
        Some(Self {
            executions: executions.trim().parse().ok()?,
            coverage: number("cov:")?,
            corpus: number("corp:")?,
        })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            executions,
            coverage,
            corpus,
        } = self;
        write!(
            f,
            "{executions} executions, {coverage} blocks covered, {corpus} inputs, no finding"
        )
    }
}

/// Runs the task: each target is a job, and as many run at the same time as there are CPUs.
pub(crate) fn run(seconds: u64) -> Result<()> {
    let mut all = Steps::new();
    let fuzz = Fuzz::build(&metadata()?.target_directory)?;
    let targets = targets(&root().join("fuzz"))?;
    let job = |target: String| {
        let title = format!("fuzz {target}");
        Job::new(title, |output| fuzz.run(&[target], seconds, output))
    };
    let jobs = targets.into_iter().map(job).collect();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    all.jobs("fuzz", jobs, cpus)?;
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

/// Returns the job that builds, replays and runs all targets, one after the other.
pub(crate) fn job<'a>(metadata: &'a Metadata, passed: &'a Passed, seconds: u64) -> Job<'a> {
    Job::new("fuzz", move |output| {
        let fuzz = Fuzz::build(&metadata.target_directory)?;
        let targets = targets(&root().join("fuzz"))?;
        let run = || fuzz.run(&targets, seconds, output);
        passed.run("fuzz", &[&fuzz.program], output, run)
    })
}

/// The program of all targets.
#[derive(Debug)]
struct Fuzz {
    program: PathBuf,
    /// Folder for inputs that libFuzzer finds: those that fail, and in a folder of each
    /// target those that increase coverage.
    found: PathBuf,
}

impl Fuzz {
    /// Builds the program.
    fn build(target_directory: &Path) -> Result<Self> {
        let found = target_directory.join("fuzz-found");
        fs::create_dir_all(&found)?;
        let program = build(&root().join("fuzz"))?;
        Ok(Self { program, found })
    }

    /// Replays the corpora of targets, and then runs each for a while.
    fn run(&self, targets: &[String], seconds: u64, output: &Output) -> Result<Tally> {
        for target in targets {
            output.line(&format!("{target}: replay"));
            let corpus = corpus(&root().join("fuzz"), target)?;
            let mut replay = self.command(target);
            execute(replay.args(["-runs=0", INPUT_TIMEOUT, QUIET]).arg(&corpus))?;
        }
        let mut failed = Vec::new();
        for target in targets {
            output.line(&format!("{target}: run for {seconds} s"));
            match self.run_one(target, seconds)? {
                Ok(figures) => output.line(&format!("{target}: {figures}")),
                Err(text) => {
                    output.line(&format!("{target}: {text}"));
                    failed.push(target.as_str());
                }
            }
        }
        if !failed.is_empty() {
            bail!(
                "findings in {}: {}",
                self.found.display(),
                failed.join(", ")
            );
        }
        Ok(Tally::default())
    }

    /// Runs a target. The inner error has the end of the log.
    fn run_one(&self, target: &str, seconds: u64) -> Result<Result<Figures, String>> {
        // libFuzzer writes to the first folder and only reads the others.
        let own = self.found.join(target);
        fs::create_dir_all(&own)?;
        let log = self.found.join(format!("{target}.log"));
        let mut run = self.command(target);
        run.arg(format!("-max_total_time={seconds}"))
            .args([INPUT_TIMEOUT, INPUT_MEMORY])
            .arg(own)
            .arg(corpus(&root().join("fuzz"), target)?)
            .stderr(File::create(&log)?);
        let result = execute_within(LIMIT + Duration::from_secs(seconds), &mut run);
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        Ok(match (result, Figures::parse(&text)) {
            (Ok(()), Some(figures)) => Ok(figures),
            (result, _) => {
                let lines: Vec<_> = text.lines().collect();
                let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
                Err(format!("{result:?}\n{}", last.join("\n")))
            }
        })
    }

    /// Returns the command of a target.
    fn command(&self, target: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env("FUZZ_TARGET", target).current_dir(&self.found);
        command.stdin(Stdio::null());
        command
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_last_line_of_the_log() {
        let log = "INFO: seed corpus: files: 3\n\
            #4\tINITED cov: 20 ft: 21 corp: 3/9b exec/s: 0 rss: 25Mb\n\
            #8192\tDONE   cov: 27 ft: 30 corp: 9/43b lim: 4 exec/s: 4096 rss: 26Mb\n\
            ###### Recommended dictionary. ######\n\
            \"\\377\\000\" # Uses: 3\n\
            ###### End of recommended dictionary. ######\n\
            Done 8192 runs in 2 second(s)\n";
        let figures = Figures {
            executions: 8192,
            coverage: 27,
            corpus: 9,
        };
        assert_eq!(Figures::parse(log), Some(figures));
        assert_eq!(
            figures.to_string(),
            "8192 executions, 27 blocks covered, 9 inputs, no finding"
        );
        let crashed = "#8\tNEW cov: 21 ft: 22 corp: 4/9b\n==1== ERROR: libFuzzer: deadly signal\n";
        assert_eq!(Figures::parse(crashed), None);
    }
}
