//! Durations as Go writes them: `30s`, `1m30s`, `1.5h`, `250ms`.

use std::time::Duration;

/// The units, the longer of two that begin alike first.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// Reads a duration that is not negative.
///
/// # Errors
///
/// Says what a duration looks like.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration, such as 30s, 1m30s or 250ms");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut seconds = 0.0;
    loop {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = rest.strip_suffix(digits).unwrap_or(rest);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let unit = UNITS
            .iter()
            .find_map(|(unit, size)| Some((digits.strip_prefix(unit)?, size)));
        let (after, size) = unit.ok_or_else(wrong)?;
        seconds += number * size;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_does() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("250ms", 250),
            ("1.5h", 5_400_000),
            ("+.5s", 500),
            ("1h2m3.004s", 3_723_004),
            ("2000000ns", 2),
            ("1000µs", 1),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "+",
            "30",
            "s",
            "1x",
            "-1s",
            "1s ",
            "1.2.3s",
            "1e3s",
            "99999999999999999h",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
