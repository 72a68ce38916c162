//! Names, variants and versions of the iptables programs.

use std::fmt;

use vipline_inet::Family;

/// Returns the name prefix of the programs for a family: `iptables` or `ip6tables`.
///
/// ```
/// use vipline_iptables::{Family, program_name};
///
/// assert_eq!(program_name(Family::V6), "ip6tables");
/// ```
pub const fn program_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}

/// The variant of the programs: the kernel subsystem that holds the rules.
///
/// Each variant lists only its own rules. Packets traverse the rules of both.
///
/// Exhaustive: iptables has two variants.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Variant {
    /// ip_tables: a table is replaced as a whole, under the xtables lock.
    Legacy,
    /// nf_tables: each table is changed by a transaction, without a lock.
    Nft,
}

impl Variant {
    /// Both variants.
    pub const ALL: [Self; 2] = [Self::Legacy, Self::Nft];

    /// Returns the variant in program names: `legacy` or `nft`.
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
///
/// Exhaustive: a version has three numbers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// Patch version; 0 if absent.
    pub patch: u16,
}

impl Version {
    /// The first version whose `iptables-restore` supports `--version` and `-w` with
    /// seconds.
    pub const MINIMUM: Self = Self::new(1, 6, 2);

    /// Creates a version.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// Returns whether `MASQUERADE` supports `--random-fully`.
    pub fn has_random_fully(self) -> bool {
        self >= Self::new(1, 6, 2)
    }

    /// Parses the output of `--version`.
    ///
    /// Programs older than the nft variant do not print a variant: they are legacy.
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

/// Parses the leading digits of a word, such as `9-rc1`.
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
    fn version_output_of_every_generation_is_parsed() {
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
    fn other_output_is_no_version() {
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
    fn versions_sort_numerically() {
        assert!(Version::new(1, 8, 10) > Version::new(1, 8, 9));
        assert!(!Version::new(1, 6, 1).has_random_fully());
        assert!(Version::MINIMUM.has_random_fully());
        assert_eq!(Version::new(1, 8, 9).to_string(), "1.8.9");
    }
}
