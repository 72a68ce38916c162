//! Quantities of bytes in Kubernetes' format: `0`, `512`, `64Ki`, `1.5M`.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use daemon::duration::GoDuration;

/// Suffixes of a number.
const SUFFIXES: [&str; 16] = [
    "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
];

/// A quantity in its original spelling.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Quantity(String);

impl Quantity {
    /// Returns whether the quantity is zero.
    pub fn is_zero(&self) -> bool {
        let (number, _) = split(&self.0);
        !number.contains(|c: char| ('1'..='9').contains(&c))
    }
}

/// Splits a quantity before its suffix.
fn split(text: &str) -> (&str, &str) {
    let number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.');
    text.split_at(text.find(|c| !number(c)).unwrap_or(text.len()))
}

impl Default for Quantity {
    fn default() -> Self {
        Self("0".to_owned())
    }
}

impl FromStr for Quantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, suffix) = split(text);
        let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
        let exponent = || suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok();
        let good = digits.contains(|c: char| c.is_ascii_digit())
            && digits.parse::<f64>().is_ok()
            && (SUFFIXES.contains(&suffix) || exponent().is_some());
        match good {
            true => Ok(Self(text.to_owned())),
            false => Err(format!("{text:?} is not a quantity such as 512, 1K or 2Ki")),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(TextOrNumber("a quantity"))?
            .parse()
            .map_err(de::Error::custom)
    }
}

/// Deserializes a duration. A number means nanoseconds.
pub(super) fn text_or_nanos<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<GoDuration, D::Error> {
    let text = deserializer.deserialize_any(TextOrNumber("a duration"))?;
    match text.parse() {
        Ok(nanos) => Ok(GoDuration::from_nanos(nanos)),
        Err(_) => text.parse().map_err(de::Error::custom),
    }
}

/// Deserializes a string, or a number in its text form.
struct TextOrNumber(&'static str);

impl Visitor<'_> for TextOrNumber {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_i64<E>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_numbers_with_a_suffix() {
        for (text, is_zero) in [
            ("0", true),
            ("0Ki", true),
            ("0.0e5", true),
            ("512", false),
            ("64Ki", false),
            ("1.5M", false),
            ("+2e3", false),
        ] {
            let amount: Quantity = text.parse().unwrap();
            assert_eq!(
                (amount.to_string().as_str(), amount.is_zero()),
                (text, is_zero)
            );
        }
        for text in ["", "Ki", "1KB", "1 M", "1.2.3", "x", "-"] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
    }
}
