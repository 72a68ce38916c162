//! Lines of texts that come or go piece by piece.

use std::fmt;

use crate::error::DocumentLine;

/// Joins pieces to lines.
///
/// A line that lies within one piece is handed over as it lies there, so no
/// more than one line is ever kept.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The beginning of a line whose end is still to come.
    begun: Vec<u8>,
    /// How many lines were handed over.
    count: usize,
}

impl Lines {
    /// Hands over the lines that are complete with one more piece, each with
    /// its number.
    pub(crate) fn push<E>(
        &mut self,
        piece: &[u8],
        each: &mut impl FnMut(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            self.count += 1;
            if self.begun.is_empty() {
                each(self.count, line)?;
            } else {
                self.begun.extend_from_slice(line);
                each(self.count, &self.begun)?;
                self.begun.clear();
            }
        }
        self.begun.extend_from_slice(rest);
        Ok(())
    }

    /// Hands over what comes after the last line end, if there is anything.
    pub(crate) fn finish<E>(
        mut self,
        each: &mut impl FnMut(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.begun.is_empty() {
            return Ok(());
        }
        self.push(b"\n", each)
    }
}

/// Looks a line of a document up, which is printed again up to there.
pub(crate) fn line_of(document: &impl fmt::Display, number: usize) -> DocumentLine {
    let mut finder = Finder {
        wanted: number,
        number: 1,
        line: String::new(),
        commits: 0,
        is_found: false,
    };
    // Stopped by an error of its own once it has what it looks for.
    let _ = fmt::write(&mut finder, format_args!("{document}"));
    let is_there = finder.is_found || finder.number == number && !finder.line.is_empty();
    DocumentLine {
        number,
        text: is_there.then(|| finder.line.into()),
        commits: finder.commits,
    }
}

/// Keeps one line of what is written to it.
struct Finder {
    wanted: usize,
    /// The number of the line that is being written.
    number: usize,
    /// The wanted line, or one that may be a `COMMIT`.
    line: String,
    commits: usize,
    is_found: bool,
}

impl Finder {
    /// Ends the line that is being written; fails at the wanted one.
    fn end(&mut self) -> fmt::Result {
        if self.number == self.wanted {
            self.is_found = true;
            return Err(fmt::Error);
        }
        self.commits += usize::from(self.line == "COMMIT");
        self.line.clear();
        self.number += 1;
        Ok(())
    }
}

impl fmt::Write for Finder {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive('\n') {
            self.line.push_str(piece.trim_end_matches('\n'));
            if piece.ends_with('\n') {
                self.end()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a text that comes in pieces of a size.
    fn lines(text: &str, size: usize) -> Vec<(usize, String)> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        let mut each = |number, line: &[u8]| {
            found.push((number, String::from_utf8(line.to_vec()).unwrap()));
            Ok::<(), ()>(())
        };
        for piece in text.as_bytes().chunks(size) {
            lines.push(piece, &mut each).unwrap();
        }
        lines.finish(&mut each).unwrap();
        found
    }

    #[test]
    fn lines_are_the_same_however_the_text_is_cut() {
        let text = "*nat\n\n:Ä - [0:0]\nCOMMIT\n# the end";
        let wanted: Vec<_> = (1..).zip(text.lines().map(str::to_owned)).collect();
        for size in 1..=text.len() {
            assert_eq!(lines(text, size), wanted, "{size}");
        }
        assert!(lines("", 1).is_empty());
    }

    #[test]
    fn an_error_ends_the_handing_over() {
        let mut count = 0;
        let mut each = |_, _: &[u8]| {
            count += 1;
            if count == 2 { Err(()) } else { Ok(()) }
        };
        assert_eq!(Lines::default().push(b"a\nb\nc\n", &mut each), Err(()));
        assert_eq!(count, 2);
    }

    #[test]
    fn a_line_of_a_document_is_found_with_the_tables_before_it() {
        let document = "*filter\n-A A\nCOMMIT\n*nat\n-A COMMIT\nCOMMIT\nno end";
        let line = |number| {
            let line = line_of(&document, number);
            (line.text.unwrap_or_else(|| "none".into()), line.commits)
        };
        assert_eq!(line(1), ("*filter".into(), 0));
        assert_eq!(line(3), ("COMMIT".into(), 0));
        assert_eq!(line(5), ("-A COMMIT".into(), 1));
        assert_eq!(line(7), ("no end".into(), 2));
        assert_eq!(line(8), ("none".into(), 2));
    }

    #[test]
    fn a_line_may_be_written_in_pieces() {
        struct Lexer([&'static str; 5]);
        impl fmt::Display for Lexer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|word| f.write_str(word))
            }
        }
        let document = Lexer(["*nat\n-A", " A", " -j B\n", "CO", "MMIT\n-X"]);
        assert_eq!(&*line_of(&document, 2).text.unwrap(), "-A A -j B");
        assert_eq!(line_of(&document, 4).commits, 1);
    }
}
