//! `-m rateest`: estimated rates of traffic.

use std::borrow::Cow;
use std::fmt;

use crate::extensions::structure::{IFNAMSIZ, Reader, Structure, Writer, at, flags, position};
use crate::options::field::{Field, names};
use crate::options::negatable::Negatable;
use crate::options::number;
use crate::options::quote::is_bare;
use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};

/// Compares an estimated rate with a limit or with another rate: `-m rateest --rateest eth0
/// --rateest-gt --rateest-bps 10mbit`.
///
/// Target RATEEST estimates the rates. Its rule must exist first.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rateest<'a> {
    /// Whether the limits minus the rates are compared.
    ///
    /// A rate above its limit counts as a difference of 0.
    pub delta: bool,
    /// Name of the estimator; iptables requires one.
    pub name: Option<Cow<'a, str>>,
    /// Name of the second estimator. `None` compares with a constant.
    pub second: Option<Cow<'a, str>>,
    /// Comparison of the first value with the second one; iptables requires one.
    pub comparison: Option<Negatable<RateestComparison>>,
    /// Unit of the rates; the kernel requires one.
    pub unit: Option<RateestUnit>,
    /// Limit of the first rate in bytes or packets per second. Requires `delta`.
    ///
    /// Limits of 125,000 bytes or more are printed rounded to 1,000 bits, and of 125 million
    /// bytes or more to 1,000,000 bits.
    pub limit1: u32,
    /// Limit of the second rate, or the constant without second estimator, in bytes or
    /// packets per second.
    ///
    /// With a second estimator the limit requires `delta`.
    pub limit2: u32,
}

names! {
    /// Comparison of two rates.
    pub enum RateestComparison by str::eq {
        /// The first value is less.
        Less = "--rateest-lt",
        /// The first value is greater.
        Greater = "--rateest-gt",
        /// The values are equal.
        Equal = "--rateest-eq",
    }
}

/// Unit of rates.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RateestUnit {
    /// Bytes per second, printed as bits.
    Bytes,
    /// Packets per second.
    Packets,
}

/// Length of a name without its NUL byte.
const NAME: usize = 15;

/// Units of rates and their number of bits.
const UNITS: [(&str, f64); 18] = [
    ("bit", 1.0),
    ("kibit", 1024.0),
    ("kbit", 1e3),
    ("mibit", 1024.0 * 1024.0),
    ("mbit", 1e6),
    ("gibit", 1024.0 * 1024.0 * 1024.0),
    ("gbit", 1e9),
    ("tibit", 1024.0 * 1024.0 * 1024.0 * 1024.0),
    ("tbit", 1e12),
    ("bps", 8.0),
    ("kibps", 8.0 * 1024.0),
    ("kbps", 8e3),
    ("mibps", 8.0 * 1024.0 * 1024.0),
    ("mbps", 8e6),
    ("gibps", 8.0 * 1024.0 * 1024.0 * 1024.0),
    ("gbps", 8e9),
    ("tibps", 8.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0),
    ("tbps", 8e12),
];

/// Parses a rate in bytes per second, and rounds it as it is printed.
fn parse_bytes(text: &str) -> Option<u32> {
    let (count, unit) = number::split_decimal(text)?;
    let unit = unit.to_ascii_lowercase();
    // Without unit, the number is divided like bits.
    let scale = match &*unit {
        "" => 1.0,
        unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    let bytes = number::truncate(count * scale / 8.0)?;
    Some(printed_bytes(bytes))
}

/// Returns the unit and the count of a rate.
fn bits(bytes: u32) -> (&'static str, u64) {
    let bits = u64::from(bytes) * 8;
    // Halves are rounded to even numbers, as by printf.
    let rounded = |size: u64| {
        let (count, rest) = (bits / size, bits % size);
        match (rest * 2).cmp(&size) {
            std::cmp::Ordering::Less => count,
            std::cmp::Ordering::Equal => count + count % 2,
            std::cmp::Ordering::Greater => count + 1,
        }
    };
    match bits {
        1_000_000_000.. => ("Mbit", rounded(1_000_000)),
        1_000_000.. => ("Kbit", rounded(1_000)),
        _ => ("bit", bits),
    }
}

/// Returns the rate that the printed text means.
fn printed_bytes(bytes: u32) -> u32 {
    let (unit, count) = bits(bytes);
    let size = match unit {
        "Mbit" => 125_000,
        "Kbit" => 125,
        _ => return bytes,
    };
    u32::try_from(count * size).unwrap_or(bytes)
}

impl Rateest<'_> {
    /// Returns whether the printed limits are equal to those of the match.
    pub(crate) fn is_printed_exactly(&self) -> bool {
        let is_exact = |limit| printed_bytes(limit) == limit;
        self.unit != Some(RateestUnit::Bytes) || is_exact(self.limit1) && is_exact(self.limit2)
    }
}

