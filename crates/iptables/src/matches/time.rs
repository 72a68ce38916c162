//! `-m time`: time of arrival.

use std::fmt;

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::field::{Field, word_values};
use crate::options::number;
use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};

/// Matches the time of arrival: `-m time --timestart 09:00 --timestop 17:00`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Time {
    /// First second of the day. Default: 00:00:00.
    pub start: Option<TimeOfDay>,
    /// Last second of the day. Default: 23:59:59.
    pub stop: Option<TimeOfDay>,
    /// Days of the month. Default: all.
    pub month_days: Option<MonthDays>,
    /// Days of the week. Default: all.
    pub week_days: Option<WeekDays>,
    /// First second. Default: 1970-01-01T00:00:00.
    pub date_start: Option<Date>,
    /// Last second. Default: 2038-01-19T03:14:07.
    ///
    /// iptables always prints this date;
    /// [`Rule::for_family`](crate::Rule::for_family) sets the default.
    pub date_stop: Option<Date>,
    /// Whether the times are those of the kernel's time zone instead of UTC.
    pub kernel_time_zone: bool,
    /// Whether a range beyond midnight belongs to the day of its start.
    pub contiguous: bool,
}

/// Seconds after midnight, printed as `09:00:00`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TimeOfDay(u32);

/// Days of the month, printed as `1,15`. Bit 1 is the first day.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct MonthDays(u32);

/// Days of the week, printed as `Mon,Fri`. Bit 1 is Monday.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct WeekDays(u8);

/// Seconds after 1970-01-01T00:00:00, printed in this form.
///
/// Exhaustive: a date is one number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Date(pub u32);

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

const DAY: u32 = 86_400;

impl TimeOfDay {
    /// Creates a time. Returns `None` if a number is too large.
    pub fn new(hour: u32, minute: u32, second: u32) -> Option<Self> {
        let is_valid = hour < 24 && minute < 60 && second < 60;
        is_valid.then_some(Self(hour * 3600 + minute * 60 + second))
    }

    /// Returns the seconds after midnight.
    pub fn seconds(self) -> u32 {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (hour, minute) = (decimal(parts.next()?)?, decimal(parts.next()?)?);
        let second = parts.next().map_or(Some(0), decimal)?;
        Self::new(hour, minute, second).filter(|_| parts.next().is_none())
    }
}

fn decimal(text: &str) -> Option<u32> {
    let is_decimal = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_decimal)
}

impl MonthDays {
    /// Creates a list of days from 1 to 31. Returns `None` for another number.
    pub fn new(days: impl IntoIterator<Item = u32>) -> Option<Self> {
        let bit = |day| (1..32).contains(&day).then_some(1_u32 << day);
        let mut days = days.into_iter();
        days.try_fold(0, |all, day| Some(all | bit(day)?)).map(Self)
    }

    /// Returns the days.
    pub fn days(self) -> impl Iterator<Item = u32> {
        (1..32).filter(move |day| self.0 & 1 << day != 0)
    }

    fn parse(text: &str) -> Option<Self> {
        let days: Option<Vec<_>> = text.split(',').map(number::parse_as).collect();
        Self::new(days?)
    }
}

impl WeekDays {
    /// Creates a list of days from 1, Monday, to 7, Sunday. Returns `None` for another
    /// number.
    pub fn new(days: impl IntoIterator<Item = u8>) -> Option<Self> {
        let bit = |day| (1..8).contains(&day).then_some(1_u8 << day);
        let mut days = days.into_iter();
        days.try_fold(0, |all, day| Some(all | bit(day)?)).map(Self)
    }

    /// Returns the days.
    pub fn days(self) -> impl Iterator<Item = u8> {
        (1..8).filter(move |day| self.0 & 1 << day != 0)
    }

    /// Parses names of at least two letters, or numbers.
    fn parse(text: &str) -> Option<Self> {
        let day = |text: &str| {
            let day = DAYS
                .iter()
                .zip(1..)
                .find(|(name, _)| text.len() >= 2 && name.get(..2) == text.get(..2));
            match day {
                Some((_, day)) => Some(day),
                None => number::parse_as(text),
            }
        };
        let days: Option<Vec<_>> = text.split(',').map(day).collect();
        Self::new(days?)
    }
}

impl Date {
    /// Last date that the kernel compares.
    pub const MAX: Self = Self(i32::MAX.unsigned_abs());

