//! Variants and versions of iptables.

use std::fmt;

/// What the programs keep the rules in.
///
/// Each sees its own rules only, and packets pass those of both.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Variant {
    /// The kernel's ip_tables: a table is replaced as a whole, under a lock.
    Legacy,
    /// nf_tables: each table is changed by a transaction, without a lock.
    Nft,
}

impl Variant {
    /// Both variants.
    pub const ALL: [Self; 2] = [Self::Legacy, Self::Nft];

    /// Returns the part of a program's name that chooses the variant.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Nft => "nft",
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A version of iptables.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
    /// The third number, 0 if there is none.
    pub patch: u16,
}

impl Version {
    /// The first version whose `iptables-restore` tells its version and waits
    /// a number of seconds for the lock.
    pub const MINIMUM: Self = Self::new(1, 6, 2);

    /// Returns a version with these numbers.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// Tells whether `MASQUERADE` knows `--random-fully`.
    pub fn has_random_fully(self) -> bool {
        self >= Self::new(1, 6, 2)
    }

    /// Reads what a program answers to `--version`.
    ///
    /// Programs older than the second variant do not name theirs: it is
    /// legacy.
    ///
    /// ```
    /// use vipline_iptables::{Variant, Version};
    ///
    /// let answer = "iptables-restore v1.8.9 (nf_tables)\n";
    /// assert_eq!(Version::parse(answer), Some((Version::new(1, 8, 9), Variant::Nft)));
    /// ```
    pub fn parse(answer: &str) -> Option<(Self, Variant)> {
        let mut words = answer.lines().next()?.split_whitespace();
        let mut numbers = words
            .find_map(|word| word.strip_prefix('v').filter(|rest| starts_number(rest)))?
            .split('.');
        let mut next = || numbers.next().map(leading_number);
        let version = Self {
            major: next()??,
            minor: next()??,
            patch: next().flatten().unwrap_or(0),
        };
        let variant = match words.next() {
            Some("(nf_tables)") => Variant::Nft,
            _ => Variant::Legacy,
        };
        Some((version, variant))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

fn starts_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// Reads the digits that a word begins with, as of `9-rc1`.
fn leading_number(word: &str) -> Option<u16> {
    let end = word
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(word.len());
    word.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_every_generation_is_understood() {
        for (answer, version, variant) in [
            (
                "iptables v1.8.9 (nf_tables)\n",
                Version::new(1, 8, 9),
                Variant::Nft,
            ),
            (
                "ip6tables-restore v1.8.9 (legacy)\n",
                Version::new(1, 8, 9),
                Variant::Legacy,
            ),
            (
                "iptables-restore v1.6.2\n",
                Version::new(1, 6, 2),
                Variant::Legacy,
            ),
            ("iptables v1.4.7", Version::new(1, 4, 7), Variant::Legacy),
            (
                "iptables v1.10 (nf_tables)",
                Version::new(1, 10, 0),
                Variant::Nft,
            ),
            (
                "iptables v1.8.12-rc1 (nf_tables)",
                Version::new(1, 8, 12),
                Variant::Nft,
            ),
        ] {
            assert_eq!(
                Version::parse(answer),
                Some((version, variant)),
                "{answer:?}"
            );
        }
    }

    #[test]
    fn what_is_no_version_is_none() {
        for answer in [
            "",
            "\n",
            "iptables",
            "iptables v",
            "iptables v1",
            "iptables version 1.8.9",
            "iptables v99999.1",
        ] {
            assert_eq!(Version::parse(answer), None, "{answer:?}");
        }
    }

    #[test]
    fn versions_sort_by_their_numbers() {
        assert!(Version::new(1, 8, 10) > Version::new(1, 8, 9));
        assert!(!Version::new(1, 6, 1).has_random_fully());
        assert!(Version::MINIMUM.has_random_fully());
        assert_eq!(Version::new(1, 8, 9).to_string(), "1.8.9");
    }
}
