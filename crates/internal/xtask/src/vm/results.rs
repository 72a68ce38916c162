//! Parses the output of a guest and checks that all tests passed.
//!
//! A guest has no exit status: QEMU ends with 0 when the guest powers off, whatever happened in
//! it. So the console decides, and it must prove success. A suite passed if its marks are there
//! with exit status 0, and if libtest printed `test NAME ... ok` for each selected name. For
//! example, this guest failed in three ways, and a look for `FAILED` would find none of them:
//!
//! ```text
//! @vm begin 0
//! test a ... ok
//! @vm end 0 101        "crates/ipvs vm: exit status 101"
//!                      "crates/ipvs vm: b::c did not pass", "the guest did not finish"
//! ```
//!
//! libtest names a test, but not its binary. The marks say to which suite a line belongs, because
//! two suites may have a test of one name.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

/// Prefix of the lines that the init script prints. No test may print such a line.
pub(super) const MARK: &str = "@vm ";

/// Results that the guest has printed so far.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// Number of the running suite.
    current: Option<usize>,
    /// Passed tests, each with the number of its suite.
    passed: BTreeSet<(usize, String)>,
    /// Finished suites with their exit status.
    ended: Vec<(usize, String)>,
    /// Errors that the init script printed.
    errors: Vec<String>,
    /// Whether the init script has finished.
    done: bool,
}

impl Results {
    /// Processes a line of the guest.
    pub(super) fn record(&mut self, line: &str) {
        if let Some(words) = line.strip_prefix(MARK) {
            self.record_mark(words);
        } else if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|line| line.strip_suffix(" ... ok"))
            && let Some(suite) = self.current
        {
            // Outside of a suite, the name would be that of no known binary.
            self.passed.insert((suite, name.to_owned()));
        }
    }

    /// Checks that each suite finished and that each of its tests passed.
    pub(super) fn check<'a>(
        &self,
        suites: impl IntoIterator<Item = (String, &'a [String])>,
    ) -> Result<()> {
        let mut problems = self.errors.clone();
        for (number, (suite, names)) in suites.into_iter().enumerate() {
            problems.extend(self.problem(number, &suite));
            // libtest exits with 0 if it has nothing to run.
            if names.is_empty() {
                problems.push(format!("{suite}: no tests"));
            }
            for name in names {
                if !self.passed.contains(&(number, name.clone())) {
                    problems.push(format!("{suite}: {name} did not pass"));
                }
            }
        }
        self.conclude(problems)
    }

    /// Checks that each command of the guest succeeded. Unlike [`check`](Self::check), for
    /// commands that are no test binaries, such as those of a benchmark.
    pub(super) fn check_runs(&self, titles: &[&str]) -> Result<()> {
        let runs = titles.iter().enumerate();
        let problems = runs.filter_map(|(number, title)| self.problem(number, title));
        self.conclude(self.errors.iter().cloned().chain(problems).collect())
    }

    /// Returns an error message unless the command finished with exit status 0.
    fn problem(&self, number: usize, title: &str) -> Option<String> {
        let status = self.ended.iter().find(|(ended, _)| *ended == number);
        match status {
            None => Some(format!("{title}: did not finish")),
            Some((_, status)) if status != "0" => Some(format!("{title}: exit status {status}")),
            Some(_) => None,
        }
    }

    /// Returns an error with all problems at once, because another run takes minutes.
    fn conclude(&self, mut problems: Vec<String>) -> Result<()> {
        if !self.done {
            problems.push("the guest did not finish".to_owned());
        }
        if problems.is_empty() {
            return Ok(());
        }
        bail!("{}", problems.join("\n"));
    }

    fn record_mark(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let (verb, number, rest) = (words.next(), words.next(), words.next());
        let number = number.and_then(|number| number.parse().ok());
        match (verb, number, rest) {
            (Some("begin"), Some(suite), _) => self.current = Some(suite),
            (Some("end"), Some(suite), Some(status)) => {
                self.current = None;
                self.ended.push((suite, status.to_owned()));
            }
            (Some("done"), ..) => self.done = true,
            // `failed: modprobe …`, or a mark that was cut.
            _ => self.errors.push(format!("guest: {line}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
        @vm begin 0\n\
        test a ... ok\n\
        test b::c ... ok\n\
        test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out\n\
        @vm end 0 0\n\
        @vm begin 1\n\
        test a ... ok\n\
        @vm end 1 0\n\
        @vm done\n";

    /// Two suites, the first with two tests.
    fn check(output: &str) -> Result<(), String> {
        let mut results = Results::default();
        output.lines().for_each(|line| results.record(line));
        let (first, second) = (["a".to_owned(), "b::c".to_owned()], ["a".to_owned()]);
        let suites = [("one".to_owned(), &first[..]), ("two".to_owned(), &second)];
        results.check(suites).map_err(|error| error.to_string())
    }

    #[test]
    fn a_guest_whose_tests_all_passed_succeeds() {
        assert_eq!(check(GOOD), Ok(()));
    }

    #[test]
    fn the_error_names_tests_and_suites_that_did_not_pass() {
        for (old, new, problem) in [
            ("test b::c ... ok\n", "", "one: b::c did not pass"),
            ("b::c ... ok", "b::c ... FAILED", "one: b::c did not pass"),
            ("b::c ... ok", "b::c ... ignored", "one: b::c did not pass"),
            ("@vm end 0 0", "@vm end 0 101", "one: exit status 101"),
            ("@vm end 0 0\n", "", "one: did not finish"),
            ("@vm done\n", "", "the guest did not finish"),
            (
                "@vm begin 0",
                "@vm failed: modprobe ip_vs\n@vm begin 0",
                "guest: failed: modprobe ip_vs",
            ),
        ] {
            let output = GOOD.replacen(old, new, 1);
            assert_ne!(output, GOOD);
            assert_eq!(check(&output), Err(problem.to_owned()));
        }
    }

    #[test]
    fn a_suite_without_tests_fails() {
        let mut results = Results::default();
        "@vm begin 0\n@vm end 0 0\n@vm done"
            .lines()
            .for_each(|line| results.record(line));
        let error = results.check([("one".to_owned(), &[][..])]).unwrap_err();
        assert_eq!(error.to_string(), "one: no tests");
    }

    #[test]
    fn commands_without_tests_must_finish_with_exit_status_0() {
        let mut results = Results::default();
        "@vm begin 0\n@vm end 0 0\n@vm begin 1\n@vm end 1 1\n@vm done"
            .lines()
            .for_each(|line| results.record(line));
        assert!(results.check_runs(&["one"]).is_ok());
        let error = results.check_runs(&["one", "two", "three"]).unwrap_err();
        let expected = "two: exit status 1\nthree: did not finish";
        assert_eq!(error.to_string(), expected);
    }
}
