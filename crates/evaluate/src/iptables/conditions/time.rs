//! Match `time`: `xt_time.c`.

use vipline_iptables::matches::{Time, TimeOfDay};

const DAY: i64 = 86_400;
/// First and last second of the interval without options.
const WHOLE: (u32, u32) = (0, 86_399);

/// Compares a time in seconds since 1970, in the time zone of the rule.
pub(super) fn evaluate(it: &Time, now: i64) -> bool {
    let date = |date: Option<vipline_iptables::matches::Date>| date.map(|it| i64::from(it.0));
    let is_after = date(it.date_start).is_none_or(|first| first <= now);
    let is_before = date(it.date_stop).is_none_or(|last| now <= last);
    if !is_after || !is_before {
        return false;
    }
    let seconds = |time: Option<TimeOfDay>, default| time.map_or(default, TimeOfDay::seconds);
    let (start, stop) = (seconds(it.start, WHOLE.0), seconds(it.stop, WHOLE.1));
    let (start, stop) = (i64::from(start), i64::from(stop));
    let time = now.rem_euclid(DAY);
    let crosses_midnight = start >= stop;
    let is_inside = match crosses_midnight {
        true => start <= time || time <= stop,
        false => start <= time && time <= stop,
    };
    if !is_inside {
        return false;
    }
    // After midnight, a contiguous interval belongs to the day on which it started.
    let is_next_day = crosses_midnight && it.contiguous && time <= stop;
    let day = now.div_euclid(DAY) - i64::from(is_next_day);
    let is_week_day = it.week_days.is_none_or(|days| {
        // 1970 began with a Thursday; Monday is 1.
        let day = (day + 3).rem_euclid(7) + 1;
        days.days().any(|it| i64::from(it) == day)
    });
    let is_month_day = it.month_days.is_none_or(|days| {
        let day = day_of_month(day);
        days.days().any(|it| i64::from(it) == day)
    });
    is_week_day && is_month_day
}

/// Returns the day of the month of a day since 1970.
fn day_of_month(day: i64) -> i64 {
    // Years of this calculation begin in March, and eras have 400 years.
    let day_of_era = (day + 719_468).rem_euclid(146_097);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    day_of_year - (153 * month + 2) / 5 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_months_are_those_of_the_calendar() {
        // 1970-01-01, 2000-02-29, 2000-03-01, 2026-11-25, 2100-02-28 and 2100-03-01.
        let days = [0, 11_016, 11_017, 20_782, 47_540, 47_541];
        assert_eq!(days.map(day_of_month), [1, 29, 1, 25, 28, 1]);
    }
}
