//! Runs independent jobs in parallel.

use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::nice;

use crate::process::{LIMIT, execute_with_output};
use crate::steps::{Failures, Slow, Tally};

/// A job that may run beside others.
pub(crate) struct Job<'a> {
    /// Title, which each line of output begins with.
    title: String,
    work: Work<'a>,
    is_background: bool,
}

/// The work of a job. Returns the number of tests.
type Work<'a> = Box<dyn FnOnce(&Output) -> Result<Tally> + Send + 'a>;

/// Prints the output of a job.
#[derive(Debug)]
pub(crate) struct Output {
    title: String,
}

/// The result of a job.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Title of the job.
    pub(crate) title: String,
    /// Duration.
    pub(crate) time: Duration,
    /// Counted tests. An error names the job.
    pub(crate) result: Result<Tally>,
}

impl<'a> Job<'a> {
    /// Creates a job that runs a function.
    pub(crate) fn new(
        title: impl Into<String>,
        work: impl FnOnce(&Output) -> Result<Tally> + Send + 'a,
    ) -> Self {
        Self {
            title: title.into(),
            work: Box::new(work),
            is_background: false,
        }
    }

    /// Makes the job run beside all others, at the lowest priority.
    ///
    /// It uses the time in which the others wait.
    pub(crate) fn in_background(mut self) -> Self {
        self.is_background = true;
        self
    }

    /// Creates a job that runs a command and counts its tests.
    pub(crate) fn command(title: impl Into<String>, mut command: Command) -> Self {
        Self::new(title, move |output| output.run(&mut command))
    }

    fn run(self) -> Outcome {
        let start = Instant::now();
        let output = Output::new(&self.title);
        if self.is_background {
            // On Linux this is the priority of the thread and of its later children. After
            // a failure the job only slows the others down.
            let _ = nice(19);
        }
        let result = (self.work)(&output).with_context(|| output.title.clone());
        let time = start.elapsed();
        let word = if result.is_ok() { "ended" } else { "FAILED" };
        eprintln!("{}: {word} after {:.1} s", output.title, time.as_secs_f64());
        Outcome {
            title: output.title,
            time,
            result,
        }
    }
}

impl Output {
    /// Creates the output of a job.
    pub(crate) fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
        }
    }

    /// Prints a line.
    pub(crate) fn line(&self, line: &str) {
        println!("{}: {line}", self.title);
    }

    /// Runs a command, prints its output, and counts its tests. Kills it after 40 minutes.
    ///
    /// # Errors
    /// If a test fails. The error has the output of the failed tests, or the last lines if
    /// the process ended in the middle of a test. The error of a killed command names its
    /// unfinished tests.
    pub(crate) fn run(&self, command: &mut Command) -> Result<Tally> {
        self.run_within(LIMIT, command)
    }

    /// Like [`run`](Self::run), but kills the command after `limit`.
    fn run_within(&self, limit: Duration, command: &mut Command) -> Result<Tally> {
        let (mut tally, mut slow) = (Tally::default(), Slow::default());
        let mut failures = Failures::default();
        let result = execute_with_output(limit, command, |line| {
            self.line(line);
            tally.count(line);
            slow.record(line);
            failures.record(line);
        });
        failures.append_to(slow.name_in(result)).map(|()| tally)
    }
}

