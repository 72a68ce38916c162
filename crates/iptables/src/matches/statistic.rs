//! `-m statistic`: random or periodic sampling.

use std::fmt;
use std::str::FromStr;

use crate::ParseError;
use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::negatable::Negatable;
use crate::options::number;
use crate::options::{Extension, Parsed, Unsupported, Values};

/// Matches a sample of packets: `-m statistic --mode random --probability 0.5`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Statistic {
    /// Random sampling with this probability.
    Random(Negatable<Probability>),
    /// Every nth packet.
    Nth {
        /// Length of the period in packets.
        every: Negatable<u32>,
        /// Index of the packet within the period, from 0.
        packet: u32,
    },
}

/// A probability, as the kernel stores it: a multiple of 2⁻³¹.
///
/// ```
/// use vipline_iptables::matches::Probability;
///
/// assert_eq!(Probability::one_in(3).to_string(), "0.33333333349");
/// assert_eq!("0.3333333333".parse(), Ok(Probability::one_in(3)));
/// # Ok::<(), vipline_iptables::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Probability(u32);

impl Probability {
    /// Probability 1.
    pub const ALWAYS: Self = Self(1 << 31);

    /// Returns 1/`count`, first rounded to ten decimals. 0 counts as 1.
    ///
    /// The result equals that of programs that pass ten decimals to iptables, such
    /// as kube-proxy.
    pub fn one_in(count: u32) -> Self {
        const UNIT: u64 = 10_u64.pow(10);
        let count = u64::from(count.max(1));
        let decimals = (UNIT + count / 2) / count;
        let parts = ((u128::from(decimals) << 31) + u128::from(UNIT / 2)) / u128::from(UNIT);
        Self(u32::try_from(parts).expect("at most 2³¹"))
    }

    /// Returns the probability in parts of 2³¹, of which [`ALWAYS`](Self::ALWAYS) has all.
    pub fn parts(self) -> u32 {
        self.0
    }

    /// Returns a multiple of 2⁻³¹. Returns `None` above 1.
    pub(crate) fn from_parts(parts: u32) -> Option<Self> {
        Some(Self(parts)).filter(|probability| *probability <= Self::ALWAYS)
    }

    /// Parses a decimal like iptables.
    fn parse(text: &str) -> Option<Self> {
        // Rust also parses `inf` and `nan`.
        let number: f64 = text.parse().ok()?;
        let parts = (0.0..=1.0)
            .contains(&number)
            .then(|| (number * f64::from(1_u32 << 31)).round());
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 2³¹"
        )]
        parts.map(|parts| Self(parts as u32))
    }
}

impl FromStr for Probability {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text).ok_or_else(|| ParseError::Probability(text.into()))
    }
}

impl fmt::Display for Probability {
    /// Prints eleven decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 10¹¹ / 2³¹ is 5¹¹ / 2²⁰. Ties are rounded to even like in C.
        let scaled = u64::from(self.0) * 5_u64.pow(11);
        let (whole, rest) = (scaled >> 20, scaled & ((1 << 20) - 1));
        let half = 1 << 19;
        let up = rest > half || rest == half && whole % 2 == 1;
        let rounded = whole + u64::from(up);
        let unit = 10_u64.pow(11);
        write!(f, "{}.{:011}", rounded / unit, rounded % unit)
    }
}

impl Statistic {
    /// Matches packets at random.
    pub fn random(probability: Probability) -> Self {
        Self::Random(Negatable::Is(probability))
    }

    /// Matches one of every `every` packets; `packet` is its index, from 0.
    pub fn nth(every: u32, packet: u32) -> Self {
        Self::Nth {
            every: Negatable::Is(every),
            packet,
        }
    }
}

impl<'a> Extension<'a> for Statistic {
    fn open() -> Self {
        Self::random(Probability::ALWAYS)
    }

