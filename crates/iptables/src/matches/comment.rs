//! `-m comment`: a comment.

use std::borrow::Cow;
use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::quote::Quoted;
use crate::options::{Extension, Parsed, Values};

/// A comment: `-m comment --comment "a b"`.
///
/// The kernel keeps 255 bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Comment<'a>(pub Cow<'a, str>);

impl<'a> Comment<'a> {
    /// Creates a comment.
    pub fn new(text: impl Into<Cow<'a, str>>) -> Self {
        Self(text.into())
    }
}

impl<'a> Extension<'a> for Comment<'a> {
    fn open() -> Self {
        Self(Cow::Borrowed(""))
    }

    fn options() -> &'static [&'static str] {
        &["--comment"]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        if option != "--comment" {
            return Ok(false);
        }
        values.expect_index(0)?;
        self.0 = values.word()?;
        Ok(true)
    }
}

impl fmt::Display for Comment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-m comment --comment {}", Quoted(&self.0))
    }
}

/// Length of a comment with its NUL byte.
const XT_MAX_COMMENT_LEN: usize = 256;

/// `struct xt_comment_info`.
impl Structure for Comment<'_> {
    const NAME: &'static str = "comment";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.text(&self.0, XT_MAX_COMMENT_LEN)?;
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self::new(reader.text(XT_MAX_COMMENT_LEN)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;
    use crate::matches::Match;

    #[test]
    fn comments_are_quoted_if_necessary() {
        let table = [
            ("-m comment --comment word", "word"),
            ("-m comment --comment \"a b\"", "a b"),
            ("-m comment --comment \"\"", ""),
            ("-m comment --comment -j", "-j"),
            (r#"-m comment --comment "a\"b\'c\\d""#, r#"a"b'c\d"#),
        ];
        for (text, comment) in table {
            let rule = Rule::new().with_comment(comment);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
    }

    #[test]
    fn a_second_comment_option_is_unsupported() {
        for text in ["-m comment", "-m comment --comment a --comment b"] {
            let other = Match::Other(Cow::Borrowed(text));
            assert_eq!(Rule::parse(text), Ok(Rule::new().with_match(other)));
        }
    }

    #[test]
    fn newlines_in_comments_become_spaces() {
        let rule = Rule::new().with_comment("a\n-A INPUT -j DROP");
        assert_eq!(
            rule.to_string(),
            "-m comment --comment \"a -A INPUT -j DROP\""
        );
    }
}
