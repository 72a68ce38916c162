//! Table of the results of the demo, printed row by row.

use std::fmt;

use testkit::traffic::Answers;

/// Prints rows and counts them.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: usize,
    explained: usize,
    wrong: usize,
}

/// The heading of the table.
struct Heading;

/// Minimum widths of the columns for modes, Services, frontends and clients.
const WIDTHS: [usize; 4] = [8, 9, 31, 31];

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
    /// Prints a row, and the heading before the first row.
    pub(super) fn add(&mut self, row: &Row) {
        if self.rows == 0 {
            println!("{Heading}");
        }
        println!("{row}");
        self.rows += 1;
        self.wrong += usize::from(matches!(row.outcome, Outcome::Wrong(..)));
    }

    /// Returns the number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a row of connections that kube-proxy explains.
    pub(super) fn add_explained(&mut self, row: &Row) {
        self.explained += 1;
        self.add(row);
    }

    /// Returns the number of rows that kube-proxy explains.
    pub(super) fn explained(&self) -> usize {
        self.explained
    }

    /// Returns the number of rows with wrong results.
    pub(super) fn failures(&self) -> usize {
        self.wrong
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

impl fmt::Display for Heading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [mode, service, what, from] = WIDTHS;
        write!(
            f,
            "{:<mode$}  {:<service$}  {:<what$}  {:<from$}  {:>8}  {:>6}  answers",
            "mode", "service", "frontend", "from", "requests", "failed"
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [mode, service, what, from] = WIDTHS;
        write!(
            f,
            "{:<mode$}  {:<service$}  {:<what$}  {:<from$}  ",
            self.mode, self.service, self.what, self.from
        )?;
        match &self.outcome {
            Outcome::Right(answers, note) if answers.succeeded() == 0 => {
                write!(f, "{:>8}  {:>6}  {note}", answers.requests(), "")
            }
            Outcome::Right(answers, note) => write!(f, "{}{note}", counts(answers)),
            Outcome::Wrong(answers, words) => write!(f, "{}  WRONG: {words}", counts(answers)),
            Outcome::Figure(words) => write!(f, "{:>8}  {:>6}  {words}", "", ""),
            Outcome::Absent => write!(f, "{:>8}  {:>6}", "-", "-"),
        }
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
        answers.requests(),
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
        let ends = [
            "12       0  a 3, b 9  WRONG: pod: no answer from a",
            "3       0  a 3, as expected",
            "0          rejected",
            "-       -",
        ];
        let outcomes = [
            tally.outcome(String::new()),
            fine.outcome(", as expected".to_owned()),
            Tally::default().outcome("rejected".to_owned()),
            Outcome::Absent,
        ];
        for (outcome, end) in outcomes.into_iter().zip(ends) {
            let row = Row {
                mode: "nftables",
                service: "web".to_owned(),
                what: "cluster IP".to_owned(),
                from: "client".to_owned(),
                outcome,
            };
            let line = row.to_string();
            assert!(line.ends_with(end), "{line:?} should end with {end:?}");
            table.add(&row);
        }
        assert!(Heading.to_string().ends_with("answers"));
        assert_eq!((table.rows(), table.failures()), (4, 1));
    }
}