    fn options() -> &'static [&'static str] {
        &["--mode", "--probability", "--every", "--packet"]
    }

    fn min_options(&self) -> usize {
        match self {
            Self::Random(_) => 2,
            Self::Nth { .. } => 3,
        }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match (option, &mut *self) {
            ("--mode", _) => {
                values.expect_index(0)?;
                match &*values.word()? {
                    "random" => {}
                    "nth" => *self = Self::nth(0, 0),
                    _ => return Err(Unsupported),
                }
            }
            ("--probability", Self::Random(probability)) => {
                values.expect_index(1)?;
                *probability = values.negatable(Probability::parse)?;
            }
            ("--every", Self::Nth { every, .. }) => {
                values.expect_index(1)?;
                *every = values.negatable(number::parse_as)?;
            }
            ("--packet", Self::Nth { packet, .. }) => {
                values.expect_index(2)?;
                *packet = values.parse(number::parse_as)?;
            }
            ("--probability" | "--every" | "--packet", _) => return Err(Unsupported),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m statistic --mode ")?;
        match self {
            Self::Random(probability) => {
                f.write_str("random")?;
                probability.write(f, "--probability")
            }
            Self::Nth { every, packet } => {
                f.write_str("nth")?;
                every.write(f, "--every")?;
                write!(f, " --packet {packet}")
            }
        }
    }
}

// enum xt_statistic_mode
const XT_STATISTIC_MODE_RANDOM: u16 = 0;
const XT_STATISTIC_MODE_NTH: u16 = 1;

const XT_STATISTIC_INVERT: u16 = 1;

/// `struct xt_statistic_info`.
impl Structure for Statistic {
    const NAME: &'static str = "statistic";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let inverted = |is_negated| if is_negated { XT_STATISTIC_INVERT } else { 0 };
        match self {
            Self::Random(probability) => {
                let parts = probability.value().parts();
                out.u16(XT_STATISTIC_MODE_RANDOM);
                out.u16(inverted(probability.is_negated()));
                // iptables repeats it in the field `count` of the other mode.
                out.u32(parts).u32(0).u32(parts)
            }
            Self::Nth { every, packet } => {
                let last = every.value().checked_sub(1)?;
                let count = last.checked_sub(*packet)?;
                out.u16(XT_STATISTIC_MODE_NTH);
                out.u16(inverted(every.is_negated()));
                out.u32(last).u32(*packet).u32(count)
            }
        };
        out.pointer();
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (mode, flags) = (reader.u16()?, reader.u16()?);
        let first = reader.u32()?;
        let is_negated = flags & XT_STATISTIC_INVERT != 0;
        match mode {
            XT_STATISTIC_MODE_RANDOM => {
                let probability = Probability::from_parts(first)?;
                Some(Self::Random(Negatable::new(is_negated, probability)))
            }
            XT_STATISTIC_MODE_NTH => Some(Self::Nth {
                every: Negatable::new(is_negated, first.checked_add(1)?),
                packet: reader.u32()?,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_rounded_to_kernel_precision() {
        let table = [
            ("0.5000000000", "0.50000000000"),
            ("0.5", "0.50000000000"),
            ("0.3333333333", "0.33333333349"),
            ("0.1428571429", "0.14285714272"),
            ("1", "1.00000000000"),
            ("0", "0.00000000000"),
            // Rounding a tie to even.
            ("0.000244140625", "0.00024414062"),
        ];
        for (text, printed) in table {
            let probability: Probability = text.parse().unwrap();
            assert_eq!(probability.to_string(), printed, "{text}");
            assert_eq!(printed.parse(), Ok(probability), "{text}");
        }
        for text in ["", "1.1", "-0.5", "nan", "x"] {
            assert!(text.parse::<Probability>().is_err(), "{text}");
        }
    }

    #[test]
    fn one_in_equals_ten_decimals() {
        for count in 1..20_000 {
            let text = format!("{:.10}", 1.0 / f64::from(count));
            assert_eq!(text.parse(), Ok(Probability::one_in(count)), "{text}");
        }
    }
}