/// Runs jobs in their order, at most `workers` at a time. Each job in the background has
/// a thread of its own. Returns their results in the order in which they end.
///
/// A failing job does not stop the others.
pub(crate) fn run(jobs: Vec<Job<'_>>, workers: usize) -> Vec<Outcome> {
    let (background, jobs): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.is_background);
    let (jobs, outcomes) = (Mutex::new(jobs.into_iter()), Mutex::new(Vec::new()));
    let next = || jobs.lock().expect("no thread panics here").next();
    let run = |job: Job<'_>| {
        let outcome = job.run();
        let mut outcomes = outcomes.lock().expect("no thread panics here");
        outcomes.push(outcome);
    };
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(job) = next() {
                    run(job);
                }
            });
        }
        for job in background {
            scope.spawn(|| run(job));
        }
    });
    outcomes.into_inner().expect("no thread panics here")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use anyhow::ensure;

    use super::*;

    #[test]
    fn jobs_run_in_parallel_and_the_error_names_the_job_that_failed() {
        let arrived = AtomicUsize::new(0);
        let deadline = Instant::now() + Duration::from_secs(10);
        let meet = |_: &Output| {
            arrived.fetch_add(1, Ordering::Relaxed);
            while arrived.load(Ordering::Relaxed) < 3 {
                ensure!(Instant::now() < deadline, "not all threads run");
                thread::yield_now();
            }
            Ok(Tally::default())
        };
        let met = run(["a", "b", "c"].map(|title| Job::new(title, meet)).into(), 3);
        assert!(met.iter().all(|outcome| outcome.result.is_ok()), "{met:?}");
        let jobs = ["a", "b", "c"].map(|title| {
            Job::new(title, move |_| {
                ensure!(title == "b", "it broke");
                Ok(Tally::default())
            })
        });
        let outcomes = run(jobs.into(), 1);
        let errors: Vec<String> = outcomes
            .iter()
            .filter_map(|outcome| outcome.result.as_ref().err())
            .map(|error| format!("{error:#}"))
            .collect();
        assert_eq!(errors, ["a: it broke", "c: it broke"]);
    }

    #[test]
    fn no_more_jobs_than_workers_run_at_a_time() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |_: &Output| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(5));
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(Tally::default())
        };
        let jobs = (0..9).map(|number| Job::new(number.to_string(), work));
        assert_eq!(run(jobs.collect(), 2).len(), 9);
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_job_in_the_background_has_the_lowest_priority_and_a_thread_of_its_own() {
        let priorities = Mutex::new(Vec::new());
        let work = |_: &Output| {
            priorities.lock().unwrap().push(nice(0)?);
            Ok(Tally::default())
        };
        let before = nice(0).unwrap();
        let background = Job::new("background", work).in_background();
        let done = run(vec![background, Job::new("other", work)], 1);
        assert!(
            done.iter().all(|outcome| outcome.result.is_ok()),
            "{done:?}"
        );
        let mut priorities = priorities.into_inner().unwrap();
        priorities.sort_unstable();
        assert_eq!(priorities, [before, (before + 19).min(19)]);
    }

    #[test]
    fn the_tests_of_a_command_are_counted() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo 'test result: ok. 7 passed; 0 failed; 0 ignored;'",
        ]);
        let outcomes = run(vec![Job::command("shell", command)], 1);
        assert_eq!(outcomes[0].result.as_ref().unwrap().passed, 7);
    }

    #[test]
    fn the_error_of_a_command_has_the_output_of_its_failed_tests() {
        let script = "printf 'test a ... FAILED\\n\\nfailures:\\n\\n---- a stdout ----\\n'\n\
            seq 60\n\
            printf 'it broke\\n\\n\\nfailures:\\n    a\\n\\ntest result: FAILED.\\n'\n\
            exit 101";
        let mut command = Command::new("sh");
        let result = Output::new("shell").run(command.args(["-c", script]));
        let error = format!("{:#}", result.unwrap_err());
        let (_, output) = error.split_once("exit status: 101\n").expect(&error);
        assert!(output.starts_with("---- a stdout ----\n"), "{output}");
        assert!(output.ends_with("\n60\nit broke"), "{output}");
        assert!(!output.contains("\n20\n"), "{output}");
    }

    #[test]
    fn the_error_of_a_command_that_ends_inside_a_test_has_its_last_lines() {
        let script = "seq 60; echo 'test a ... ok'; exit 1";
        let mut command = Command::new("sh");
        let result = Output::new("shell").run(command.args(["-c", script]));
        let error = format!("{:#}", result.unwrap_err());
        let (_, output) = error.split_once("exit status: 1\n").expect(&error);
        assert!(output.starts_with("32\n33\n"), "{output}");
        assert!(output.ends_with("\n60\ntest a ... ok"), "{output}");
    }

    #[test]
    fn the_error_of_a_killed_command_names_its_unfinished_tests() {
        let script = "for name in a b::c d; do\n\
            echo \"test $name has been running for over 60 seconds\"\n\
            done\n\
            echo 'test a ... ok'\n\
            exec sleep 60";
        let mut command = Command::new("sh");
        let output = Output::new("shell");
        let result = output.run_within(Duration::from_secs(2), command.args(["-c", script]));
        let error = format!("{:#}", result.unwrap_err());
        assert!(
            error.starts_with("unfinished tests: b::c, d: sh -c for"),
            "{error}"
        );
        assert!(
            error.contains("exec sleep 60: killed after 2 s\n"),
            "{error}"
        );
    }
}
