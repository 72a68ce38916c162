//! Lists of match `recent`, as the kernel prints them.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::parse_error::{Expected, ParseError};

/// Value of jiffies 5 minutes after the boot of a 64-bit kernel: `INITIAL_JIFFIES` of
/// `linux/jiffies.h`.
const JIFFIES: u64 = 1 << 32;
const JIFFIES_AT: Duration = Duration::from_secs(300);

/// Shortest distance from that time that determines the frequency.
const DISTANCE: Duration = Duration::from_secs(5);

/// Values of `CONFIG_HZ`.
const FREQUENCIES: [u32; 4] = [100, 250, 300, 1000];

/// Largest error of a time that follows from the time since the boot. The counter starts
/// later than the clock, when the kernel enables interrupts: 0.23 s later on a virtual machine
/// with Linux 6.18.
const BOOT_TOLERANCE: Duration = Duration::from_secs(2);

/// An entry of a list, a line of `/proc/net/xt_recent/NAME`.
///
/// ```
/// use vipline_iptables::RecentEntry;
///
/// let text = "src=192.0.2.7 ttl: 64 last_seen: 4294970296 oldest_pkt: 1 4294970296\n";
/// let entries = RecentEntry::parse_list(text)?;
/// assert_eq!(entries[0].addr.to_string(), "192.0.2.7");
/// assert_eq!(entries[0].stamps, [4_294_970_296]);
/// # Ok::<(), vipline_iptables::ParseError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RecentEntry {
    /// Address with the mask of the rule applied.
    pub addr: IpAddr,
    /// TTL of the last packet.
    pub ttl: u8,
    /// Times of counted packets in jiffies, in no order.
    pub stamps: Vec<u64>,
}

/// The current time in jiffies, the unit of the stamps of a [`RecentEntry`].
///
/// The kernel shows its counter in `/proc/schedstat`, which needs `CONFIG_SCHEDSTATS`, and to
/// root in `/proc/timer_list`, which container runtimes hide. Without both, the time follows
/// from the time since the boot and the frequency, and is inexact. The frequency follows from
/// sysctls, which exist in the initial network namespace only, or from the counter and the time
/// since the boot.
///
/// Displays as `NOW FREQUENCY TOLERANCE`, and is parsed from it.
///
/// ```
/// use std::time::Duration;
/// use vipline_iptables::Jiffies;
///
/// let uptime = Duration::from_millis(12_892_580);
/// let counter = Jiffies::parse_counter("timestamp 4298115383").unwrap();
/// let exact = Jiffies::from_counter(counter, uptime, None).unwrap();
/// assert_eq!((exact.frequency, exact.tolerance), (Some(250), 0));
///
/// let frequency = Jiffies::frequency_of_sysctls(["250", "1250", "5", "5120"]).unwrap();
/// let inexact = Jiffies::from_uptime(uptime, frequency);
/// assert!(exact.now.abs_diff(inexact.now) <= inexact.tolerance);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Jiffies {
    /// Jiffies since an unspecified time.
    pub now: u64,
    /// Number of jiffies in a second: `CONFIG_HZ`. `None` near 5 minutes after the boot, when
    /// counter and time since the boot do not determine it.
    pub frequency: Option<u32>,
    /// Largest difference between `now` and the counter of the kernel.
    pub tolerance: u64,
}

impl RecentEntry {
    /// Parses the contents of `/proc/net/xt_recent/NAME`.
    ///
    /// # Errors
    ///
    /// [`ParseError::Line`] with the first malformed line.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ParseError> {
        let entry = |(line, text)| {
            let error = || ParseError::of_line(Expected::RecentEntry, text).in_line(line);
            parse(text).ok_or_else(error)
        };
        (1..).zip(text.lines()).map(entry).collect()
    }

    /// Returns the least and the largest possible number of counted packets that are at most
    /// `age` old. They differ if a packet is about as old as that and the time is inexact, and
    /// if the frequency is unknown.
    pub fn hits(&self, age: Duration, time: Jiffies) -> RangeInclusive<usize> {
        let all = self.stamps.len();
        let Some(frequency) = time.frequency else {
            // No packet is older than the boot.
            let is_before_boot = age >= JIFFIES_AT + DISTANCE;
            return if is_before_boot { all..=all } else { 0..=all };
        };
        let age = age.as_secs().saturating_mul(frequency.into());
        let young = |now: u64| {
            let is_young = |stamp: &&u64| now.saturating_sub(**stamp) <= age;
            self.stamps.iter().filter(is_young).count()
        };
        let latest = time.now.saturating_add(time.tolerance);
        young(latest)..=young(time.now.saturating_sub(time.tolerance))
    }
}

