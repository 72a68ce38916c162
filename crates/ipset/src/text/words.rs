//! Words of a line of `ipset restore` input.

use std::borrow::Cow;

use crate::{Name, ParseError};

/// The expected item and the text found instead.
pub(super) struct Fault {
    expected: &'static str,
    text: String,
}

impl Fault {
    pub(super) fn new(expected: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { expected, text }
    }

    /// Returns the error for a line, counted from 1.
    pub(super) fn at(self, line: usize) -> ParseError {
        let Self { expected, text } = self;
        ParseError {
            line,
            expected,
            text: text.into(),
        }
    }
}

/// Splits a line at white space outside quotes, as `ipset restore` does.
///
/// A quote begins or ends a quoted part anywhere in a word, and there is no escape:
/// `"a \"b\""` is the word `a \b\`. An empty word is no word, so that `comment ""` lacks a
/// value. Seen with ipset 7.17.
pub(super) fn split(line: &str) -> Result<Vec<Cow<'_, str>>, Fault> {
    let (mut words, mut rest) = (Vec::new(), line.trim());
    while !rest.is_empty() {
        let mut is_quoted = false;
        let end = rest.find(|c: char| {
            is_quoted ^= c == '"';
            c.is_whitespace() && !is_quoted
        });
        if is_quoted {
            return Err(Fault::new("closing quote", rest));
        }
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        let word = match word.contains('"') {
            true => Cow::from(word.replace('"', "")),
            false => Cow::from(word),
        };
        words.extend(Some(word).filter(|word| !word.is_empty()));
        rest = after.trim_start();
    }
    Ok(words)
}

/// The remaining words of a line.
pub(super) struct Words<'a>(pub(super) std::vec::IntoIter<&'a str>);

impl<'a> Words<'a> {
    /// Parses the next word.
    pub(super) fn take<T>(
        &mut self,
        expected: &'static str,
        read: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<T, Fault> {
        let word = self.0.next().unwrap_or_default();
        read(word).ok_or_else(|| Fault::new(expected, word))
    }

    pub(super) fn name(&mut self) -> Result<Name, Fault> {
        self.take("name of a set", |word| Name::new(word).ok())
    }

    /// Parses a number of at most `max`.
    pub(super) fn number<T: TryFrom<u64>>(&mut self) -> Result<T, Fault> {
        self.take("number", number)
    }

    /// Returns the next option without its leading `--`.
    pub(super) fn option(&mut self) -> Option<&'a str> {
        let word = self.0.next()?;
        Some(word.strip_prefix("--").unwrap_or(word))
    }
}

/// Parses a number: decimal, hexadecimal after `0x`, or octal after `0`.
pub(super) fn number<T: TryFrom<u64>>(word: &str) -> Option<T> {
    let is_hex = |word: &&str| word.starts_with(|c: char| c.is_ascii_hexdigit());
    let hex = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    let value = match (hex, word.strip_prefix('0')) {
        (Some(digits), _) => u64::from_str_radix(Some(digits).filter(is_hex)?, 16),
        (None, Some(digits)) if digits.starts_with(|c: char| c.is_ascii_digit()) => {
            u64::from_str_radix(digits, 8)
        }
        _ if word.starts_with(|c: char| c.is_ascii_digit()) => word.parse(),
        _ => return None,
    };
    value.ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_like_those_of_ipset() {
        let cases: [(&str, Option<&[&str]>); 9] = [
            (" add  s\t1.1.1.1 ", Some(&["add", "s", "1.1.1.1"])),
            (r#"comment "a b""#, Some(&["comment", "a b"])),
            (r#"comment """#, Some(&["comment"])),
            (r#"comment "a \"b\"""#, Some(&["comment", r"a \b\"])),
            (
                r#"comment "ab"cd timeout 5"#,
                Some(&["comment", "abcd", "timeout", "5"]),
            ),
            (r#"comment x"c d""#, Some(&["comment", "xc d"])),
            (r#"comment "a\nb\\c""#, Some(&["comment", r"a\nb\\c"])),
            (r#"comment a\"b"#, None),
            (r#"comment "a"#, None),
        ];
        for (line, expected) in cases {
            let words = split(line).ok();
            let words: Option<Vec<&str>> = words
                .as_ref()
                .map(|words| words.iter().map(|word| &**word).collect());
            assert_eq!(words.as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn numbers_are_decimal_hexadecimal_or_octal() {
        let cases = [
            ("0", Some(0)),
            ("255", Some(255)),
            ("0xff", Some(255)),
            ("010", Some(8)),
            ("256", None),
            ("08", None),
            ("+5", None),
            ("0x", None),
            ("0x+5", None),
            ("", None),
        ];
        for (word, expected) in cases {
            assert_eq!(number::<u8>(word), expected, "{word}");
        }
    }
}
