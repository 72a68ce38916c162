//! Options of matches and targets, as a parser hands them out.

use std::borrow::Cow;
use std::fmt;
use std::mem;

use crate::lexer::Lexer;
use crate::negatable::Negatable;
use crate::quote::is_bare;

/// Something that a match or target is not known to have.
///
/// What has it is kept as it was written.
#[derive(Debug)]
pub(crate) struct Unsupported;

/// Whether an option belongs to a match or target, which has taken it then.
pub(crate) type Parsed = Result<bool, Unsupported>;

/// A match or target that has options.
pub(crate) trait Extension<'a>: fmt::Display {
    /// Makes one that was given no options yet.
    fn open() -> Self;

    /// Returns how many options a complete one was given at least.
    fn min_options(&self) -> usize {
        1
    }

    /// Takes an option with its values, if it is one of its own.
    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed;
}

/// What stands around an option: `!` and the words behind.
pub(crate) struct Values<'w, 'a> {
    words: &'w mut Lexer<'a>,
    /// How many options the match or target was given before.
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

    /// Tells how many options were given before.
    pub(crate) fn set_given(&mut self, given: usize) {
        self.given = given;
    }

    /// Fails unless it is the option of this number, counted from 0.
    pub(crate) fn expect_index(&self, number: usize) -> Result<(), Unsupported> {
        if self.given == number {
            Ok(())
        } else {
            Err(Unsupported)
        }
    }

    /// Tells whether the option is negated; one that is not asked must not be.
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

    /// Returns what `parse` makes of the next word.
    pub(crate) fn parse<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Unsupported> {
        parse(&self.word()?).ok_or(Unsupported)
    }

    /// Returns what `parse` makes of the next word, negated if the option is.
    pub(crate) fn negatable<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Negatable<T>, Unsupported> {
        let negated = self.negated();
        Ok(Negatable::new(negated, self.parse(parse)?))
    }

    /// Returns the next word if it needs no quotes, as names do not.
    pub(crate) fn bare(&mut self) -> Result<Cow<'a, str>, Unsupported> {
        let word = self.word()?;
        if is_bare(&word) {
            Ok(word)
        } else {
            Err(Unsupported)
        }
    }

    /// Fails if something is left that nobody asked for.
    pub(crate) fn finish(self) -> Result<(), Unsupported> {
        if self.negated || self.inline.is_some() {
            return Err(Unsupported);
        }
        Ok(())
    }
}

/// Fills a place that can be filled once.
pub(crate) fn set_once<T>(place: &mut Option<T>, value: T) -> Parsed {
    if place.is_some() {
        return Err(Unsupported);
    }
    *place = Some(value);
    Ok(true)
}

/// Sets a flag that can be set once.
pub(crate) fn set_flag(place: &mut bool) -> Parsed {
    if mem::replace(place, true) {
        return Err(Unsupported);
    }
    Ok(true)
}
