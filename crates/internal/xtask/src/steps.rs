//! Runs the steps of a task with headings and durations.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fs;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::param::clock_ticks_per_second;

use crate::jobs::{self, Job};

/// Completed steps and the number of tests that they ran.
pub(crate) struct Steps {
    start: Instant,
    done: Vec<Step>,
    tally: Tally,
}

/// A completed step.
struct Step {
    title: String,
    time: Duration,
    /// CPU time of all processes of the step. `None` for a job.
    cpu: Option<Duration>,
}

/// Sum of the `test result:` lines of libtest.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed.
    pub(crate) failed: usize,
    /// Tests that were skipped.
    pub(crate) ignored: usize,
    /// Tests among `passed` that passed in an earlier run and did not change.
    pub(crate) unchanged: usize,
}

/// Tests that have run for more than 60 seconds and have no result yet.
#[derive(Debug, Default)]
pub(crate) struct Slow(Vec<String>);

/// What the output of a command says about its failure: the section `failures:` of libtest,
/// or the last lines, if a test ended the whole process and no such section exists.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    is_inside: bool,
    /// Lines of each failed test.
    tests: Vec<Vec<String>>,
    last: VecDeque<String>,
}

/// Lines of output that an error keeps of each failed test: the last ones, which have the
/// panic. Also the number of last lines of a process without failed tests.
const LINES_OF_FAILURE: usize = 30;

impl Steps {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            done: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Runs one step.
    pub(crate) fn step(&mut self, title: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let result = self.run(title, work);
        self.check(title, result)
    }

    /// Runs one step that consists of jobs, at most `workers` at a time. Counts their
    /// tests.
    pub(crate) fn jobs(&mut self, title: &str, jobs: Vec<Job<'_>>, workers: usize) -> Result<()> {
        let mut rows = Vec::new();
        let mut tally = Tally::default();
        let result = self.run(title, || {
            let mut errors = Vec::new();
            for outcome in jobs::run(jobs, workers) {
                let failed = if outcome.result.is_err() {
                    ": FAILED"
                } else {
                    ""
                };
                rows.push(Step {
                    title: format!("  {}{failed}", outcome.title),
                    time: outcome.time,
                    cpu: None,
                });
                match outcome.result {
                    Ok(counted) => tally += counted,
                    Err(error) => errors.push(format!("{error:#}")),
                }
            }
            ensure!(errors.is_empty(), "{}", errors.join("\n"));
            Ok(())
        });
        rows.sort_by_key(|row| Reverse(row.time));
        self.done.extend(rows);
        self.tally += tally;
        self.check(title, result)
    }

    /// Runs the work of a step and adds its row to the table.
    fn run(&mut self, title: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        eprintln!("\n=== {title} ===");
        let (start, cpu) = (Instant::now(), cpu_of_children());
        let result = work();
        let mut step = Step {
            title: title.to_owned(),
            time: start.elapsed(),
            cpu: Some(cpu_of_children().saturating_sub(cpu)),
        };
        eprintln!("=== {title}: {:.1} s ===", step.time.as_secs_f64());
        if result.is_err() {
            step.title += ": FAILED";
        }
        self.done.push(step);
        result
    }

    /// Prints the table if a step failed.
    fn check(&self, title: &str, result: Result<()>) -> Result<()> {
        if result.is_err() {
            self.print();
        }
        result.with_context(|| title.to_owned())
    }

    /// Prints the duration of each step and the number of tests.
    ///
    /// # Errors
    /// If a test failed or was ignored, or if no test ran.
    pub(crate) fn finish(self) -> Result<()> {
        self.print();
        let Tally {
            passed,
            failed,
            ignored,
            unchanged,
        } = self.tally;
        if failed + ignored > 0 || passed == 0 {
            bail!("{passed} passed; {failed} failed; {ignored} ignored: every test must pass");
        }
        println!(
            "all {} steps passed in {:.0} s; tests: {passed} passed ({unchanged} earlier and unchanged); \
             {failed} failed; {ignored} ignored",
            self.done.iter().filter(|step| step.cpu.is_some()).count(),
            self.start.elapsed().as_secs_f64()
        );
        Ok(())
    }

    fn print(&self) {
        eprintln!("\n{:<40} {:>8} {:>8}", "step", "seconds", "CPU");
        for Step { title, time, cpu } in &self.done {
            let time = time.as_secs_f64();
            let cpu = cpu.map_or_else(String::new, |cpu| format!("{:.1}", cpu.as_secs_f64()));
            eprintln!("{title:<40} {time:>8.1} {cpu:>8}");
        }
    }
}

