//! What the guest prints, and whether all tests passed.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

/// What lines of the guest's own begin with.
pub(super) const MARK: &str = "@vm ";

/// What was heard of the guest up to now.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// The suite that runs.
    current: Option<usize>,
    /// Tests that passed, with the number of their suite.
    passed: BTreeSet<(usize, String)>,
    /// The suites that ended, with their exit status.
    ended: Vec<(usize, String)>,
    /// What the guest says is wrong.
    complaints: Vec<String>,
    /// The guest said that it has done everything.
    done: bool,
}

impl Results {
    /// Takes note of a line.
    pub(super) fn hear(&mut self, line: &str) {
        if let Some(words) = line.strip_prefix(MARK) {
            self.hear_mark(words);
        } else if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|line| line.strip_suffix(" ... ok"))
            && let Some(suite) = self.current
        {
            self.passed.insert((suite, name.to_owned()));
        }
    }

    /// Checks that each suite ran, and passed each of its tests.
    pub(super) fn check<'a>(
        &self,
        suites: impl IntoIterator<Item = (String, &'a [String])>,
    ) -> Result<()> {
        let mut problems = self.complaints.clone();
        for (number, (suite, names)) in suites.into_iter().enumerate() {
            problems.extend(self.problem(number, &suite));
            if names.is_empty() {
                problems.push(format!("{suite}: has no tests"));
            }
            for name in names {
                if !self.passed.contains(&(number, name.clone())) {
                    problems.push(format!("{suite}: {name} did not pass"));
                }
            }
        }
        self.conclude(problems)
    }

    /// Checks that everything the guest did went well.
    pub(super) fn check_runs(&self, titles: &[&str]) -> Result<()> {
        let runs = titles.iter().enumerate();
        let problems = runs.filter_map(|(number, title)| self.problem(number, title));
        self.conclude(self.complaints.iter().cloned().chain(problems).collect())
    }

    /// Tells what is wrong with how something ended.
    fn problem(&self, number: usize, title: &str) -> Option<String> {
        let status = self.ended.iter().find(|(ended, _)| *ended == number);
        match status {
            None => Some(format!("{title}: did not run to its end")),
            Some((_, status)) if status != "0" => Some(format!("{title}: exit status {status}")),
            Some(_) => None,
        }
    }

    fn conclude(&self, mut problems: Vec<String>) -> Result<()> {
        if !self.done {
            problems.push("the guest did not come to its end".to_owned());
        }
        if problems.is_empty() {
            return Ok(());
        }
        bail!("{}", problems.join("\n"));
    }

    fn hear_mark(&mut self, line: &str) {
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
            _ => self.complaints.push(format!("the guest says: {line}")),
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
        output.lines().for_each(|line| results.hear(line));
        let (first, second) = (["a".to_owned(), "b::c".to_owned()], ["a".to_owned()]);
        let suites = [("one".to_owned(), &first[..]), ("two".to_owned(), &second)];
        results.check(suites).map_err(|error| error.to_string())
    }

    #[test]
    fn all_that_passed_is_heard() {
        assert_eq!(check(GOOD), Ok(()));
    }

    #[test]
    fn what_did_not_run_or_pass_is_named() {
        for (old, new, problem) in [
            ("test b::c ... ok\n", "", "one: b::c did not pass"),
            ("b::c ... ok", "b::c ... FAILED", "one: b::c did not pass"),
            ("b::c ... ok", "b::c ... ignored", "one: b::c did not pass"),
            ("@vm end 0 0", "@vm end 0 101", "one: exit status 101"),
            ("@vm end 0 0\n", "", "one: did not run to its end"),
            ("@vm done\n", "", "the guest did not come to its end"),
            (
                "@vm begin 0",
                "@vm broken: modprobe ip_vs\n@vm begin 0",
                "the guest says: broken: modprobe ip_vs",
            ),
        ] {
            let output = GOOD.replacen(old, new, 1);
            assert_ne!(output, GOOD);
            assert_eq!(check(&output), Err(problem.to_owned()));
        }
    }

    #[test]
    fn a_suite_without_tests_is_no_success() {
        let mut results = Results::default();
        "@vm begin 0\n@vm end 0 0\n@vm done"
            .lines()
            .for_each(|line| results.hear(line));
        let error = results.check([("one".to_owned(), &[][..])]).unwrap_err();
        assert_eq!(error.to_string(), "one: has no tests");
    }

    #[test]
    fn what_has_no_tests_has_to_end_well_all_the_same() {
        let mut results = Results::default();
        "@vm begin 0\n@vm end 0 0\n@vm begin 1\n@vm end 1 1\n@vm done"
            .lines()
            .for_each(|line| results.hear(line));
        assert!(results.check_runs(&["one"]).is_ok());
        let error = results.check_runs(&["one", "two", "three"]).unwrap_err();
        let expected = "two: exit status 1\nthree: did not run to its end";
        assert_eq!(error.to_string(), expected);
    }
}
