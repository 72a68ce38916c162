//! Runs the steps of a task with headings and durations.

use std::fs;
use std::ops::AddAssign;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::param::clock_ticks_per_second;

use crate::process::{LIMIT, execute_with_output};

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
    /// CPU time of all processes of the step.
    cpu: Duration,
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
}

/// Tests that have run for more than 60 seconds and have no result yet.
#[derive(Debug, Default)]
struct Slow(Vec<String>);

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
        self.counted(title, |_| work())
    }

    /// Runs one step and counts its tests.
    pub(crate) fn counted(
        &mut self,
        title: &str,
        work: impl FnOnce(&mut Tally) -> Result<()>,
    ) -> Result<()> {
        eprintln!("\n=== {title} ===");
        let (start, cpu) = (Instant::now(), cpu_of_children());
        let result = work(&mut self.tally);
        let mut step = Step {
            title: title.to_owned(),
            time: start.elapsed(),
            cpu: cpu_of_children().saturating_sub(cpu),
        };
        eprintln!("=== {title}: {:.1} s ===", step.time.as_secs_f64());
        if result.is_err() {
            step.title += ": FAILED";
        }
        self.done.push(step);
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
        } = self.tally;
        if failed + ignored > 0 || passed == 0 {
            bail!("{passed} passed; {failed} failed; {ignored} ignored: every test must pass");
        }
        println!(
            "all {} steps passed in {:.0} s; tests: {passed} passed; {failed} failed; {ignored} ignored",
            self.done.len(),
            self.start.elapsed().as_secs_f64()
        );
        Ok(())
    }

    fn print(&self) {
        eprintln!("\n{:<40} {:>8} {:>8}", "step", "seconds", "CPU");
        for Step { title, time, cpu } in &self.done {
            let [time, cpu] = [time, cpu].map(Duration::as_secs_f64);
            eprintln!("{title:<40} {time:>8.1} {cpu:>8.1}");
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
    /// Runs tests, prints their output, and counts their results.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result<()> {
        self.run_within(LIMIT, command)
    }

    /// Runs tests; kills them after `limit`.
    fn run_within(&mut self, limit: Duration, command: &mut Command) -> Result<()> {
        let mut slow = Slow::default();
        let result = execute_with_output(limit, command, |line| {
            println!("{line}");
            self.count(line);
            slow.record(line);
        });
        match slow.0.is_empty() {
            true => result,
            false => result.with_context(|| format!("unfinished tests: {}", slow.0.join(", "))),
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
    }
}

impl Slow {
    /// Processes a line of libtest.
    fn record(&mut self, line: &str) {
        let Some(line) = line.strip_prefix("test ") else {
            return;
        };
        if let Some(name) = line.strip_suffix(" has been running for over 60 seconds") {
            self.0.push(name.to_owned());
        } else if let Some((name, _)) = line.split_once(" ... ") {
            self.0.retain(|slow| slow != name);
        }
    }
}

#[cfg(test)]
mod tests {
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
        };
        assert_eq!(tally, expected);
        let mut both = tally;
        both += tally;
        assert_eq!((both.passed, both.failed, both.ignored), (38, 4, 2));
    }

    #[test]
    fn a_failing_command_fails_its_step_after_its_tests_are_counted() {
        let mut steps = Steps::new();
        let result = steps.counted("shell", |tally| {
            let line = "echo 'test result: ok. 7 passed; 0 failed; 0 ignored;'; exit 3";
            tally.run(Command::new("sh").args(["-c", line]))
        });
        assert!(format!("{:#}", result.unwrap_err()).contains("exit status: 3"));
        assert_eq!(steps.tally.passed, 7);
    }

    #[test]
    fn the_error_of_a_killed_command_names_its_unfinished_tests() {
        let script = "for name in a b::c d; do\n\
            echo \"test $name has been running for over 60 seconds\"\n\
            done\n\
            echo 'test a ... ok'\n\
            exec sleep 60";
        let mut command = Command::new("sh");
        let result =
            Tally::default().run_within(Duration::from_secs(2), command.args(["-c", script]));
        let error = format!("{:#}", result.unwrap_err());
        assert!(
            error.starts_with("unfinished tests: b::c, d: sh -c for"),
            "{error}"
        );
        assert!(
            error.ends_with("exec sleep 60: killed after 2 s"),
            "{error}"
        );
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