impl<'a> Rateest<'a> {
    fn name(values: &mut Values<'_, 'a>) -> Result<Cow<'a, str>, Unsupported> {
        let name = values.word()?;
        if is_bare(&name) && name.len() <= NAME {
            Ok(name)
        } else {
            Err(Unsupported)
        }
    }

    /// Parses an optional limit.
    fn limit(
        &mut self,
        unit: RateestUnit,
        values: &mut Values<'_, 'a>,
    ) -> Result<u32, Unsupported> {
        if *self.unit.get_or_insert(unit) != unit {
            return Err(Unsupported);
        }
        let Some(text) = values.optional_word()? else {
            return Ok(0);
        };
        let limit = match unit {
            RateestUnit::Bytes => parse_bytes(&text),
            RateestUnit::Packets => number::parse_as(&text),
        };
        limit.ok_or(Unsupported)
    }

    /// Writes a limit with a leading space.
    fn write_limit(&self, limit: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            Some(RateestUnit::Bytes) => {
                let (unit, count) = bits(limit);
                write!(f, " {count}{unit}")
            }
            _ => write!(f, " {limit}"),
        }
    }

    fn write_rates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Some(RateestUnit::Bytes) => "bps",
            Some(RateestUnit::Packets) => "pps",
            None => return self.write_comparison(f),
        };
        if !self.delta {
            self.write_comparison(f)?;
            write!(f, " --rateest-{unit}")?;
        } else {
            write!(f, " --rateest-{unit}1")?;
            self.write_limit(self.limit1, f)?;
            self.write_comparison(f)?;
            write!(f, " --rateest-{unit}2")?;
        }
        if self.delta || self.second.is_none() {
            self.write_limit(self.limit2, f)?;
        }
        Ok(())
    }

    fn write_comparison(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.comparison {
            Some(comparison) => write!(f, " {}{}", comparison.bang(), comparison.value()),
            None => Ok(()),
        }
    }
}

impl<'a> Extension<'a> for Rateest<'a> {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--rateest1",
            "--rateest",
            "--rateest2",
            "--rateest-bps1",
            "--rateest-pps1",
            "--rateest-bps2",
            "--rateest-pps2",
            "--rateest-bps",
            "--rateest-pps",
            "--rateest-delta",
            "--rateest-lt",
            "--rateest-gt",
            "--rateest-eq",
        ]
    }

    fn min_options(&self) -> usize {
        let has_all = self.name.is_some() && self.comparison.is_some() && self.unit.is_some();
        // A limit that is not printed has no effect.
        let is_printed =
            self.delta || self.limit1 == 0 && (self.second.is_none() || self.limit2 == 0);
        if has_all && is_printed { 3 } else { usize::MAX }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        use RateestUnit::{Bytes, Packets};
        match option {
            "--rateest1" | "--rateest" => set_once(&mut self.name, Self::name(values)?),
            "--rateest2" => set_once(&mut self.second, Self::name(values)?),
            "--rateest-bps1" | "--rateest-pps1" => {
                let unit = if option.contains("bps") {
                    Bytes
                } else {
                    Packets
                };
                self.limit1 = self.limit(unit, values)?;
                Ok(true)
            }
            "--rateest-bps" | "--rateest-bps2" => {
                self.limit2 = self.limit(Bytes, values)?;
                Ok(true)
            }
            "--rateest-pps" | "--rateest-pps2" => {
                self.limit2 = self.limit(Packets, values)?;
                Ok(true)
            }
            "--rateest-delta" => set_flag(&mut self.delta),
            "--rateest-lt" | "--rateest-gt" | "--rateest-eq" => {
                let comparison = RateestComparison::parse(option).ok_or(Unsupported)?;
                let negated = values.negated();
                set_once(&mut self.comparison, Negatable::new(negated, comparison))
            }
            _ => Ok(false),
        }
    }
}

impl fmt::Display for Rateest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m rateest")?;
        self.delta.write("--rateest-delta", f)?;
        let option = match self.second {
            Some(_) => "--rateest1",
            None => "--rateest",
        };
        self.name.write(option, f)?;
        self.write_rates(f)?;
        self.second.write("--rateest2", f)
    }
}

/// `enum xt_rateest_match_mode`: `XT_RATEEST_MATCH_EQ`, `XT_RATEEST_MATCH_LT` and
/// `XT_RATEEST_MATCH_GT`, after `XT_RATEEST_MATCH_NONE`.
const MODES: [Option<RateestComparison>; 4] = [
    None,
    Some(RateestComparison::Equal),
    Some(RateestComparison::Less),
    Some(RateestComparison::Greater),
];

