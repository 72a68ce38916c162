//! Lexer for rules.

use std::borrow::Cow;

use crate::parse_error::{ParseError, RuleProblem};

/// Splits text into words like `iptables-restore`.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

/// A word and its position.
#[derive(Clone, Debug)]
pub(crate) struct Word<'a> {
    /// The word without quotes.
    pub(crate) text: Cow<'a, str>,
    /// Byte offset, including the quote.
    pub(crate) start: usize,
    /// Whether a part of the word was quoted.
    pub(crate) quoted: bool,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the whole text.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// Returns the byte offset after the last word.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Moves to a byte offset between words.
    pub(crate) fn set_at(&mut self, at: usize) {
        self.at = at;
    }

    /// Returns the next word, if any.
    pub(crate) fn next(&mut self) -> Result<Option<Word<'a>>, ParseError> {
        let bytes = self.text.as_bytes();
        let blanks = bytes[self.at..].iter().take_while(|b| is_blank(**b));
        let start = self.at + blanks.count();
        let rest = bytes[start..].iter();
        let len = rest.take_while(|b| !is_blank(**b) && **b != b'"').count();
        let end = start + len;
        if bytes.get(end) == Some(&b'"') {
            return self.quoted(start, end).map(Some);
        }
        self.at = end;
        Ok((len > 0).then(|| Word {
            text: Cow::Borrowed(&self.text[start..end]),
            start,
            quoted: false,
        }))
    }

    /// Parses a word with a quote at `quote`. The closing quote ends the word.
    fn quoted(&mut self, start: usize, quote: usize) -> Result<Word<'a>, ParseError> {
        let inner = &self.text[quote + 1..];
        let len = inner.bytes().position(|b| matches!(b, b'"' | b'\\'));
        let unclosed = || ParseError::of_word(self.text, start, RuleProblem::UnclosedQuote);
        let mut text = Cow::Borrowed(&inner[..len.ok_or_else(unclosed)?]);
        let mut rest = inner[text.len()..].chars();
        if start < quote {
            text = Cow::Owned(format!("{}{text}", &self.text[start..quote]));
        }
        loop {
            match rest.next().ok_or_else(unclosed)? {
                '"' => break,
                '\\' => text.to_mut().push(rest.next().ok_or_else(unclosed)?),
                other => text.to_mut().push(other),
            }
        }
        self.at = self.text.len() - rest.as_str().len();
        Ok(Word {
            text,
            start,
            quoted: true,
        })
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Result<Vec<String>, ParseError> {
        let mut words = Lexer::new(text);
        std::iter::from_fn(|| words.next().transpose())
            .map(|word| Ok(word?.text.into_owned()))
            .collect()
    }

    #[test]
    fn words_end_at_blanks_and_closing_quotes() {
        let table: [(&str, &[&str]); 8] = [
            ("", &[]),
            ("  -s \t a\n", &["-s", "a"]),
            (r#"--comment "a b" -j X"#, &["--comment", "a b", "-j", "X"]),
            (r#""a\"b\\c\'d""#, &[r#"a"b\c'd"#]),
            (r#""""#, &[""]),
            (r#"a"b c"d"#, &["ab c", "d"]),
            (r#"a\ b 'c'"#, &[r"a\", "b", "'c'"]),
            ("\"ü\\ö\"é", &["üö", "é"]),
        ];
        for (text, words) in table {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
        for text in ["\"", "a \"b", "\"a\\", "\"a\\\"", "x\""] {
            assert!(split(text).is_err(), "{text}");
        }
    }
}
