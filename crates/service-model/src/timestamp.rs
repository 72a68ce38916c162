//! RFC 3339 timestamps of API objects.

use std::fmt;

/// A point in time, parsed from RFC 3339 text.
///
/// Exhaustive: seconds and nanoseconds are a complete point in time.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Nanoseconds within the second, 0 to 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// Parses RFC 3339 text such as `2026-01-02T03:04:05.678Z`.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, rest) = text.split_once(['T', 't'])?;
        let (clock, offset) = rest.split_at_checked(rest.find(['Z', 'z', '+', '-'])?)?;
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
        let [hour, minute, second] = fields(clock, ':', [2, 2, 2])?;
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let time = hour * 3600 + minute * 60 + second;
        let seconds = days(date)? * 86_400 + time - offset_seconds(offset)?;
        Some(Self {
            seconds,
            nanos: nanoseconds(fraction)?,
        })
    }
}

/// Displays as RFC 3339 text in UTC, without trailing zeros in the fraction.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.seconds.div_euclid(86_400));
        let second = self.seconds.rem_euclid(86_400);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if self.nanos > 0 {
            let fraction = format!("{:09}", self.nanos);
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar.
fn days(date: &str) -> Option<i64> {
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // A year that starts in March ends with the leap day.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468)
}

/// Returns year, month and day of the given number of days after 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    // A year that starts in March ends with the leap day. So does a 400-year era.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (year * 365 + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (month * 153 + 2) / 5 + 1;
    let year = era * 400 + year;
    match month {
        10.. => (year + 1, month - 9, day),
        _ => (year, month + 3, day),
    }
}

/// Returns an offset from UTC such as `+01:00` in seconds.
fn offset_seconds(offset: &str) -> Option<i64> {
    if offset.eq_ignore_ascii_case("Z") {
        return Some(0);
    }
    let (sign, clock) = match offset.strip_prefix('-') {
        Some(clock) => (-1, clock),
        None => (1, offset.strip_prefix('+')?),
    };
    let [hour, minute] = fields(clock, ':', [2, 2])?;
    (hour < 24 && minute < 60).then_some(sign * (hour * 3600 + minute * 60))
}

/// Returns a decimal fraction of a second in nanoseconds. Further digits are cut.
fn nanoseconds(fraction: &str) -> Option<u32> {
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    Some(digits.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0')))
}

/// Splits text into numbers with the given numbers of digits.
fn fields<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        if part.len() != digits || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_3339_text_is_parsed() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some((0, 0))),
            ("2024-02-29T12:30:45Z", Some((1_709_209_845, 0))),
            ("2000-03-01T00:00:00Z", Some((951_868_800, 0))),
            ("2026-12-31T23:59:59.000000001Z", Some((1_798_761_599, 1))),
            (
                "2026-01-01T01:00:00.5+01:00",
                Some((1_767_225_600, 500_000_000)),
            ),
            ("2025-12-31T23:00:00-01:00", Some((1_767_225_600, 0))),
            ("1969-12-31T23:59:59.1234567899z", Some((-1, 123_456_789))),
            ("2023-02-29T00:00:00Z", None),
            ("2024-13-01T00:00:00Z", None),
            ("2024-01-00T00:00:00Z", None),
            ("2024-01-01T23:59:60Z", Some((1_704_153_600, 0))),
            ("2024-01-01T01:30:00+01:30", Some((1_704_067_200, 0))),
            ("2024-01-01T23:59:00+23:59", Some((1_704_067_200, 0))),
            ("2100-02-29T00:00:00Z", None),
            ("2024-01-01T24:00:00Z", None),
            ("2024-01-01T23:60:00Z", None),
            ("2024-01-01T23:59:61Z", None),
            ("2024-01-01T00:00:00+24:00", None),
            ("2024-01-01T00:00:00+00:60", None),
            ("2024-01-01T00:00:00", None),
            ("2024-01-01T00:00:00.Z", None),
            ("2024-01-01T00:00:00+1:00", None),
            ("2024-01-01 00:00:00Z", None),
            ("24-01-01T00:00:00Z", None),
            ("", None),
        ] {
            let expected = expected.map(|(seconds, nanos)| Timestamp { seconds, nanos });
            assert_eq!(Timestamp::parse(text), expected, "{text}");
        }
    }
    #[test]
    fn a_time_displays_as_the_text_that_it_was_parsed_from() {
        for text in [
            "0001-01-01T00:00:00Z",
            "1969-12-31T23:59:59.123456789Z",
            "1970-01-01T00:00:00Z",
            "2000-02-29T23:59:59Z",
            "2000-03-01T00:00:00Z",
            "2026-11-21T07:05:09.000000001Z",
            "2026-12-31T23:59:59.5Z",
            "2100-02-28T12:00:00Z",
        ] {
            let time = Timestamp::parse(text).unwrap();
            assert_eq!(time.to_string(), text);
        }
        // Days across 4,000 years.
        for day in (-719_162..741_000).step_by(97) {
            let (seconds, nanos) = (day * 86_400, 0);
            let time = Timestamp { seconds, nanos };
            assert_eq!(Timestamp::parse(&time.to_string()), Some(time), "{time}");
        }
    }
}
