//! What is wanted, or anything but it.

use std::fmt;

/// A value that is wanted, or anything but it, which iptables writes as `!`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Negatable<T> {
    /// It has to be this.
    Is(T),
    /// It has to be anything else.
    Not(T),
}

impl<T> Negatable<T> {
    /// Makes one of a value and whether it is negated.
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

    /// Tells whether the value is what must not be.
    pub fn is_negated(&self) -> bool {
        matches!(self, Self::Not(_))
    }

    /// Returns one of what `change` makes of the value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Negatable<U> {
        match self {
            Self::Is(value) => Negatable::Is(change(value)),
            Self::Not(value) => Negatable::Not(change(value)),
        }
    }

    /// Returns the word that stands in front of the option.
    pub(crate) fn bang(&self) -> &'static str {
        if self.is_negated() { "! " } else { "" }
    }

    /// Writes the option and the value, with a blank in front.
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
