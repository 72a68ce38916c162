//! Line handling for text that is read or written in chunks.

use std::fmt;

use crate::client::error::DocumentLine;

/// Splits chunks into lines.
///
/// Lines within one chunk are not copied. At most one line is buffered.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
    /// Number of lines passed on.
    count: usize,
}

impl Lines {
    /// Adds a chunk and calls `each` for every complete line, with its number.
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

    /// Calls `each` for the text after the last newline, if any.
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

/// Returns a line of a document. Formats the document again up to this line.
pub(crate) fn line_of(document: &impl fmt::Display, number: usize) -> DocumentLine {
    let mut finder = Finder {
        wanted: number,
        number: 1,
        line: String::new(),
        commits: 0,
        is_found: false,
    };
    // The finder stops the formatting with an error at the wanted line.
    let _ = fmt::write(&mut finder, format_args!("{document}"));
    let is_there = finder.is_found || finder.number == number && !finder.line.is_empty();
    DocumentLine {
        number,
        text: is_there.then(|| finder.line.into()),
        commits: finder.commits,
    }
}

/// Finds a line in the text written to it.
struct Finder {
    wanted: usize,
    /// Number of the current line.
    number: usize,
    /// The current line.
    line: String,
    commits: usize,
    is_found: bool,
}

impl Finder {
    /// Ends the current line. Returns an error at the wanted line.
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

    /// Returns the lines of a text that arrives in chunks of a size.
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
    fn lines_do_not_depend_on_the_chunk_size() {
        let text = "*nat\n\n:Ä - [0:0]\nCOMMIT\n# the end";
        let wanted: Vec<_> = (1..).zip(text.lines().map(str::to_owned)).collect();
        for size in 1..=text.len() {
            assert_eq!(lines(text, size), wanted, "{size}");
        }
        assert!(lines("", 1).is_empty());
    }

    #[test]
    fn an_error_stops_the_iteration() {
        let mut count = 0;
        let mut each = |_, _: &[u8]| {
            count += 1;
            if count == 2 { Err(()) } else { Ok(()) }
        };
        assert_eq!(Lines::default().push(b"a\nb\nc\n", &mut each), Err(()));
        assert_eq!(count, 2);
    }

    #[test]
    fn a_line_is_found_with_the_number_of_commits_before_it() {
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
    fn a_line_is_found_if_it_is_written_in_parts() {
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
