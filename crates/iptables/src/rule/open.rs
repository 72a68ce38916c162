//! Options of the open match or target, and of earlier ones.

use crate::matches::implied;
use crate::options::{Parsed, Values};
use crate::rule::Rule;

/// Number of options of a complete extension: larger than any real number.
const CLOSED: usize = usize::MAX / 2;

/// The part to which options belong first.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Open {
    /// The rule itself.
    Head,
    /// The match with this index. An option before its own may have added an implied match.
    Match(usize),
    /// The target.
    Target,
}

/// Parses an option of the open match or target, if it has this option.
pub(super) fn parse_open<'a>(
    rule: &mut Rule<'a>,
    open: Open,
    option: &str,
    values: &mut Values<'_, 'a>,
) -> Parsed {
    match open {
        Open::Head => Ok(false),
        Open::Match(index) => match rule.matches.get_mut(index) {
            Some(open) => open.parse_option(option, values),
            None => Ok(false),
        },
        Open::Target => match &mut rule.target {
            Some(target) => target.parse_option(option, values),
            None => Ok(false),
        },
    }
}

/// Parses an option of an earlier match or target, or of a match that the protocol
/// implies.
pub(super) fn parse_late<'a>(
    rule: &mut Rule<'a>,
    option: &str,
    values: &mut Values<'_, 'a>,
) -> Parsed {
    values.set_given(CLOSED);
    if let Some(target) = &mut rule.target
        && target.parse_option(option, values)?
    {
        return Ok(true);
    }
    for one in rule.matches.iter_mut().rev() {
        if one.parse_option(option, values)? {
            return Ok(true);
        }
    }
    let Some(mut implied) = rule.protocol.as_ref().and_then(implied) else {
        return Ok(false);
    };
    values.set_given(0);
    let taken = implied.parse_option(option, values)?;
    if taken {
        rule.matches.push(implied);
    }
    Ok(taken)
}
