//! A condition that can be negated with `!`.

use std::fmt;

/// A value to match, or a negated one (`!`).
///
/// Exhaustive: a condition is negated or not.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Negatable<T> {
    /// Matches this value.
    Is(T),
    /// Matches all other values.
    Not(T),
}

impl<T> Negatable<T> {
    /// Creates a condition.
    pub(crate) fn new(negated: bool, value: T) -> Self {
        if negated {
            Self::Not(value)
        } else {
            Self::Is(value)
        }
    }

    /// Returns the value.
    pub fn value(&self) -> &T {
        let (Self::Is(value) | Self::Not(value)) = self;
        value
    }

    /// Returns whether the condition is negated.
    pub fn is_negated(&self) -> bool {
        matches!(self, Self::Not(_))
    }

    /// Maps the value and keeps the negation.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Negatable<U> {
        match self {
            Self::Is(value) => Negatable::Is(change(value)),
            Self::Not(value) => Negatable::Not(change(value)),
        }
    }

    /// Returns the prefix of the option: `! ` or nothing.
    pub(crate) fn bang(&self) -> &'static str {
        if self.is_negated() { "! " } else { "" }
    }

    /// Writes the option and the value with a leading space.
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, option: &str) -> fmt::Result
    where
        T: fmt::Display,
    {
        f.write_str(if self.is_negated() { " ! " } else { " " })?;
        f.write_str(option)?;
        f.write_str(" ")?;
        self.value().fmt(f)
    }
}
