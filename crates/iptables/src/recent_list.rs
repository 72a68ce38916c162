//! Lists of match `recent`, as the kernel prints them.

use std::net::IpAddr;
use std::time::Duration;

use crate::document_error::{Expected, LineError, ParseError};

/// Value of jiffies 5 minutes after the boot of a 64-bit kernel: `INITIAL_JIFFIES` of
/// `linux/jiffies.h`.
const JIFFIES: u64 = 1 << 32;
const JIFFIES_AT: f64 = 300.0;

/// Shortest distance from that time in seconds that determines the frequency.
const DISTANCE: f64 = 5.0;

/// Values of `CONFIG_HZ`.
const FREQUENCIES: [u32; 4] = [100, 250, 300, 1000];

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
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Jiffies {
    /// Jiffies since an unspecified time.
    pub now: u64,
    /// Number of jiffies in a second: `CONFIG_HZ`. `None` near 5 minutes after the boot, when
    /// the files of the kernel do not determine it.
    pub frequency: Option<u32>,
}

impl RecentEntry {
    /// Parses the contents of `/proc/net/xt_recent/NAME`.
    ///
    /// # Errors
    ///
    /// [`ParseError`] with the first malformed line.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ParseError> {
        let entry = |(line, text)| {
            let reason = || LineError::new(Expected::RecentEntry, text);
            parse(text).ok_or_else(|| ParseError {
                line,
                reason: reason(),
            })
        };
        (1..).zip(text.lines()).map(entry).collect()
    }

    /// Returns the number of counted packets, at most `age` old. `None` if that depends on an
    /// unknown frequency.
    pub fn hits(&self, age: Duration, time: Jiffies) -> Option<usize> {
        let Some(frequency) = time.frequency else {
            // No packet is older than the boot.
            let is_before_boot = age.as_secs_f64() >= JIFFIES_AT + DISTANCE;
            return is_before_boot.then_some(self.stamps.len());
        };
        let age = age.as_secs().saturating_mul(frequency.into());
        let is_young = |stamp: &&u64| time.now.saturating_sub(**stamp) <= age;
        Some(self.stamps.iter().filter(is_young).count())
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
    /// Creates a time.
    pub fn new(now: u64, frequency: u32) -> Self {
        Self {
            now,
            frequency: Some(frequency),
        }
    }

    /// Reads the time from the contents of `/proc/timer_list` and `/proc/uptime`.
    ///
    /// Returns `None` if a value is missing or the kernel has 32 bits.
    pub fn parse(timer_list: &str, uptime: &str) -> Option<Self> {
        let mut lines = timer_list.lines();
        let now = lines.find_map(|line| line.strip_prefix("jiffies: "))?;
        let now: u64 = now.trim().parse().ok()?;
        let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
        let distance = (uptime - JIFFIES_AT).abs();
        if distance < DISTANCE {
            return Some(Self {
                now,
                frequency: None,
            });
        }
        let jiffies = u32::try_from(now.abs_diff(JIFFIES)).ok()?;
        let measured = f64::from(jiffies) / distance;
        let mut known = FREQUENCIES.into_iter();
        let frequency = known.find(|it| (measured / f64::from(*it) - 1.0).abs() < 0.1)?;
        Some(Self::new(now, frequency))
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
                3,
                "{wrong}"
            );
        }
    }

    #[test]
    fn packets_count_up_to_their_age() {
        let entries = RecentEntry::parse_list(LIST).unwrap();
        // The packets are 4,010 and 10 s old.
        let time = Jiffies::new(5_000_002_500, 250);
        let hits = |seconds| entries[0].hits(Duration::from_secs(seconds), time);
        let expected = [0, 1, 1, 2].map(Some);
        assert_eq!([9, 10, 4009, 4010].map(hits), expected);
    }

    #[test]
    fn no_packet_is_older_than_the_boot() {
        let time = Jiffies::parse("jiffies: 4294967296\n", "300.00 0.00").unwrap();
        let text = "src=192.0.2.7 ttl: 64 last_seen: 4294967290 oldest_pkt: 1 4294967290\n";
        let entries = RecentEntry::parse_list(text).unwrap();
        let hits = |seconds| entries[0].hits(Duration::from_secs(seconds), time);
        assert_eq!(
            [1, 304, 305, 10_800].map(hits),
            [None, None, Some(1), Some(1)]
        );
    }

    #[test]
    fn the_frequency_follows_from_jiffies_and_uptime() {
        let parse =
            |now: u64, uptime: &str| Jiffies::parse(&format!("a\njiffies: {now}\n"), uptime);
        // As read on a host with CONFIG_HZ=250.
        assert_eq!(
            parse(4_298_634_025, "14966.95 15000.00\n"),
            Some(Jiffies::new(4_298_634_025, 250))
        );
        for frequency in FREQUENCIES {
            for uptime in [10_u64, 290, 310, 1_000_000] {
                let now = JIFFIES + uptime * u64::from(frequency) - 300 * u64::from(frequency);
                let expected = Some(Jiffies::new(now, frequency));
                assert_eq!(parse(now, &format!("{uptime}.00 0.00")), expected);
            }
        }
        let near = parse(JIFFIES, "300.00 0.00").unwrap();
        assert_eq!((near.now, near.frequency), (JIFFIES, None));
        assert_eq!(parse(JIFFIES + 5000, "400.00 0.00"), None);
        assert_eq!(Jiffies::parse("", "400.00 0.00"), None);
        assert_eq!(parse(5_000_000_000, ""), None);
    }
}