/// Returns the CPU time of all child processes that have ended, from `proc_pid_stat(5)`.
///
/// Returns zero if the file cannot be read.
fn cpu_of_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // cutime and cstime are fields 16 and 17; the first field after the name is 3.
    let ticks = after_name.split_whitespace().skip(13).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks.saturating_mul(1000) / clock_ticks_per_second())
}

impl Tally {
    /// Returns the count of tests that passed in an earlier run.
    pub(crate) fn unchanged(count: usize) -> Self {
        Self {
            passed: count,
            unchanged: count,
            ..Self::default()
        }
    }

    /// Adds the counts of a `test result:` line. Ignores other lines.
    pub(crate) fn count(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else {
            return;
        };
        for (sum, word) in [
            (&mut self.passed, " passed;"),
            (&mut self.failed, " failed;"),
            (&mut self.ignored, " ignored;"),
        ] {
            let number = counts
                .split_once(word)
                .and_then(|(before, _)| before.rsplit(' ').next())
                .and_then(|number| number.parse::<usize>().ok());
            *sum += number.unwrap_or(0);
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.unchanged += other.unchanged;
    }
}

impl Slow {
    /// Processes a line of libtest.
    pub(crate) fn record(&mut self, line: &str) {
        let Some(line) = line.strip_prefix("test ") else {
            return;
        };
        if let Some(name) = line.strip_suffix(" has been running for over 60 seconds") {
            self.0.push(name.to_owned());
        } else if let Some((name, _)) = line.split_once(" ... ") {
            self.0.retain(|slow| slow != name);
        }
    }

    /// Adds the names of the tests to an error.
    pub(crate) fn name_in(&self, result: Result<()>) -> Result<()> {
        match self.0.is_empty() {
            true => result,
            false => result.with_context(|| format!("unfinished tests: {}", self.0.join(", "))),
        }
    }
}

impl Failures {
    /// Processes a line of libtest.
    pub(crate) fn record(&mut self, line: &str) {
        if self.last.len() == LINES_OF_FAILURE {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
        if line == "failures:" {
            // A second section has only the names.
            self.is_inside = !self.is_inside;
        } else if self.is_inside && line.starts_with("---- ") {
            self.tests.push(vec![line.to_owned()]);
        } else if let (true, Some(lines), false) =
            (self.is_inside, self.tests.last_mut(), line.is_empty())
        {
            lines.push(line.to_owned());
            if lines.len() > LINES_OF_FAILURE {
                // The first line names the test.
                lines.remove(1);
            }
        }
    }

    /// Adds the output to an error.
    pub(crate) fn append_to(&self, result: Result<()>) -> Result<()> {
        result.map_err(|error| {
            let mut lines = self.tests.concat();
            if lines.is_empty() {
                lines.extend(self.last.iter().cloned());
            }
            anyhow!("{error:#}\n{}", lines.join("\n"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn results_of_all_test_binaries_are_summed() {
        let mut tally = Tally::default();
        for line in [
            "test result: ok. 16 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.35s",
            "test a ... ok",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ] {
            tally.count(line);
        }
        let expected = Tally {
            passed: 19,
            failed: 2,
            ignored: 1,
            unchanged: 0,
        };
        assert_eq!(tally, expected);
        let mut both = tally;
        both += tally;
        assert_eq!((both.passed, both.failed, both.ignored), (38, 4, 2));
    }

    #[test]
    fn a_failing_job_fails_its_step_after_all_tests_are_counted() {
        let shell = |line: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            command
        };
        let jobs = vec![
            Job::command("a", shell("sleep 0.2; exit 3")),
            Job::command("b", shell("echo 'test result: ok. 7 passed; 0 failed;'")),
        ];
        let mut steps = Steps::new();
        let error = format!("{:#}", steps.jobs("shells", jobs, 1).unwrap_err());
        assert!(error.starts_with("shells: a: "), "{error}");
        assert!(error.contains("exit status: 3"), "{error}");
        assert_eq!(steps.tally.passed, 7);
        let titles: Vec<_> = steps.done.iter().map(|step| &*step.title).collect();
        assert_eq!(titles, ["shells: FAILED", "  a: FAILED", "  b"]);
    }

    #[test]
    fn the_cpu_time_of_children_grows() {
        let before = cpu_of_children();
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done";
        assert!(
            Command::new("sh")
                .args(["-c", script])
                .status()
                .unwrap()
                .success()
        );
        assert!(cpu_of_children() > before);
    }

    #[test]
    fn an_ignored_test_fails_the_task() {
        let mut steps = Steps::new();
        steps
            .tally
            .count("test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured");
        assert!(steps.finish().is_err());
        assert!(Steps::new().finish().is_err());
    }
}
