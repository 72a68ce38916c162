//! Quoting of strings in rules.

use std::fmt::{self, Write};

/// Returns whether a word needs no quotes.
pub(crate) fn is_bare(text: &str) -> bool {
    !text.is_empty()
        && !text
            .bytes()
            .any(|b| b.is_ascii_whitespace() || b.is_ascii_control() || b == b'"')
}

/// Prints a name like iptables: without quotes.
///
/// A name that could not be parsed again is quoted.
pub(crate) struct Bare<'t>(pub(crate) &'t str);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_bare(self.0) {
            return f.write_str(self.0);
        }
        Quoted(self.0).fmt(f)
    }
}

/// Prints a string like iptables: with quotes if necessary.
pub(crate) struct Quoted<'t>(pub(crate) &'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        if !self.0.is_empty() && self.0.bytes().all(plain) {
            return f.write_str(self.0);
        }
        f.write_char('"')?;
        let mut rest = self.0;
        let is_special = |b: u8| matches!(b, b'"' | b'\\' | b'\'' | b'\n');
        while let Some(at) = rest.bytes().position(is_special) {
            f.write_str(&rest[..at])?;
            // A newline ends the rule, even in quotes.
            f.write_str(match &rest[at..=at] {
                "\n" => " ",
                "\"" => r#"\""#,
                "'" => r"\'",
                _ => r"\\",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)?;
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_with_special_characters_are_quoted() {
        let table = [
            ("a-b_C9", "a-b_C9"),
            ("", r#""""#),
            ("a.b", r#""a.b""#),
            ("a b", r#""a b""#),
            ("ü", r#""ü""#),
            (r#"a"b\c'd"#, r#""a\"b\\c\'d""#),
        ];
        for (text, quoted) in table {
            assert_eq!(Quoted(text).to_string(), quoted);
        }
    }
}
