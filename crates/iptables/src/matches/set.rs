//! `-m set`: IP set membership.

use std::borrow::Cow;
use std::fmt;

use crate::extensions::structure::{IPSET_INV_MATCH, Reader, Structure, Writer, flags};
use crate::options::direction::SetDirections;
use crate::options::negatable::Negatable;
use crate::options::number;
use crate::options::quote::Bare;
use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};

/// Matches IP set membership: `-m set --match-set pods src,dst`.
///
/// The set must exist before the rule is added.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Set<'a> {
    /// Name of the set.
    pub name: Negatable<Cow<'a, str>>,
    /// Packet fields to look up, per dimension of the set.
    pub directions: SetDirections,
    /// Whether `nomatch` entries match.
    pub return_nomatch: bool,
    /// Whether the counters of the entry are not updated.
    pub keep_counters: bool,
    /// Whether the counters of member sets of a list set are not updated.
    pub keep_subcounters: bool,
    /// Condition on the packet counter of the entry.
    pub packets: Option<CounterMatch>,
    /// Condition on the byte counter of the entry.
    pub bytes: Option<CounterMatch>,
}

/// A condition on a counter.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CounterMatch {
    /// Equal to this value.
    Equal(u64),
    /// Not equal to this value.
    NotEqual(u64),
    /// Less than this value.
    Less(u64),
    /// Greater than this value.
    Greater(u64),
}

impl<'a> Set<'a> {
    /// Matches packets whose fields are in the set.
    pub fn contains(name: impl Into<Cow<'a, str>>, directions: impl Into<SetDirections>) -> Self {
        Self::new(Negatable::Is(name.into()), directions.into())
    }

    /// Matches packets whose fields are not in the set.
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
        Self::contains("", crate::options::direction::Direction::Source)
    }

    fn options() -> &'static [&'static str] {
        &[
            "--match-set",
            "--return-nomatch",
            "--update-counters",
            "--update-subcounters",
            "--packets-eq",
            "--packets-lt",
            "--packets-gt",
            "--bytes-eq",
            "--bytes-lt",
            "--bytes-gt",
        ]
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

/// Parses an option that has an effect only if negated.
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

// enum ipset_cmd_flags
const IPSET_FLAG_SKIP_COUNTER_UPDATE: u32 = 1 << 3;
const IPSET_FLAG_SKIP_SUBCOUNTER_UPDATE: u32 = 1 << 4;
const IPSET_FLAG_RETURN_NOMATCH: u32 = 1 << 7;

// operators of struct ip_set_counter_match
const IPSET_COUNTER_NONE: u8 = 0;
const IPSET_COUNTER_EQ: u8 = 1;
const IPSET_COUNTER_NE: u8 = 2;
const IPSET_COUNTER_LT: u8 = 3;
const IPSET_COUNTER_GT: u8 = 4;

/// Writes `struct ip_set_counter_match`.
fn write_counter(condition: Option<CounterMatch>, out: &mut Writer<'_>) {
    let (op, value) = match condition {
        None => (IPSET_COUNTER_NONE, 0),
        Some(CounterMatch::Equal(value)) => (IPSET_COUNTER_EQ, value),
        Some(CounterMatch::NotEqual(value)) => (IPSET_COUNTER_NE, value),
        Some(CounterMatch::Less(value)) => (IPSET_COUNTER_LT, value),
        Some(CounterMatch::Greater(value)) => (IPSET_COUNTER_GT, value),
    };
    out.u64(value).u8(op).zeros(7);
}

fn read_counter(reader: &mut Reader<'_>) -> Option<Option<CounterMatch>> {
    let (value, op) = (reader.u64()?, reader.u8()?);
    reader.bytes(7)?;
    Some(match op {
        IPSET_COUNTER_NONE => None,
        IPSET_COUNTER_EQ => Some(CounterMatch::Equal(value)),
        IPSET_COUNTER_NE => Some(CounterMatch::NotEqual(value)),
        IPSET_COUNTER_LT => Some(CounterMatch::Less(value)),
        IPSET_COUNTER_GT => Some(CounterMatch::Greater(value)),
        _ => return None,
    })
}

/// `struct xt_set_info_match_v4`. A set that does not exist has no index.
impl Structure for Set<'_> {
    const NAME: &'static str = "set";
    const REVISION: u32 = 4;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let inverted = flags([(self.name.is_negated(), IPSET_INV_MATCH)]);
        out.set(self.name.value(), self.directions, inverted)?;
        out.zeros(4);
        write_counter(self.packets, out);
        write_counter(self.bytes, out);
        out.u32(flags([
            (self.return_nomatch, IPSET_FLAG_RETURN_NOMATCH),
            (self.keep_counters, IPSET_FLAG_SKIP_COUNTER_UPDATE),
            (self.keep_subcounters, IPSET_FLAG_SKIP_SUBCOUNTER_UPDATE),
        ]));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (name, directions, bits) = reader.set()??;
        reader.bytes(4)?;
        let (packets, bytes) = (read_counter(reader)?, read_counter(reader)?);
        let flags = reader.u32()?;
        Some(Self {
            name: Negatable::new(bits & IPSET_INV_MATCH != 0, name.into()),
            directions,
            return_nomatch: flags & IPSET_FLAG_RETURN_NOMATCH != 0,
            keep_counters: flags & IPSET_FLAG_SKIP_COUNTER_UPDATE != 0,
            keep_subcounters: flags & IPSET_FLAG_SKIP_SUBCOUNTER_UPDATE != 0,
            packets,
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, Rule};

    #[test]
    fn set_match_is_parsed_and_printed() {
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
            let rule = Rule::new().with_match(set);
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