// enum xt_rateest_match_flags
const XT_RATEEST_MATCH_INVERT: u16 = 1 << 0;
const XT_RATEEST_MATCH_ABS: u16 = 1 << 1;
const XT_RATEEST_MATCH_REL: u16 = 1 << 2;
const XT_RATEEST_MATCH_DELTA: u16 = 1 << 3;
const XT_RATEEST_MATCH_BPS: u16 = 1 << 4;
const XT_RATEEST_MATCH_PPS: u16 = 1 << 5;

/// `struct xt_rateest_match_info`.
impl Structure for Rateest<'_> {
    const NAME: &'static str = "rateest";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let comparison = self.comparison?;
        let is_of_bytes = self.unit? == RateestUnit::Bytes;
        out.text(self.name.as_deref()?, IFNAMSIZ)?;
        out.text(self.second.as_deref().unwrap_or_default(), IFNAMSIZ)?;
        out.u16(flags([
            (comparison.is_negated(), XT_RATEEST_MATCH_INVERT),
            (self.second.is_none(), XT_RATEEST_MATCH_ABS),
            (self.second.is_some(), XT_RATEEST_MATCH_REL),
            (self.delta, XT_RATEEST_MATCH_DELTA),
            (is_of_bytes, XT_RATEEST_MATCH_BPS),
            (!is_of_bytes, XT_RATEEST_MATCH_PPS),
        ]));
        out.u16(position(&MODES, &Some(*comparison.value()))?);
        for limit in [self.limit1, self.limit2] {
            match is_of_bytes {
                true => out.u32(limit).u32(0),
                false => out.u32(0).u32(limit),
            };
        }
        out.pointer().pointer();
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (name, second) = (reader.text(IFNAMSIZ)?, reader.text(IFNAMSIZ)?);
        let (flags, mode) = (reader.u16()?, reader.u16()?);
        let comparison = at(&MODES, mode)??;
        let mut limits = [0; 4];
        for limit in &mut limits {
            *limit = reader.u32()?;
        }
        let [bytes1, packets1, bytes2, packets2] = limits;
        let (unit, limit1, limit2) = match flags & (XT_RATEEST_MATCH_BPS | XT_RATEEST_MATCH_PPS) {
            XT_RATEEST_MATCH_BPS => (RateestUnit::Bytes, bytes1, bytes2),
            XT_RATEEST_MATCH_PPS => (RateestUnit::Packets, packets1, packets2),
            _ => return None,
        };
        let is_negated = flags & XT_RATEEST_MATCH_INVERT != 0;
        let is_relative = flags & XT_RATEEST_MATCH_REL != 0;
        Some(Self {
            delta: flags & XT_RATEEST_MATCH_DELTA != 0,
            name: Some(name.into()),
            second: is_relative.then(|| second.into()),
            comparison: Some(Negatable::new(is_negated, comparison)),
            unit: Some(unit),
            limit1,
            limit2,
        })
        .filter(Rateest::is_printed_exactly)
    }
}

#[cfg(test)]
mod tests {
    use crate::Rule;
    use crate::matches::Match;

    #[test]
    fn rates_are_printed_in_bits() {
        let table = [
            ("8bit", "8bit"),
            ("5kbit", "5000bit"),
            ("1mbit", "1000Kbit"),
            ("1.5MiBps", "12583Kbit"),
            ("2gbit", "2000Mbit"),
            ("4Kibps", "32768bit"),
            ("800", "800bit"),
        ];
        for (text, printed) in table {
            let rule = format!("-m rateest --rateest a --rateest-gt --rateest-bps {text}");
            let rule = Rule::parse(&rule).unwrap().to_string();
            assert!(rule.ends_with(&format!(" {printed}")), "{rule}");
            assert_eq!(Rule::parse(&rule).unwrap().to_string(), rule);
        }
    }

    #[test]
    fn incomplete_and_mixed_conditions_remain_text() {
        for text in [
            "--rateest a --rateest-gt",
            "--rateest a --rateest-bps 5",
            "--rateest a --rateest-lt --rateest-gt --rateest-bps 5",
            "--rateest a --rateest-lt --rateest-bps 5 --rateest-pps 5",
            "--rateest a --rateest-lt --rateest-bps1 800 --rateest-bps 900",
            "--rateest a --rateest-lt --rateest-bps 5foo",
            "--rateest a-name-that-is-too-long --rateest-lt --rateest-pps 5",
        ] {
            let text = format!("-m rateest {text}");
            let rule = Rule::parse(&text).unwrap();
            assert!(matches!(&*rule.matches, [Match::Other(_)]), "{rule:?}");
            assert_eq!(rule.to_string(), text);
        }
    }
}
