//! `-j RATEEST`: estimates of rates.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::extensions::structure::{IFNAMSIZ, Reader, Structure, Writer};
use crate::options::field::{extension, word_values};
use crate::options::number;

extension! {
    /// Estimates the rate of the packets: `-j RATEEST --rateest-name eth0 --rateest-interval
    /// 250ms --rateest-ewmalog 0.5s`.
    ///
    /// Match `rateest` compares the rate. iptables requires all options.
    pub struct Rateest<'a> = "-j RATEEST" {
        /// Name of the estimator.
        name: Option<Cow<'a, str>> = "--rateest-name",
        /// Interval of measurements. The kernel has six: 250 ms, 500 ms, 1, 2, 4 and 8 s.
        interval: Option<EstimatorTime> = "--rateest-interval",
        /// Time constant of the average: the interval times a power of two.
        average: Option<EstimatorTime> = "--rateest-ewmalog",
    }
    complete |it| it.name.as_ref().is_some_and(|name| name.len() <= NAME) && it.exponents().is_some();
    normalize |it| {
        if let Some(exponents) = it.exponents() {
            (it.interval, it.average) = times(exponents).unzip();
        }
    };
}

/// A time of an estimator in microseconds, printed as `250.0ms`.
///
/// iptables prints one decimal.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct EstimatorTime(u32);

/// Length of a name without its NUL byte.
const NAME: usize = 15;
/// Microseconds of the shortest interval.
const SHORTEST: u32 = 250_000;
/// Number of intervals.
const INTERVALS: u8 = 6;
/// Greatest logarithm of the average.
const MAX_LOG: u8 = 29;

/// Exponents of the interval, from 0 for the shortest one, and of the average.
type Exponents = (u8, u8);

/// Returns the times of exponents. Returns `None` if iptables cannot print the average.
fn times((interval, log): Exponents) -> Option<(EstimatorTime, EstimatorTime)> {
    let interval = SHORTEST.checked_shl(interval.into())?;
    let average = u64::from(interval).checked_shl(log.into())?;
    let average = u32::try_from(average).ok()?;
    Some((EstimatorTime(interval), EstimatorTime(average)))
}

impl EstimatorTime {
    /// Creates a time. Returns `None` if it exceeds 71 minutes.
    pub fn new(time: Duration) -> Option<Self> {
        u32::try_from(time.as_micros()).ok().map(Self)
    }

    /// Returns the time.
    pub fn get(self) -> Duration {
        Duration::from_micros(self.0.into())
    }

    fn parse(text: &str) -> Option<Self> {
        let (count, unit) = number::split_decimal(text)?;
        let scale = match &*unit.to_ascii_lowercase() {
            "s" | "sec" | "secs" => 1e6,
            "ms" | "msec" | "msecs" => 1e3,
            "" | "us" | "usec" | "usecs" => 1.0,
            _ => return None,
        };
        number::truncate(count * scale).map(Self)
    }
}

impl fmt::Display for EstimatorTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            time @ 1_000_000.. => write!(f, "{:.1}s", f64::from(time) / 1e6),
            time @ 1_000.. => write!(f, "{:.1}ms", f64::from(time) / 1e3),
            time => write!(f, "{time}us"),
        }
    }
}

word_values! { EstimatorTime = EstimatorTime::parse, }

impl Rateest<'_> {
    /// Returns the exponents that iptables derives. Returns `None` if it refuses the times.
    fn exponents(&self) -> Option<Exponents> {
        let (interval, average) = (self.interval?.0, self.average?.0);
        let exponent = (0..INTERVALS).find(|exponent| interval <= SHORTEST << exponent)?;
        // The weight of an old measurement of an average with a logarithm.
        let weight = |log: u8| 1.0 - (-f64::from(log)).exp2();
        let exceeds = |log: &u8| f64::from(interval) / -weight(*log).ln() > f64::from(average);
        let log = (1..=MAX_LOG + 1).find(exceeds)? - 1;
        let exponents = (exponent, log);
        (log > 0 && times(exponents).is_some()).then_some(exponents)
    }
}

/// Exponent of the shortest interval.
const MIN_INTERVAL: i8 = -2;

/// `struct xt_rateest_target_info`.
impl Structure for Rateest<'_> {
    const NAME: &'static str = "RATEEST";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let (interval, log) = self.exponents()?;
        let interval = i8::try_from(interval).ok()? + MIN_INTERVAL;
        out.text(self.name.as_deref()?, IFNAMSIZ)?;
        out.bytes(&interval.to_ne_bytes()).u8(log).pointer();
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let name = reader.text(IFNAMSIZ)?;
        let interval = i8::from_ne_bytes(reader.array()?).checked_sub(MIN_INTERVAL)?;
        let exponents = (u8::try_from(interval).ok()?, reader.u8()?);
        let (interval, average) = times(exponents)?;
        Some(Self {
            name: Some(name.into()),
            interval: Some(interval),
            average: Some(average),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Rule;
    use crate::targets::Target;

    #[test]
    fn times_become_those_of_the_kernel() {
        let table = [
            ("250ms", "0.5s", "250.0ms", "500.0ms"),
            ("200ms", "500000", "250.0ms", "500.0ms"),
            ("0.3s", "1sec", "500.0ms", "1.0s"),
            ("8s", "16s", "8.0s", "16.0s"),
            ("1s", "100s", "1.0s", "64.0s"),
        ];
        for (interval, average, printed, printed_average) in table {
            let text = |interval, average| {
                format!(
                    "-j RATEEST --rateest-name a --rateest-interval {interval} --rateest-ewmalog {average}"
                )
            };
            let given = text(interval, average);
            let rule = Rule::parse(&given).unwrap();
            assert_eq!(rule.to_string(), text(printed, printed_average), "{given}");
            assert_eq!(Rule::parse(&rule.to_string()).unwrap(), rule);
        }
    }

    #[test]
    fn times_that_iptables_refuses_remain_text() {
        for (interval, average) in [("9s", "20s"), ("1s", "1s"), ("1", "71min"), ("x", "1s")] {
            let text = format!(
                "-j RATEEST --rateest-name a --rateest-interval {interval} --rateest-ewmalog {average}"
            );
            let rule = Rule::parse(&text).unwrap();
            assert!(matches!(rule.target, Some(Target::Other(_))), "{rule:?}");
            assert_eq!(rule.to_string(), text);
        }
    }
}