    /// Parses `2024`, `2024-02`, … or `2024-02-29T12:30:00`.
    fn parse(text: &str) -> Option<Self> {
        let (date, time) = match text.split_once('T') {
            Some((date, time)) => (date, Some(time)),
            None => (text, None),
        };
        let mut parts = date.split('-');
        let year = decimal(parts.next()?).filter(|year| (1970..2039).contains(year))?;
        let month = parts.next().map_or(Some(1), decimal)?;
        let day = parts.next().map_or(Some(1), decimal)?;
        let is_valid = (1..13).contains(&month) && (1..=days_of(year, month)).contains(&day);
        if !is_valid || parts.next().is_some() || time.is_some() && date.len() < 8 {
            return None;
        }
        let time = match time {
            Some(time) if !time.contains(':') => TimeOfDay::new(decimal(time)?, 0, 0)?,
            Some(time) => TimeOfDay::parse(time)?,
            None => TimeOfDay(0),
        };
        let years: u32 = (1970..year)
            .map(|year| 365 + u32::from(is_leap(year)))
            .sum();
        let months: u32 = (1..month).map(|month| days_of(year, month)).sum();
        let date = Self((years + months + day - 1) * DAY + time.0);
        Some(date).filter(|date| *date <= Self::MAX)
    }
}

fn is_leap(year: u32) -> bool {
    // Years until 2099.
    year.is_multiple_of(4)
}

fn days_of(year: u32, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hour, minute, second) = (self.0 / 3600, self.0 / 60 % 60, self.0 % 60);
        write!(f, "{hour:02}:{minute:02}:{second:02}")
    }
}

impl fmt::Display for MonthDays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, day) in self.days().enumerate() {
            write!(f, "{}{day}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for WeekDays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, day) in self.days().enumerate() {
            let separator = if at == 0 { "" } else { "," };
            write!(f, "{separator}{}", DAYS[usize::from(day) - 1])?;
        }
        Ok(())
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut days, mut year, mut month) = (self.0 / DAY, 1970, 1);
        while days >= 365 + u32::from(is_leap(year)) {
            days -= 365 + u32::from(is_leap(year));
            year += 1;
        }
        while days >= days_of(year, month) {
            days -= days_of(year, month);
            month += 1;
        }
        let time = TimeOfDay(self.0 % DAY);
        write!(f, "{year:04}-{month:02}-{:02}T{time}", days + 1)
    }
}

word_values! {
    TimeOfDay = TimeOfDay::parse,
    Date = Date::parse,
}

impl MonthDays {
    /// Returns the bits of the kernel.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Returns the days of bits of the kernel.
    pub(crate) fn from_bits(bits: u32) -> Option<Self> {
        (bits & 1 == 0).then_some(Self(bits))
    }
}

impl WeekDays {
    /// Returns the bits of the kernel.
    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    /// Returns the days of bits of the kernel.
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        (bits & 1 == 0).then_some(Self(bits))
    }
}

impl Time {
    const START: TimeOfDay = TimeOfDay(0);
    const STOP: TimeOfDay = TimeOfDay(DAY - 1);
    /// The last second of a day.
    pub(crate) const LAST_SECOND: u32 = DAY - 1;

    /// Sets both ends of the day or none, as iptables prints them.
    pub(crate) fn normalize(&mut self) {
        let (start, stop) = (
            self.start.unwrap_or(Self::START),
            self.stop.unwrap_or(Self::STOP),
        );
        let is_all = (start, stop) == (Self::START, Self::STOP);
        self.date_start = self.date_start.filter(|date| date.0 != 0);
        if is_all {
            (self.start, self.stop) = (None, None);
        }
    }
}

