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
    /// The Service, or `all`.
    pub(super) service: String,
    /// What was asked.
    pub(super) what: String,
    /// Who asked.
    pub(super) from: String,
    /// What came of it.
    pub(super) outcome: Outcome,
}

/// What came of asking.
#[derive(Debug)]
pub(super) enum Outcome {
    /// All is as it should be, and something to say of it, or nothing.
    Right(Answers, String),
    /// Something is not, and what.
    Wrong(Answers, String),
    /// A figure that is neither right nor wrong.
    Figure(String),
    /// The mode cannot be shown.
    Absent,
}

/// What came back to some who asked, and the first thing that is wrong.
#[derive(Debug, Default)]
pub(super) struct Tally {
    answers: Answers,
    wrong: Option<String>,
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

impl Tally {
    /// Adds what came back to one who asked, and what is wrong with it.
    pub(super) fn add(
        &mut self,
        who: impl fmt::Display,
        answers: Answers,
        verdict: Result<(), String>,
    ) {
        self.answers = std::mem::take(&mut self.answers).merge(answers);
        if let (None, Err(words)) = (&self.wrong, verdict) {
            self.wrong = Some(format!("{who}: {words}"));
        }
    }

    /// Ends it; `note` is what to say if nothing is wrong.
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
            "{:<mode$}  {:<service$}  {:<what$}  {:<from$}  {:>6}  {:>6}  who answered",
            "mode", "service", "reached by", "from", "asked", "failed"
        )?;
        for row in &self.rows {
            write!(
                f,
                "{:<mode$}  {:<service$}  {:<what$}  {:<from$}  ",
                row.mode, row.service, row.what, row.from
            )?;
            match &row.outcome {
                Outcome::Right(answers, note) if answers.answered() == 0 => {
                    writeln!(f, "{:>6}  {:>6}  {note}", answers.asked(), "")?;
                }
                Outcome::Right(answers, note) => writeln!(f, "{}{note}", counts(answers))?,
                Outcome::Wrong(answers, words) => {
                    writeln!(f, "{}  WRONG: {words}", counts(answers))?;
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
    use super::*;

    fn answers(server: &str, count: usize) -> Answers {
        Answers {
            servers: [(server.to_owned(), count)].into(),
            ..Answers::default()
        }
    }

    #[test]
    fn the_first_thing_that_is_wrong_is_told_and_counted() {
        let mut tally = Tally::default();
        tally.add("client", answers("a", 3), Ok(()));
        tally.add("pod", answers("b", 4), Err("no answer from a".to_owned()));
        tally.add("node", answers("b", 5), Err("never told".to_owned()));
        let mut fine = Tally::default();
        fine.add("client", answers("a", 3), Ok(()));
        let mut table = Table::default();
        for outcome in [
            tally.outcome(String::new()),
            fine.outcome(", as told".to_owned()),
            Tally::default().outcome("refused".to_owned()),
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
            "who answered",
            "12       0  a 3, b 9  WRONG: pod: no answer from a",
            "3       0  a 3, as told",
            "0          refused",
            "-       -",
        ];
        for (line, end) in text.lines().zip(ends) {
            assert!(line.ends_with(end), "{line:?} should end with {end:?}");
        }
    }
}
