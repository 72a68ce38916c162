//! The table that a demo ends with.

use std::fmt;

use testkit::traffic::Answers;

/// The rows, in the order they were found.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Row>,
}

/// One line: what was asked in a mode, and what came of it.
#[derive(Debug)]
pub(super) struct Row {
    /// The mode.
    pub(super) mode: &'static str,
    /// What was asked, and by whom.
    pub(super) what: String,
    /// What came of it.
    pub(super) outcome: Outcome,
}

/// What came of asking.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Everybody who should have answered did, and nothing failed.
    Answered(Answers),
    /// Something failed, or somebody never answered.
    Wrong(Answers, String),
    /// Nobody answered, and nobody should have.
    Refused(usize),
    /// A figure that is neither right nor wrong.
    Figure(String),
    /// The mode cannot be shown.
    Absent,
}

impl Table {
    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Returns how many rows are not as they should be.
    pub(super) fn failures(&self) -> usize {
        let is_wrong = |row: &&Row| matches!(row.outcome, Outcome::Wrong(..));
        self.rows.iter().filter(is_wrong).count()
    }
}

impl Outcome {
    /// Judges answers: nothing failed, and all of `expected` answered.
    pub(super) fn of(answers: Answers, expected: &[String]) -> Self {
        let silent: Vec<&str> = expected
            .iter()
            .map(|server| &**server)
            .filter(|server| answers.by(server) == 0)
            .collect();
        if let Some(first) = answers.failures.first() {
            let words = format!("first failure after {:.1?}: {}", first.at, first.reason);
            Self::Wrong(answers, words)
        } else if !silent.is_empty() {
            let words = format!("no answer from {}", silent.join(", "));
            Self::Wrong(answers, words)
        } else {
            Self::Answered(answers)
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |cell: fn(&Row) -> &str| {
            self.rows
                .iter()
                .map(|row| cell(row).chars().count())
                .max()
                .unwrap_or(0)
        };
        let (mode, what) = (width(|row| row.mode), width(|row| &row.what));
        writeln!(
            f,
            "{:<mode$}  {:<what$}  {:>6}  {:>6}  who answered",
            "mode", "what", "asked", "failed"
        )?;
        for row in &self.rows {
            write!(f, "{:<mode$}  {:<what$}  ", row.mode, row.what)?;
            match &row.outcome {
                Outcome::Answered(answers) => writeln!(f, "{}", counts(answers))?,
                Outcome::Wrong(answers, words) => {
                    writeln!(f, "{}  WRONG: {words}", counts(answers))?;
                }
                Outcome::Refused(asked) => {
                    writeln!(f, "{asked:>6}  {:>6}  refused, as it should be", "")?;
                }
                Outcome::Figure(words) => writeln!(f, "{:>6}  {:>6}  {words}", "", "")?,
                Outcome::Absent => writeln!(f, "{:>6}  {:>6}", "-", "-")?,
            }
        }
        Ok(())
    }
}

fn counts(answers: &Answers) -> String {
    let servers: Vec<String> = answers
        .servers
        .iter()
        .map(|(server, count)| format!("{server} {count}"))
        .collect();
    format!(
        "{:>6}  {:>6}  {}",
        answers.asked(),
        answers.failures.len(),
        servers.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;
    use std::time::Duration;

    use testkit::traffic::Failure;

    use super::*;

    fn answers(servers: &[(&str, usize)]) -> Answers {
        let servers: BTreeMap<_, _> = servers
            .iter()
            .map(|&(server, count)| (server.to_owned(), count))
            .collect();
        Answers {
            servers,
            ..Answers::default()
        }
    }

    #[test]
    fn a_failure_or_a_silent_endpoint_is_wrong() {
        let expected = ["a", "b"].map(str::to_owned);
        let both = answers(&[("a", 3), ("b", 4)]);
        assert!(matches!(
            Outcome::of(both.clone(), &expected),
            Outcome::Answered(_)
        ));
        let mut failed = both;
        failed.failures.push(Failure {
            at: Duration::ZERO,
            kind: io::ErrorKind::TimedOut,
            reason: "late".to_owned(),
        });
        let one = answers(&[("a", 7)]);
        let mut table = Table::default();
        for outcome in [
            Outcome::of(failed, &expected),
            Outcome::of(one, &expected),
            Outcome::Absent,
        ] {
            table.add(Row {
                mode: "nftables",
                what: "web".to_owned(),
                outcome,
            });
        }
        assert_eq!(table.failures(), 2);
        let text = table.to_string();
        assert!(
            text.contains("late") && text.contains("no answer from b"),
            "{text}"
        );
    }
}
