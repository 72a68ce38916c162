//! Document parser.

use super::{Line, Table, Tables};
use crate::parse_error::{Expected, ParseError};

impl<'a> Tables<'a> {
    /// Parses a document.
    ///
    /// Accepts every document that `iptables-restore` accepts.
    /// Checks the order of lines and their first words, but not the text after the
    /// chain name of a rule.
    /// The last newline is optional.
    ///
    /// # Errors
    ///
    /// [`ParseError::Line`] for an invalid or misplaced line, or if the last table has no
    /// `COMMIT`.
    pub fn parse(text: &'a str) -> Result<Self, ParseError> {
        let mut before = Vec::new();
        let mut tables: Vec<Table<'a>> = Vec::new();
        let mut lines = text.split_terminator('\n').zip(1..);
        while let Some((text, number)) = lines.next() {
            let error = |error: ParseError| error.in_line(number);
            let line = Line::parse_one(text).map_err(error)?;
            match (line, tables.last_mut()) {
                (Line::Blank | Line::Comment(_), Some(table)) => table.push_after(line),
                (Line::Blank | Line::Comment(_), None) => before.push(line),
                (Line::Table(first), _) => {
                    let body = parse_table(line, number, &mut lines)?;
                    tables.push(Table::new(first.name(), body));
                }
                _ => return Err(error(ParseError::of_line(Expected::Table, text))),
            }
        }
        Ok(Self {
            before,
            tables,
            is_terminated: text.ends_with('\n'),
        })
    }
}

/// Parses the lines of a table, up to `COMMIT`.
fn parse_table<'a>(
    first: Line<'a>,
    began: usize,
    rest: &mut impl Iterator<Item = (&'a str, usize)>,
) -> Result<Vec<Line<'a>>, ParseError> {
    let mut lines = vec![first];
    let mut last = began;
    for (text, number) in rest {
        last = number;
        let error = |error: ParseError| error.in_line(number);
        let line = Line::parse_one(text).map_err(error)?;
        if matches!(line, Line::Table(_)) {
            return Err(error(ParseError::of_line(Expected::Commit, text)));
        }
        lines.push(line);
        if line == Line::Commit {
            return Ok(lines);
        }
    }
    Err(ParseError::Line {
        line: Some(last + 1),
        expected: Expected::Commit,
        quoted: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Tables::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_error_has_the_line_number_and_the_expected_item() {
        assert_eq!(
            error("\n-A INPUT\n"),
            r#"line 2: expected a table such as *nat, or a comment, in "-A INPUT""#
        );
        assert_eq!(
            error("*nat\nCOMMIT\nCOMMIT\n"),
            r#"line 3: expected a table such as *nat, or a comment, in "COMMIT""#
        );
        assert_eq!(
            error("# a\n*nat\n*raw\n"),
            r#"line 3: expected COMMIT in "*raw""#
        );
        assert_eq!(error("*nat"), "line 2: expected COMMIT before the end");
        assert_eq!(
            error("*nat\n:a - [0:0]\n"),
            "line 3: expected COMMIT before the end"
        );
        assert_eq!(
            error("*nat\r\nCOMMIT\r\n"),
            r#"line 1: expected a table name of 1 to 28 bytes in "*nat\r""#
        );
    }

    #[test]
    fn an_error_quotes_at_most_60_bytes_of_a_line() {
        let long = format!("*nat\n{}\n", "ä".repeat(100));
        let quoted = format!("{}…", "ä".repeat(30));
        assert_eq!(
            error(&long),
            format!(
                "line 2: expected a command such as -A, or a comment, or COMMIT, in {quoted:?}"
            )
        );
    }
}
