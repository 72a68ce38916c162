//! Durations in Go's format: `30s`, `1m30s`, `-1.5h`, `250ms`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Units in nanoseconds. A unit comes before its prefixes.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", MICROSECOND),
    ("µs", MICROSECOND),
    ("μs", MICROSECOND),
    ("ms", MILLISECOND),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
];

const MICROSECOND: i64 = 1_000;
const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;

/// A duration as in Go: a signed number of nanoseconds.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GoDuration(i64);

impl GoDuration {
    /// The zero duration.
    pub const ZERO: Self = Self(0);

    /// Creates a duration from nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Creates a duration from seconds.
    pub const fn from_secs(seconds: i32) -> Self {
        Self(seconds as i64 * SECOND)
    }

    /// Returns the duration in nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Returns the duration. A negative duration becomes zero.
    pub fn positive(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

impl FromStr for GoDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a duration such as 30s, 1m30s or 250ms");
        let (sign, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        let mut nanos: i128 = 0;
        loop {
            let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            let number = rest.strip_suffix(after).unwrap_or(rest);
            let unit = UNITS
                .iter()
                .find_map(|(unit, size)| Some((after.strip_prefix(unit)?, *size)));
            let (after, size) = unit.ok_or_else(wrong)?;
            nanos += amount(number, size).ok_or_else(wrong)?;
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        i64::try_from(sign * nanos).map(Self).map_err(|_| wrong())
    }
}

/// Converts a decimal number of a unit to nanoseconds.
fn amount(number: &str, unit: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = |text: &str| match text {
        "" => Some(0),
        _ => text.parse::<u64>().ok().map(i128::from),
    };
    // Digits below a nanosecond are ignored.
    let fraction = fraction.get(..fraction.len().min(15))?;
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let unit = i128::from(unit);
    Some(digits(whole)? * unit + digits(fraction)? * unit / scale)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let (size, unit) = match nanos {
            0 => return f.write_str("0s"),
            nanos if nanos < MICROSECOND.unsigned_abs() => (1, "ns"),
            nanos if nanos < MILLISECOND.unsigned_abs() => (MICROSECOND, "µs"),
            nanos if nanos < SECOND.unsigned_abs() => (MILLISECOND, "ms"),
            _ => (SECOND, "s"),
        };
        let size = size.unsigned_abs();
        let (mut whole, part) = (nanos / size, nanos % size);
        if unit == "s" {
            let (hours, minutes) = (whole / 3600, whole / 60 % 60);
            if hours > 0 {
                write!(f, "{hours}h")?;
            }
            if whole >= 60 {
                write!(f, "{minutes}m")?;
            }
            whole %= 60;
        }
        if part == 0 {
            return write!(f, "{whole}{unit}");
        }
        let width = size.ilog10() as usize;
        let part = format!("{part:0width$}");
        write!(f, "{whole}.{}{unit}", part.trim_end_matches('0'))
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, millis) in [
            ("0", 0),
            ("-0", 0),
            ("0s", 0),
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("250ms", 250),
            ("1.5h", 5_400_000),
            ("+.5s", 500),
            ("-1m0.5s", -60_500),
            ("1h2m3.004s", 3_723_004),
            ("1.s", 1_000),
            ("2000000ns", 2),
            ("1000µs", 1),
        ] {
            let expected = GoDuration::from_nanos(millis * MILLISECOND);
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        let parsed: GoDuration = "0.1234567899999999999s".parse().unwrap();
        assert_eq!(parsed.nanos(), 123_456_789);
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in [
            "",
            "+",
            "-",
            "30",
            "s",
            ".s",
            "1x",
            "--1s",
            "1s ",
            "1.2.3s",
            "1e3s",
            "99999999999999999h",
        ] {
            assert!(text.parse::<GoDuration>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn durations_are_formatted_as_in_go() {
        for text in [
            "0s", "1s", "30s", "1m0s", "1m30.5s", "24h0m0s", "15m0s", "250ms", "1.5ms", "2µs",
            "3ns", "-1s", "-2h0m1s",
        ] {
            assert_eq!(text.parse::<GoDuration>().unwrap().to_string(), text);
        }
        assert_eq!("90s".parse::<GoDuration>().unwrap().to_string(), "1m30s");
        assert_eq!(GoDuration::from_secs(-7).positive(), Duration::ZERO);
    }
}
