//! `-m limit`: rate limit.

use std::fmt;

use crate::extensions::structure::Structure;
use crate::options::number;
use crate::options::{Extension, Parsed, Values};

/// Matches packets up to a rate: `-m limit --limit 5/min`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limit {
    /// Average rate. Default: 3 per hour.
    pub rate: Rate,
    /// Burst size in packets. Default: 5.
    pub burst: u32,
}

/// A packet rate, as the kernel stores it.
///
/// The kernel stores the interval between two packets in 1/10,000 s.
/// Therefore a rate can be printed in another unit: 60 per minute becomes 1 per
/// second.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Rate {
    /// Invariant: not 0.
    period: u32,
}

/// Units per second: `XT_LIMIT_SCALE`.
const SCALE: u32 = 10_000;

/// Time units and their length, in the order in which they are tried.
const UNITS: [(&str, u32); 4] = [
    ("day", SCALE * 86_400),
    ("hour", SCALE * 3_600),
    ("min", SCALE * 60),
    ("sec", SCALE),
];

impl Rate {
    /// Creates a rate per second, from 1 to 10,000, otherwise returns `None`.
    pub fn per_second(count: u32) -> Option<Self> {
        Self::new(count, SCALE)
    }

    /// Creates a rate per minute, from 1 to 600,000, otherwise returns `None`.
    pub fn per_minute(count: u32) -> Option<Self> {
        Self::new(count, SCALE * 60)
    }

    /// Creates a rate per hour, from 1 to 36,000,000, otherwise returns `None`.
    pub fn per_hour(count: u32) -> Option<Self> {
        Self::new(count, SCALE * 3_600)
    }

    /// Creates a rate per day, from 1 to 864,000,000, otherwise returns `None`.
    pub fn per_day(count: u32) -> Option<Self> {
        Self::new(count, SCALE * 86_400)
    }

    fn new(count: u32, unit: u32) -> Option<Self> {
        let period = unit.checked_div(count).filter(|period| *period > 0)?;
        // Round to the period that the printed rate parses to.
        let (count, _, unit) = Self { period }.words();
        Some(Self {
            period: unit / count,
        })
    }

    /// Returns the count, the unit and the length of the unit.
    ///
    /// The unit is the last one before a unit in which the count is not integral.
    fn words(self) -> (u32, &'static str, u32) {
        let fits = |next: &&(&str, u32)| {
            self.period <= next.1 && next.1 / self.period >= next.1 % self.period
        };
        let (unit, parts) = UNITS[UNITS[1..].iter().take_while(fits).count()];
        (parts / self.period, unit, parts)
    }

    /// Returns the count and the length of its unit in seconds.
    pub(crate) fn per_seconds(self) -> (u32, u32) {
        let (count, _, parts) = self.words();
        (count, parts / SCALE)
    }

    /// Creates a rate from a count and the length of its unit in seconds. Returns `None`
    /// if iptables has no such unit.
    pub(crate) fn from_seconds(count: u32, seconds: u32) -> Option<Self> {
        let mut units = UNITS.iter().map(|(_, parts)| *parts);
        Self::new(count, units.find(|parts| parts / SCALE == seconds)?)
    }

    /// Parses `5/min`, with any prefix of `second`, `minute`, `hour`, `day`.
    fn parse(text: &str) -> Option<Self> {
        let (count, unit) = text.split_once('/').unwrap_or((text, "second"));
        let is_it = |name: &&str| {
            let start = name.get(..unit.len());
            !unit.is_empty() && start.is_some_and(|start| start.eq_ignore_ascii_case(unit))
        };
        let names = ["day", "hour", "minute", "second"];
        let at = names.iter().position(is_it)?;
        let decimal = count.bytes().all(|b| b.is_ascii_digit());
        Self::new(count.parse().ok().filter(|_| decimal)?, UNITS[at].1)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit, _) = self.words();
        write!(f, "{count}/{unit}")
    }
}

impl Limit {
    /// Default burst size.
    const BURST: u32 = 5;

    /// Matches packets up to this rate.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            burst: Self::BURST,
        }
    }

    /// Sets the burst size in packets.
    #[must_use]
    pub fn with_burst(mut self, burst: u32) -> Self {
        self.burst = burst;
        self
    }
}

impl<'a> Extension<'a> for Limit {
    fn open() -> Self {
        Self::new(Rate {
            period: SCALE * 3_600 / 3,
        })
    }

    fn options() -> &'static [&'static str] {
        &["--limit", "--limit-burst"]
    }

    fn min_options(&self) -> usize {
        0
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--limit" => self.rate = values.parse(Rate::parse)?,
            "--limit-burst" => self.burst = values.parse(number::parse_as)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-m limit --limit {}", self.rate)?;
        if self.burst != Self::BURST {
            write!(f, " --limit-burst {}", self.burst)?;
        }
        Ok(())
    }
}

/// Rules contain the expression `limit` of nf_tables, not a structure.
impl Structure for Limit {
    const NAME: &'static str = "limit";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn a_rate_is_printed_in_the_smallest_unit_that_fits() {
        let table = [
            ("5/minute", "5/min"),
            ("1/s", "1/sec"),
            ("60/minute", "1/sec"),
            ("90/minute", "90/min"),
            ("10000/minute", "166/sec"),
            ("7/sec", "7/sec"),
            ("24/day", "1/hour"),
            ("25/d", "25/day"),
            ("5", "5/sec"),
            ("5/Second", "5/sec"),
        ];
        for (text, printed) in table {
            let rate = Rate::parse(text).unwrap();
            assert_eq!(rate.to_string(), printed, "{text}");
            assert_eq!(Rate::parse(printed).unwrap().to_string(), printed, "{text}");
        }
        for text in [
            "",
            "/",
            "5/",
            "5/minutes",
            "0/sec",
            "10001/sec",
            "5/x",
            "5/ü",
        ] {
            assert_eq!(Rate::parse(text), None, "{text}");
        }
    }

    #[test]
    fn defaults_are_left_out_and_filled_in() {
        let limit = Limit::new(Rate::per_hour(3).unwrap());
        let table = [
            ("-m limit", limit.clone()),
            ("-m limit --limit 3/hour --limit-burst 5", limit.clone()),
            ("-m limit --limit-burst 7", limit.with_burst(7)),
        ];
        for (text, limit) in table {
            assert_eq!(Rule::parse(text), Ok(Rule::new().with_match(limit)));
        }
        let text = "-m limit --limit 5/min --limit-burst 7";
        assert_eq!(Rule::parse(text).unwrap().to_string(), text);
    }
}