/// Parses `src=ADDR ttl: TTL last_seen: STAMP oldest_pkt: INDEX STAMP, STAMP`.
fn parse(line: &str) -> Option<RecentEntry> {
    let mut words = line.split_ascii_whitespace();
    let addr = words.next()?.strip_prefix("src=")?.parse().ok()?;
    let mut field = |name| {
        words
            .next()
            .filter(|word| *word == name)
            .and_then(|_| words.next())
    };
    let ttl = field("ttl:")?.parse().ok()?;
    field("last_seen:")?;
    field("oldest_pkt:")?;
    let stamps = words.map(|word| word.trim_end_matches(',').parse().ok());
    Some(RecentEntry {
        addr,
        ttl,
        stamps: stamps.collect::<Option<_>>()?,
    })
}

impl Jiffies {
    /// Files in `/proc/sys` that determine the frequency, in the initial network namespace:
    /// other namespaces do not have them (Linux 6.18). Any user can read them.
    pub const FREQUENCY_SYSCTLS: [&str; 4] = [
        "net/ipv4/route/error_cost",
        "net/ipv4/route/error_burst",
        "net/ipv4/route/redirect_load",
        "net/ipv4/route/redirect_silence",
    ];

    /// Creates an exact time.
    pub fn new(now: u64, frequency: u32) -> Self {
        Self {
            now,
            frequency: Some(frequency),
            tolerance: 0,
        }
    }

    /// Parses the counter from a line of `/proc/schedstat` or `/proc/timer_list`. `None` if it
    /// is another line.
    pub fn parse_counter(line: &str) -> Option<u64> {
        let prefixes = ["timestamp ", "jiffies: "].into_iter();
        let mut counters = prefixes.filter_map(|prefix| line.strip_prefix(prefix));
        counters.next()?.trim().parse().ok()
    }

    /// Returns the frequency that the contents of [`FREQUENCY_SYSCTLS`](Self::FREQUENCY_SYSCTLS)
    /// tell.
    ///
    /// The kernel shows these limits in jiffies, and their defaults are 1 s, 5 s, 20 ms and
    /// 20.48 s (`ip_rt_error_cost` and the following variables of `net/ipv4/route.c`). `None`
    /// if they are not these defaults in one and the same frequency: somebody set them, and
    /// then they tell nothing.
    pub fn frequency_of_sysctls(contents: [&str; 4]) -> Option<u32> {
        let values = contents.map(|text| text.trim().parse::<u32>().ok());
        let defaults = |hz: u32| [hz, 5 * hz, hz / 50, (hz / 50) << 10].map(Some);
        let mut known = FREQUENCIES.into_iter();
        known.find(|hz| defaults(*hz) == values)
    }

    /// Creates an exact time from the counter of a kernel.
    ///
    /// `uptime` is the time since the boot, `CLOCK_MONOTONIC`. It determines the frequency if
    /// that is unknown. Returns `None` if they contradict each other, as on a kernel of 32 bits.
    pub fn from_counter(now: u64, uptime: Duration, frequency: Option<u32>) -> Option<Self> {
        let distance = uptime.abs_diff(JIFFIES_AT);
        let frequency = match frequency {
            Some(frequency) => Some(frequency),
            None if distance < DISTANCE => None,
            None => {
                let jiffies = u32::try_from(now.abs_diff(JIFFIES)).ok()?;
                let measured = f64::from(jiffies) / distance.as_secs_f64();
                let is_it = |hz: &u32| (measured / f64::from(*hz) - 1.0).abs() < 0.1;
                Some(FREQUENCIES.into_iter().find(is_it)?)
            }
        };
        Some(Self {
            now,
            frequency,
            tolerance: 0,
        })
    }

