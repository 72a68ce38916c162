//! Table of the results of the demo.

use std::fmt;

use testkit::traffic::Answers;

/// Rows in order of their addition.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Row>,
}

/// Results of requests to one frontend, in one mode.
#[derive(Debug)]
pub(super) struct Row {
    /// Proxy mode.
    pub(super) mode: &'static str,
    /// Name of the Service, or `all`.
    pub(super) service: String,
    /// Description of the frontend.
    pub(super) what: String,
    /// Names of the clients.
    pub(super) from: String,
    /// Outcome.
    pub(super) outcome: Outcome,
}

/// Outcome of requests.
#[derive(Debug)]
pub(super) enum Outcome {
    /// All results are as expected; with a note, which may be empty.
    Right(Answers, String),
    /// A result is not as expected; with a description.
    Wrong(Answers, String),
    /// A measurement.
    Figure(String),
    /// The mode did not run.
    Absent,
}

/// Sum of answers, and the first wrong result.
#[derive(Debug, Default)]
pub(super) struct Tally {
    answers: Answers,
    wrong: Option<String>,
}

impl Table {
    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Returns the number of rows with wrong results.
    pub(super) fn failures(&self) -> usize {
        let is_wrong = |row: &&Row| matches!(row.outcome, Outcome::Wrong(..));
        self.rows.iter().filter(is_wrong).count()
    }
}

impl Tally {
    /// Adds the answers to one client, and the description of a wrong result.
    pub(super) fn add(
        &mut self,
        source: impl fmt::Display,
        answers: Answers,
        verdict: Result<(), String>,
    ) {
        self.answers = std::mem::take(&mut self.answers).merge(answers);
        if let (None, Err(words)) = (&self.wrong, verdict) {
            self.wrong = Some(format!("{source}: {words}"));
        }
    }

    /// Returns the outcome, with `note` if no result is wrong.
    pub(super) fn outcome(self, note: String) -> Outcome {
        match self.wrong {
            Some(words) => Outcome::Wrong(self.answers, words),
            None => Outcome::Right(self.answers, note),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |cell: fn(&Row) -> &str| {
            let cells = self.rows.iter().map(|row| cell(row).chars().count());
            cells.max().unwrap_or(0)
        };
        let mode = width(|row| row.mode);
        let service = width(|row| &row.service).max("service".len());
        let (what, from) = (width(|row| &row.what), width(|row| &row.from));
        writeln!(
            f,
            "{:<mode$}  {:<service$}  {:<what$}  {:<from$}  {:>8}  {:>6}  answers",
            "mode", "service", "frontend", "from", "requests", "failed"
        )?;
        for row in &self.rows {
            write!(
                f,
                "{:<mode$}  {:<service$}  {:<what$}  {:<from$}  ",
                row.mode, row.service, row.what, row.from
            )?;
            match &row.outcome {
                Outcome::Right(answers, note) if answers.answered() == 0 => {
                    writeln!(f, "{:>8}  {:>6}  {note}", answers.asked(), "")?;
                }
                Outcome::Right(answers, note) => writeln!(f, "{}{note}", counts(answers))?,
                Outcome::Wrong(answers, words) => {
                    writeln!(f, "{}  WRONG: {words}", counts(answers))?;
                }
                Outcome::Figure(words) => writeln!(f, "{:>8}  {:>6}  {words}", "", "")?,
                Outcome::Absent => writeln!(f, "{:>8}  {:>6}", "-", "-")?,
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
        "{:>8}  {:>6}  {}",
        answers.asked(),
        answers.failures.len(),
        servers.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(server: &str, count: usize) -> Answers {
        Answers {
            servers: [(server.to_owned(), count)].into(),
            ..Answers::default()
        }
    }

    #[test]
    fn the_first_wrong_result_is_shown_and_counted() {
        let mut tally = Tally::default();
        tally.add("client", answers("a", 3), Ok(()));
        tally.add("pod", answers("b", 4), Err("no answer from a".to_owned()));
        tally.add("node", answers("b", 5), Err("not shown".to_owned()));
        let mut fine = Tally::default();
        fine.add("client", answers("a", 3), Ok(()));
        let mut table = Table::default();
        for outcome in [
            tally.outcome(String::new()),
            fine.outcome(", as expected".to_owned()),
            Tally::default().outcome("rejected".to_owned()),
            Outcome::Absent,
        ] {
            table.add(Row {
                mode: "nftables",
                service: "web".to_owned(),
                what: "cluster IP".to_owned(),
                from: "client".to_owned(),
                outcome,
            });
        }
        assert_eq!(table.failures(), 1);
        let text = table.to_string();
        let ends = [
            "answers",
            "12       0  a 3, b 9  WRONG: pod: no answer from a",
            "3       0  a 3, as expected",
            "0          rejected",
            "-       -",
        ];
        for (line, end) in text.lines().zip(ends) {
            assert!(line.ends_with(end), "{line:?} should end with {end:?}");
        }
    }
}
