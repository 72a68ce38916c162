//! Options of matches and targets.

pub(crate) mod lexer;

pub(crate) mod quote;

pub(crate) mod number;

pub(crate) mod list;

pub(crate) mod negatable;

pub(crate) mod address;

pub(crate) mod protocol;

pub(crate) mod service;

pub(crate) mod direction;

pub(crate) mod field;

use std::borrow::Cow;
use std::fmt;
use std::mem;

use crate::Family;

pub use address::Network;
pub use direction::{Direction, SetDirections};
pub use field::Text;
use lexer::Lexer;
pub use negatable::Negatable;
pub use number::{Masked, MaskedMatch, Ports, Range};
use quote::is_bare;

/// An unsupported option or value.
///
/// The parser then preserves the match or target as text.
#[derive(Debug)]
pub(crate) struct Unsupported;

/// Whether a match or target has the option and has parsed it.
pub(crate) type Parsed = Result<bool, Unsupported>;

/// A match or target with options.
pub(crate) trait Extension<'a>: fmt::Display {
    /// Returns the extension before any option is parsed.
    fn open() -> Self;

    /// Returns the names of all options, for abbreviations.
    fn options() -> &'static [&'static str];

    /// Returns the minimum number of options of a complete extension.
    fn min_options(&self) -> usize {
        1
    }

    /// Parses an option with its values, if the extension has this option.
    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed;

    /// Sets unset values to the defaults that iptables prints for the family.
    fn apply_family_defaults(&mut self, _: Family) {}
}

/// The context of an option: negation and values.
pub(crate) struct Values<'w, 'a> {
    words: &'w mut Lexer<'a>,
    /// Number of options that the match or target already has.
    given: usize,
    negated: bool,
    /// The value of `--option=value`.
    inline: Option<Cow<'a, str>>,
}

impl<'w, 'a> Values<'w, 'a> {
    pub(crate) fn new(
        words: &'w mut Lexer<'a>,
        given: usize,
        negated: bool,
        inline: Option<Cow<'a, str>>,
    ) -> Self {
        Self {
            words,
            given,
            negated,
            inline,
        }
    }

    /// Sets the number of options that the match or target already has.
    pub(crate) fn set_given(&mut self, given: usize) {
        self.given = given;
    }

    /// Returns an error unless this is the option with this index, from 0.
    pub(crate) fn expect_index(&self, number: usize) -> Result<(), Unsupported> {
        if self.given == number {
            Ok(())
        } else {
            Err(Unsupported)
        }
    }

    /// Returns whether the option is negated. [`finish`](Self::finish) fails if a
    /// negation is not consumed.
    pub(crate) fn negated(&mut self) -> bool {
        mem::take(&mut self.negated)
    }

    /// Returns the next word.
    pub(crate) fn word(&mut self) -> Result<Cow<'a, str>, Unsupported> {
        if let Some(inline) = self.inline.take() {
            return Ok(inline);
        }
        let word = self.words.next().map_err(|_| Unsupported)?;
        word.map(|word| word.text).ok_or(Unsupported)
    }

    /// Returns the next word unless it is an option or a negation.
    pub(crate) fn optional_word(&mut self) -> Result<Option<Cow<'a, str>>, Unsupported> {
        if self.inline.is_some() {
            return self.word().map(Some);
        }
        let at = self.words.at();
        let word = self.words.next().map_err(|_| Unsupported)?;
        let word = word.filter(|word| !word.text.starts_with(['-', '!']));
        if word.is_none() {
            self.words.set_at(at);
        }
        Ok(word.map(|word| word.text))
    }

    /// Parses the next word.
    pub(crate) fn parse<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Unsupported> {
        parse(&self.word()?).ok_or(Unsupported)
    }

    /// Parses the next word together with the negation.
    pub(crate) fn negatable<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Negatable<T>, Unsupported> {
        let negated = self.negated();
        Ok(Negatable::new(negated, self.parse(parse)?))
    }

    /// Returns the next word if it can be printed without quotes, like names.
    pub(crate) fn bare(&mut self) -> Result<Cow<'a, str>, Unsupported> {
        let word = self.word()?;
        if is_bare(&word) {
            Ok(word)
        } else {
            Err(Unsupported)
        }
    }

    /// Returns an error if a negation or an inline value was not consumed.
    pub(crate) fn finish(self) -> Result<(), Unsupported> {
        if self.negated || self.inline.is_some() {
            return Err(Unsupported);
        }
        Ok(())
    }
}

/// Sets a value. Returns an error if it is already set.
pub(crate) fn set_once<T>(place: &mut Option<T>, value: T) -> Parsed {
    if place.is_some() {
        return Err(Unsupported);
    }
    *place = Some(value);
    Ok(true)
}

/// Sets a flag. Returns an error if it is already set.
pub(crate) fn set_flag(place: &mut bool) -> Parsed {
    if mem::replace(place, true) {
        return Err(Unsupported);
    }
    Ok(true)
}