    /// Creates the time of a 64-bit kernel without its counter, exact to 2 s.
    ///
    /// `uptime` is the time since the boot, `CLOCK_MONOTONIC`. `/proc/uptime` also advances while
    /// the system is suspended, when the counter does not.
    pub fn from_uptime(uptime: Duration, frequency: u32) -> Self {
        let jiffies = |time: Duration| {
            let jiffies = time.as_millis() * u128::from(frequency) / 1000;
            u64::try_from(jiffies).unwrap_or(u64::MAX)
        };
        let now = JIFFIES.saturating_add(jiffies(uptime));
        Self {
            now: now.saturating_sub(jiffies(JIFFIES_AT)),
            frequency: Some(frequency),
            tolerance: jiffies(BOOT_TOLERANCE),
        }
    }
}

impl fmt::Display for Jiffies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frequency = self.frequency.unwrap_or_default();
        write!(f, "{} {frequency} {}", self.now, self.tolerance)
    }
}

impl FromStr for Jiffies {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = text.split_ascii_whitespace();
        let mut number = || words.next()?.parse::<u64>().ok();
        let numbers = (number(), number(), number(), words.next());
        let (Some(now), Some(frequency), Some(tolerance), None) = numbers else {
            return Err(ParseError::Jiffies);
        };
        let frequency = u32::try_from(frequency).map_err(|_| ParseError::Jiffies)?;
        Ok(Self {
            now,
            frequency: (frequency != 0).then_some(frequency),
            tolerance,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "src=192.0.2.7 ttl: 63 last_seen: 5000000000 oldest_pkt: 2 4999000000, 5000000000\n\
                        src=fd00:0000:0000:0000:0000:0000:0000:0007 ttl: 64 last_seen: 1 oldest_pkt: 1 1\n";

    #[test]
    fn entries_of_both_families_are_parsed() {
        let entries = RecentEntry::parse_list(LIST).unwrap();
        let [first, second] = &*entries else {
            panic!("{entries:?}");
        };
        assert_eq!(first.addr, "192.0.2.7".parse::<IpAddr>().unwrap());
        assert_eq!(
            (first.ttl, &*first.stamps),
            (63, &[4_999_000_000, 5_000_000_000][..])
        );
        assert_eq!(second.addr, "fd00::7".parse::<IpAddr>().unwrap());
        assert_eq!(RecentEntry::parse_list(""), Ok(Vec::new()));
        for wrong in [
            "src=host ttl: 1 last_seen: 1 oldest_pkt: 1 1",
            "src=192.0.2.7 ttl: 1 last_seen: 1 oldest_pkt: 1 x",
            "src=192.0.2.7 ttl: 1 last_seen: 1",
            "192.0.2.7",
        ] {
            let text = format!("{LIST}{wrong}\n");
            assert_eq!(
                RecentEntry::parse_list(&text).unwrap_err().line(),
                Some(3),
                "{wrong}"
            );
        }
    }

    #[test]
    fn packets_count_up_to_their_age() {
        let entries = RecentEntry::parse_list(LIST).unwrap();
        // The packets are 4,010 and 10 s old.
        let time = Jiffies::new(5_000_002_500, 250);
        let hits = |seconds, time| entries[0].hits(Duration::from_secs(seconds), time);
        for (seconds, expected) in [(9, 0), (10, 1), (4009, 1), (4010, 2)] {
            assert_eq!(hits(seconds, time), expected..=expected, "{seconds} s");
        }
        // The same time, known to 2 s.
        let inexact = Jiffies {
            tolerance: 500,
            ..time
        };
        for (seconds, expected) in [
            (7, 0..=0),
            (8, 0..=1),
            (11, 0..=1),
            (12, 1..=1),
            (4007, 1..=1),
            (4008, 1..=2),
            (4011, 1..=2),
            (4012, 2..=2),
        ] {
            assert_eq!(hits(seconds, inexact), expected, "{seconds} s");
        }
    }

    #[test]
    fn no_packet_is_older_than_the_boot() {
        let time = Jiffies::from_counter(JIFFIES, JIFFIES_AT, None).unwrap();
        let text = "src=192.0.2.7 ttl: 64 last_seen: 4294967290 oldest_pkt: 1 4294967290\n";
        let entries = RecentEntry::parse_list(text).unwrap();
        let hits = |seconds| entries[0].hits(Duration::from_secs(seconds), time);
        let expected = [0..=1, 0..=1, 1..=1, 1..=1];
        assert_eq!([1, 304, 305, 10_800].map(hits), expected);
    }

    #[test]
    fn the_frequency_follows_from_counter_and_uptime() {
        let from = |now, seconds| Jiffies::from_counter(now, Duration::from_secs(seconds), None);
        // As read on a host with CONFIG_HZ=250.
        let line = "timestamp 4298634025";
        let counter = Jiffies::parse_counter(line).unwrap();
        assert_eq!(counter, 4_298_634_025);
        let expected = Some(Jiffies::new(counter, 250));
        assert_eq!(from(counter, 14_967), expected);
        for frequency in FREQUENCIES {
            for uptime in [10_u64, 290, 310, 1_000_000] {
                let now = JIFFIES + uptime * u64::from(frequency) - 300 * u64::from(frequency);
                assert_eq!(from(now, uptime), Some(Jiffies::new(now, frequency)));
            }
        }
        let near = from(JIFFIES, 300).unwrap();
        assert_eq!((near.now, near.frequency), (JIFFIES, None));
        assert_eq!(from(JIFFIES + 5000, 400), None);
        let known = Jiffies::from_counter(JIFFIES, JIFFIES_AT, Some(100));
        assert_eq!(known, Some(Jiffies::new(JIFFIES, 100)));
    }

    #[test]
    fn only_lines_with_the_counter_are_parsed() {
        for (line, expected) in [
            ("timestamp 5000000000", Some(5_000_000_000)),
            ("jiffies: 5000000000", Some(5_000_000_000)),
            ("version 15", None),
            ("  .jiffies: 1", None),
            ("timestamp now", None),
            ("", None),
        ] {
            assert_eq!(Jiffies::parse_counter(line), expected, "{line}");
        }
    }

    #[test]
    fn sysctls_that_somebody_set_do_not_tell_the_frequency() {
        let of = Jiffies::frequency_of_sysctls;
        for (contents, expected) in [
            (["100\n", "500\n", "2\n", "2048\n"], Some(100)),
            (["250\n", "1250\n", "5\n", "5120\n"], Some(250)),
            (["300\n", "1500\n", "6\n", "6144\n"], Some(300)),
            (["1000\n", "5000\n", "20\n", "20480\n"], Some(1000)),
            // Each one changed, to that of another frequency.
            (["100", "1250", "5", "5120"], None),
            (["250", "500", "5", "5120"], None),
            (["250", "1250", "2", "5120"], None),
            (["250", "1250", "5", "2048"], None),
            // Consistent, but no value of CONFIG_HZ.
            (["200", "1000", "4", "4096"], None),
            (["0", "0", "0", "0"], None),
            (["", "1250", "5", "5120"], None),
        ] {
            assert_eq!(of(contents), expected, "{contents:?}");
        }
    }

    #[test]
    fn a_time_from_the_uptime_is_near_the_counter() {
        // As read from `/proc/timer_list` and `/proc/uptime` of a host with CONFIG_HZ=250.
        let time = Jiffies::from_uptime(Duration::from_millis(12_892_580), 250);
        assert_eq!(time.now - 4_298_115_383, 58);
        assert_eq!((time.frequency, time.tolerance), (Some(250), 500));
        let boot = Jiffies::from_uptime(Duration::ZERO, 1000);
        assert_eq!(boot.now, (1 << 32) - 300_000);
    }

    #[test]
    fn a_time_is_parsed_from_its_text() {
        let exact = Jiffies::new(5_000_000_000, 250);
        let unknown = Jiffies {
            frequency: None,
            ..exact
        };
        let inexact = Jiffies::from_uptime(JIFFIES_AT, 100);
        for (time, text) in [
            (exact, "5000000000 250 0"),
            (unknown, "5000000000 0 0"),
            (inexact, "4294967296 100 200"),
        ] {
            assert_eq!(time.to_string(), text);
            assert_eq!(text.parse(), Ok(time));
        }
        for wrong in ["", "1", "1 2", "1 2 3 4", "1 -2 3", "1 4294967296 3"] {
            assert_eq!(
                wrong.parse::<Jiffies>(),
                Err(ParseError::Jiffies),
                "{wrong}"
            );
        }
    }
}