impl<'a> Extension<'a> for Time {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--timestart",
            "--timestop",
            "--monthdays",
            "--weekdays",
            "--datestart",
            "--datestop",
            "--kerneltz",
            "--localtz",
            "--utc",
            "--contiguous",
        ]
    }

    fn min_options(&self) -> usize {
        let start = self.start.unwrap_or(Self::START);
        let stop = self.stop.unwrap_or(Self::STOP);
        if self.contiguous && start < stop {
            return usize::MAX;
        }
        0
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--timestart" => self.start.fill(option, values),
            "--timestop" => self.stop.fill(option, values),
            "--monthdays" => {
                let negated = values.negated();
                let MonthDays(days) = values.parse(MonthDays::parse)?;
                let days = if negated { !days & !1 } else { days };
                set_once(&mut self.month_days, MonthDays(days))
            }
            "--weekdays" => {
                let negated = values.negated();
                let WeekDays(days) = values.parse(WeekDays::parse)?;
                let days = if negated { !days & !1 } else { days };
                set_once(&mut self.week_days, WeekDays(days))
            }
            "--datestart" => self.date_start.fill(option, values),
            "--datestop" => self.date_stop.fill(option, values),
            "--kerneltz" | "--localtz" => set_flag(&mut self.kernel_time_zone),
            "--utc" if self.kernel_time_zone => Err(Unsupported),
            "--utc" => Ok(true),
            "--contiguous" => set_flag(&mut self.contiguous),
            _ => return Ok(false),
        }?;
        self.month_days = self.month_days.filter(|days| days.0 != !1);
        self.week_days = self.week_days.filter(|days| days.0 != !1);
        self.normalize();
        Ok(true)
    }

    fn apply_family_defaults(&mut self, _: Family) {
        self.date_stop.get_or_insert(Date::MAX);
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m time")?;
        if self.start.is_some() || self.stop.is_some() {
            let start = self.start.unwrap_or(Self::START);
            let stop = self.stop.unwrap_or(Self::STOP);
            write!(f, " --timestart {start} --timestop {stop}")?;
        }
        if let Some(days) = self.month_days {
            write!(f, " --monthdays {days}")?;
        }
        if let Some(days) = self.week_days {
            write!(f, " --weekdays {days}")?;
        }
        self.date_start.write("--datestart", f)?;
        self.date_stop.write("--datestop", f)?;
        self.kernel_time_zone.write("--kerneltz", f)?;
        self.contiguous.write("--contiguous", f)
    }
}

// Flags and values of `struct xt_time_info`.
const XT_TIME_LOCAL_TZ: u8 = 1 << 0;
const XT_TIME_CONTIGUOUS: u8 = 1 << 1;
const XT_TIME_ALL_MONTHDAYS: u32 = 0xffff_fffe;
const XT_TIME_ALL_WEEKDAYS: u8 = 0xfe;

/// `struct xt_time_info`.
impl Structure for Time {
    const NAME: &'static str = "time";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let seconds = |time: Option<TimeOfDay>, default| time.map_or(default, TimeOfDay::seconds);
        out.u32(self.date_start.map_or(0, |Date(date)| date))
            .u32(self.date_stop.unwrap_or(Date::MAX).0)
            .u32(seconds(self.start, 0))
            .u32(seconds(self.stop, Self::LAST_SECOND))
            .u32(
                self.month_days
                    .map_or(XT_TIME_ALL_MONTHDAYS, MonthDays::bits),
            )
            .u8(self.week_days.map_or(XT_TIME_ALL_WEEKDAYS, WeekDays::bits))
            .u8(flags([
                (self.kernel_time_zone, XT_TIME_LOCAL_TZ),
                (self.contiguous, XT_TIME_CONTIGUOUS),
            ]));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut numbers = [0; 5];
        for number in &mut numbers {
            *number = reader.u32()?;
        }
        let [date_start, date_stop, start, stop, month_days] = numbers;
        let [week_days, flags] = reader.array()?;
        let of_day = |seconds: u32| TimeOfDay::new(seconds / 3600, seconds / 60 % 60, seconds % 60);
        let month_days = MonthDays::from_bits(month_days)?;
        let week_days = WeekDays::from_bits(week_days)?;
        let mut time = Self {
            start: Some(of_day(start)?),
            stop: Some(of_day(stop)?),
            month_days: Some(month_days).filter(|days| days.bits() != XT_TIME_ALL_MONTHDAYS),
            week_days: Some(week_days).filter(|days| days.bits() != XT_TIME_ALL_WEEKDAYS),
            date_start: Some(Date(date_start)),
            date_stop: Some(Date(date_stop)),
            kernel_time_zone: flags & XT_TIME_LOCAL_TZ != 0,
            contiguous: flags & XT_TIME_CONTIGUOUS != 0,
        };
        time.normalize();
        Some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_seconds() {
        let table = [
            ("1970", 0, "1970-01-01T00:00:00"),
            ("2020-01", 1_577_836_800, "2020-01-01T00:00:00"),
            ("2024-02-29T12", 1_709_208_000, "2024-02-29T12:00:00"),
            ("2038-01-19T03:14:07", 2_147_483_647, "2038-01-19T03:14:07"),
        ];
        for (text, seconds, printed) in table {
            assert_eq!(Date::parse(text), Some(Date(seconds)), "{text}");
            assert_eq!(Date(seconds).to_string(), printed);
        }
        for text in [
            "",
            "1969",
            "2038-01-19T03:14:08",
            "2023-02-29",
            "2023-1-1-1",
            "2020T1",
            "x",
        ] {
            assert_eq!(Date::parse(text), None, "{text}");
        }
    }
}
