//! Steps of a long task, with headings and times.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cargo::display;

/// The steps done, and the tests counted on the way.
pub(crate) struct Steps {
    start: Instant,
    done: Vec<(String, Duration)>,
    tally: Tally,
}

/// The sum of the `test result:` lines that cargo printed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed.
    pub(crate) failed: usize,
    /// Tests that were not run.
    pub(crate) ignored: usize,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            done: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Does one step, under a heading.
    pub(crate) fn step(&mut self, title: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.counted(title, |_| work())
    }

    /// Does one step in which tests run.
    pub(crate) fn counted(
        &mut self,
        title: &str,
        work: impl FnOnce(&mut Tally) -> Result<()>,
    ) -> Result<()> {
        eprintln!("\n=== {title} ===");
        let start = Instant::now();
        let result = work(&mut self.tally);
        let time = start.elapsed();
        if result.is_err() {
            self.print(&[(format!("{title}: FAILED"), time)]);
        } else {
            eprintln!("=== {title}: {:.1} s ===", time.as_secs_f64());
            self.done.push((title.to_owned(), time));
        }
        result.with_context(|| title.to_owned())
    }

    /// Prints the table of steps and the number of tests.
    pub(crate) fn finish(self) -> Result<()> {
        self.print(&[]);
        let Tally {
            passed,
            failed,
            ignored,
        } = self.tally;
        if failed + ignored > 0 || passed == 0 {
            bail!("{passed} passed; {failed} failed; {ignored} ignored: every test has to pass");
        }
        println!(
            "all {} steps passed in {:.0} s; tests: {passed} passed; {failed} failed; {ignored} ignored",
            self.done.len(),
            self.start.elapsed().as_secs_f64()
        );
        Ok(())
    }

    fn print(&self, more: &[(String, Duration)]) {
        eprintln!("\n{:<40} {:>8}", "step", "seconds");
        for (title, time) in self.done.iter().chain(more) {
            eprintln!("{title:<40} {:>8.1}", time.as_secs_f64());
        }
    }
}

impl Tally {
    /// Runs tests, shows what they print, and counts them.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result<()> {
        let text = display(command);
        eprintln!("$ {text}");
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("the output is a pipe")?;
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{line}");
            self.count(&line);
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("{text}: {status}");
        }
        Ok(())
    }

    fn count(&mut self, line: &str) {
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
    }

    #[test]
    fn a_command_that_fails_fails_its_step_and_output_is_counted() {
        let mut steps = Steps::new();
        let result = steps.counted("shell", |tally| {
            let line = "echo 'test result: ok. 7 passed; 0 failed; 0 ignored;'; exit 3";
            tally.run(Command::new("sh").args(["-c", line]))
        });
        assert!(format!("{:#}", result.unwrap_err()).contains("exit status: 3"));
        assert_eq!(steps.tally.passed, 7);
    }

    #[test]
    fn an_ignored_test_is_no_success() {
        let mut steps = Steps::new();
        steps
            .tally
            .count("test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured");
        assert!(steps.finish().is_err());
        assert!(Steps::new().finish().is_err());
    }
}
