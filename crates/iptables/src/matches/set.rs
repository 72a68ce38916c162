//! `-m set`: addresses and ports in a set of ipset.

use std::borrow::Cow;
use std::fmt;

use crate::direction::SetDirections;
use crate::negatable::Negatable;
use crate::number;
use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};
use crate::quote::Bare;

/// What is in a set of ipset: `-m set --match-set pods src,dst`.
///
/// The set has to be there before the rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Set<'a> {
    /// The name of the set.
    pub name: Negatable<Cow<'a, str>>,
    /// Which sides of the packet are looked for.
    pub directions: SetDirections,
    /// Whether elements with `nomatch` are what is wanted.
    pub return_nomatch: bool,
    /// Whether the counters of the element stay as they are.
    pub keep_counters: bool,
    /// Whether the counters of sets in a list of sets stay as they are.
    pub keep_subcounters: bool,
    /// How many packets the element has counted.
    pub packets: Option<CounterMatch>,
    /// How many bytes the element has counted.
    pub bytes: Option<CounterMatch>,
}

/// What a counter has to be.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CounterMatch {
    /// This.
    Equal(u64),
    /// Anything else.
    NotEqual(u64),
    /// Less than this.
    Less(u64),
    /// More than this.
    Greater(u64),
}

impl<'a> Set<'a> {
    /// Wants these sides of the packet to be in the set.
    pub fn contains(name: impl Into<Cow<'a, str>>, directions: impl Into<SetDirections>) -> Self {
        Self::new(Negatable::Is(name.into()), directions.into())
    }

    /// Wants these sides of the packet not to be in the set.
    pub fn lacks(name: impl Into<Cow<'a, str>>, directions: impl Into<SetDirections>) -> Self {
        Self::new(Negatable::Not(name.into()), directions.into())
    }

    fn new(name: Negatable<Cow<'a, str>>, directions: SetDirections) -> Self {
        Self {
            name,
            directions,
            return_nomatch: false,
            keep_counters: false,
            keep_subcounters: false,
            packets: None,
            bytes: None,
        }
    }
}

impl<'a> Extension<'a> for Set<'a> {
    fn open() -> Self {
        Self::contains("", crate::direction::Direction::Source)
    }

    fn min_options(&self) -> usize {
        if self.name.value().is_empty() {
            usize::MAX
        } else {
            1
        }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--match-set" | "--set" => {
                if !self.name.value().is_empty() {
                    return Err(Unsupported);
                }
                self.name = Negatable::new(values.negated(), values.bare()?);
                self.directions = values.parse(SetDirections::parse)?;
                Ok(true)
            }
            "--return-nomatch" => set_flag(&mut self.return_nomatch),
            "--update-counters" => updated(&mut self.keep_counters, values),
            "--update-subcounters" => updated(&mut self.keep_subcounters, values),
            _ => match option.strip_prefix("--packets-") {
                Some(comparison) => count(&mut self.packets, comparison, values),
                None => match option.strip_prefix("--bytes-") {
                    Some(comparison) => count(&mut self.bytes, comparison, values),
                    None => Ok(false),
                },
            },
        }
    }
}

/// Takes an option that does nothing unless it is negated.
fn updated(keep: &mut bool, values: &mut Values<'_, '_>) -> Parsed {
    if values.negated() {
        set_flag(keep)
    } else {
        Ok(true)
    }
}

fn count(
    place: &mut Option<CounterMatch>,
    comparison: &str,
    values: &mut Values<'_, '_>,
) -> Parsed {
    let value = match comparison {
        "eq" => match values.negatable(number::parse)? {
            Negatable::Is(value) => CounterMatch::Equal(value),
            Negatable::Not(value) => CounterMatch::NotEqual(value),
        },
        "lt" => CounterMatch::Less(values.parse(number::parse)?),
        "gt" => CounterMatch::Greater(values.parse(number::parse)?),
        _ => return Ok(false),
    };
    set_once(place, value)
}

impl fmt::Display for Set<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bang, name) = (self.name.bang(), Bare(self.name.value()));
        write!(f, "-m set {bang}--match-set {name} {}", self.directions)?;
        if self.return_nomatch {
            f.write_str(" --return-nomatch")?;
        }
        if self.keep_counters {
            f.write_str(" ! --update-counters")?;
        }
        if self.keep_subcounters {
            f.write_str(" ! --update-subcounters")?;
        }
        for (what, count) in [("packets", self.packets), ("bytes", self.bytes)] {
            match count {
                Some(CounterMatch::Equal(value)) => write!(f, " --{what}-eq {value}")?,
                Some(CounterMatch::NotEqual(value)) => write!(f, " ! --{what}-eq {value}")?,
                Some(CounterMatch::Less(value)) => write!(f, " --{what}-lt {value}")?,
                Some(CounterMatch::Greater(value)) => write!(f, " --{what}-gt {value}")?,
                None => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, Rule};

    #[test]
    fn it_is_read_and_printed() {
        let directions = SetDirections::new([Direction::Source, Direction::Destination]).unwrap();
        let all = Set {
            return_nomatch: true,
            keep_counters: true,
            keep_subcounters: true,
            packets: Some(CounterMatch::NotEqual(5)),
            bytes: Some(CounterMatch::Greater(100)),
            ..Set::contains("s", directions)
        };
        let table = [
            (
                "-m set --match-set s src",
                Set::contains("s", Direction::Source),
            ),
            (
                "-m set ! --match-set s src,dst",
                Set::lacks("s", directions),
            ),
            (
                "-m set --match-set s src,dst --return-nomatch ! --update-counters ! --update-subcounters ! --packets-eq 5 --bytes-gt 100",
                all,
            ),
        ];
        for (text, set) in table {
            let rule = Rule::new().matching(set);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
        for text in [
            "-m set --match-set s",
            "-m set --match-set s src,x",
            "-m set --return-nomatch",
        ] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
        }
    }
}
