//! Remembers what passed, so that a run after a change repeats only what the change
//! affects.
//!
//! A clean clone remembers nothing, so CI runs everything.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::system::uname;

use crate::cargo::root;
use crate::jobs::Output;
use crate::steps::Tally;

/// Records of jobs that passed, one file each.
#[derive(Debug)]
pub(crate) struct Passed {
    folder: PathBuf,
    /// Hash of all that tests may read: files that are not compiled, and the kernel.
    environment: u64,
    /// Whether to repeat all jobs.
    repeats_all: bool,
}

impl Passed {
    /// Opens the records in the target directory.
    ///
    /// With `repeats_all` no record counts.
    pub(crate) fn open(target_directory: &Path, repeats_all: bool) -> Result<Self> {
        let folder = target_directory.join("passed");
        fs::create_dir_all(&folder)?;
        let mut hasher = DefaultHasher::new();
        uname().release().to_bytes().hash(&mut hasher);
        for file in data_files()? {
            add(&mut hasher, &file);
        }
        Ok(Self {
            folder,
            environment: hasher.finish(),
            repeats_all,
        })
    }

    /// Runs tests unless they passed before with the same `inputs`. Records success.
    ///
    /// Inputs are programs: the paths, sizes and modification times count. Cargo does
    /// not write a program again that did not change.
    pub(crate) fn run(
        &self,
        title: &str,
        inputs: &[&Path],
        output: &Output,
        work: impl FnOnce() -> Result<Tally>,
    ) -> Result<Tally> {
        let record = self.record(title, inputs);
        if let Some(count) = record.count {
            output.line(&format!("unchanged since {count} tests passed"));
            return Ok(Tally::unchanged(count));
        }
        let tally = work()?;
        if tally.failed + tally.ignored == 0 {
            record.save(tally.passed)?;
        }
        Ok(tally)
    }

    /// Reads the record of a job.
    pub(crate) fn record(&self, title: &str, inputs: &[&Path]) -> Record {
        // A title can be longer than the name of a file.
        let mut name = DefaultHasher::new();
        title.hash(&mut name);
        let file = self.folder.join(format!("{:016x}", name.finish()));
        let mut hasher = DefaultHasher::new();
        self.environment.hash(&mut hasher);
        for input in inputs {
            add(&mut hasher, input);
        }
        let mut record = Record {
            file,
            state: format!("{:016x}", hasher.finish()),
            count: None,
        };
        if !self.repeats_all {
            record.count = record.read();
        }
        record
    }
}

/// The record of a job, for one state of its inputs.
#[derive(Debug)]
pub(crate) struct Record {
    file: PathBuf,
    state: String,
    /// Number of tests that passed with the same inputs. `None` if the job has to run.
    pub(crate) count: Option<usize>,
}

impl Record {
    /// Returns the number of tests in the file, if the file is about the same state.
    fn read(&self) -> Option<usize> {
        let text = fs::read_to_string(&self.file).ok()?;
        let (state, count) = text.split_once(' ')?;
        count.parse().ok().filter(|_| state == self.state)
    }

    /// Records that `count` tests passed.
    pub(crate) fn save(&self, count: usize) -> Result<()> {
        fs::write(&self.file, format!("{} {count}", self.state))
            .with_context(|| self.file.display().to_string())
    }
}

/// Adds the path, size and modification time of a file to a hash.
fn add(hasher: &mut DefaultHasher, file: &Path) {
    let metadata = fs::metadata(file).ok();
    let modified = metadata.as_ref().and_then(|it| it.modified().ok());
    (file, metadata.map(|it| it.len()), modified).hash(hasher);
}

/// Returns the files of the repository that tests may read: all except sources and
/// prose, which are compiled or read by humans.
fn data_files() -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let output = git.current_dir(root()).output().context("git")?;
    ensure!(output.status.success(), "git ls-files: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let paths = text.split_terminator('\0').map(|path| root().join(path));
    let is_data = |path: &PathBuf| !path.extension().is_some_and(|it| it == "rs" || it == "md");
    Ok(paths.filter(is_data).collect())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::env;
    use std::process;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_job_is_repeated_after_its_input_changed_or_after_it_failed() {
        let folder = env::temp_dir().join(format!("xtask-passed-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let input = folder.join("input");
        fs::write(&input, "a").unwrap();
        let output = Output::new("job");
        let runs = Cell::new(0);
        let run = |passed: &Passed, failed| {
            let work = || {
                runs.set(runs.get() + 1);
                let mut tally = Tally::default();
                (tally.passed, tally.failed) = (5, failed);
                Ok(tally)
            };
            let title = "a/b c ".repeat(100);
            let tally = passed.run(&title, &[&input], &output, work).unwrap();
            (runs.get(), tally.passed, tally.unchanged)
        };
        let passed = Passed::open(&folder, false).unwrap();
        assert_eq!(run(&passed, 1), (1, 5, 0));
        assert_eq!(run(&passed, 0), (2, 5, 0));
        assert_eq!(run(&passed, 0), (2, 5, 5));
        let file = fs::File::options().write(true).open(&input).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(run(&passed, 0), (3, 5, 0));
        assert_eq!(run(&Passed::open(&folder, true).unwrap(), 0), (4, 5, 0));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn data_files_include_fixtures_and_exclude_sources() {
        let files = data_files().unwrap();
        let has = |path: &str| files.contains(&root().join(path));
        assert!(has("Cargo.toml") && has("examples/kube-proxy/demo/front.yaml"));
        assert!(!has("README.md") && !has("crates/internal/xtask/src/passed.rs"));
    }
}
