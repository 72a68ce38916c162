//! `-m comment`: a remark.

use std::borrow::Cow;
use std::fmt;

use crate::options::{Extension, Taken, Values};
use crate::quote::Quoted;

/// A remark: `-m comment --comment "a b"`.
///
/// The kernel keeps 255 bytes of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Comment<'a>(pub Cow<'a, str>);

impl<'a> Comment<'a> {
    /// Makes a remark.
    pub fn new(text: impl Into<Cow<'a, str>>) -> Self {
        Self(text.into())
    }
}

impl<'a> Extension<'a> for Comment<'a> {
    fn open() -> Self {
        Self(Cow::Borrowed(""))
    }

    fn take(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Taken {
        if option != "--comment" {
            return Ok(false);
        }
        values.is_number(0)?;
        self.0 = values.word()?;
        Ok(true)
    }
}

impl fmt::Display for Comment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-m comment --comment {}", Quoted(&self.0))
    }
}
