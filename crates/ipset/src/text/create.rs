//! Parser of `create`: types and options of sets.

use std::net::IpAddr;

use super::element::{address, address_range, ipv4_network, plain_ports};
use super::words::{Fault, Words, number};
use super::{FLAGS, MAX_TIMEOUT};
use crate::{Name, Range, Set, SetFamily, SetFlags, SetType};

/// Parses the words after the name of the set.
pub(super) fn create(name: Name, words: &mut Words<'_>) -> Result<Set, Fault> {
    let set_type = words.take("known type of a set", known_type)?;
    let mut set = Set::new(name, set_type, SetFamily::V4);
    let mut options = Options::default();
    while let Some(word) = words.option() {
        options.take(word, words, &mut set)?;
    }
    set.range = options.range()?;
    let needs_range = set.set_type.as_str().starts_with("bitmap:");
    match set.range.is_none() && needs_range {
        true => Err(Fault::new("option range", set.set_type.as_str())),
        false => Ok(set),
    }
}

/// Returns the type with this name or alias.
fn known_type(word: &str) -> Option<SetType> {
    let mut all = SetType::ALL.into_iter();
    all.find(|it| it.as_str() == word || it.alias() == Some(word))
}

/// Options that have been parsed so far.
#[derive(Default)]
struct Options<'a> {
    seen: Vec<&'a str>,
    range: Option<Range>,
    from: Option<(&'a str, RangeEnd)>,
    to: Option<(&'a str, RangeEnd)>,
}

/// An end of a range in the old syntax `from ADDRESS to ADDRESS`.
#[derive(Clone, Copy)]
enum RangeEnd {
    Addr(std::net::Ipv4Addr),
    Port(u16),
}

impl<'a> Options<'a> {
    /// Parses an option with its value.
    fn take(&mut self, word: &'a str, words: &mut Words<'a>, set: &mut Set) -> Result<(), Fault> {
        // These words set the same property.
        let key = match word {
            "-4" | "-6" => "family",
            "netmask" => "bitmask",
            "network" => "range",
            other => other,
        };
        if self.seen.contains(&key) {
            return Err(Fault::new("option that is not repeated", word));
        }
        if !is_option(&set.set_type, word) {
            return Err(Fault::new("option of the type", word));
        }
        self.seen.push(key);
        match word {
            "family" => set.family = words.take("family", family)?,
            "-4" => set.family = SetFamily::V4,
            "-6" => set.family = SetFamily::V6,
            "hashsize" => set.hashsize = Some(words.number()?),
            "maxelem" => set.maxelem = Some(words.number()?),
            "size" => set.size = Some(words.number()?),
            "timeout" => set.timeout = Some(words.take("number of seconds", timeout)?),
            "bucketsize" => set.bucketsize = Some(words.number()?),
            "initval" => set.initval = Some(words.number()?),
            "markmask" => set.markmask = Some(words.number()?),
            "netmask" => set.netmask = Some(words.number()?),
            "bitmask" => set.bitmask = Some(words.take("address", bitmask(set.family))?),
            "range" | "network" | "from" | "to" if is_bitmap(&set.set_type) => {
                self.take_range(word, words, &set.set_type)?;
            }
            // `ipset` ignores these options of old versions, too.
            "probes" | "resize" | "gc" | "from" | "to" | "network" => {
                words.take("value", |word| (!word.is_empty()).then_some(()))?;
            }
            word => set.flags |= flag(word)?,
        }
        Ok(())
    }

    /// Parses a range, or an end of a range.
    fn take_range(
        &mut self,
        word: &'a str,
        words: &mut Words<'a>,
        set_type: &SetType,
    ) -> Result<(), Fault> {
        let has_ports = *set_type == SetType::BitmapPort;
        let end = |word: &'a str| match has_ports {
            true => number(word).map(|port| (word, RangeEnd::Port(port))),
            false => match address(word)? {
                IpAddr::V4(ip) => Some((word, RangeEnd::Addr(ip))),
                IpAddr::V6(_) => None,
            },
        };
        let ports = |word: &str| {
            let span = plain_ports(word).filter(|_| word.contains('-'));
            span.map(|(from, to)| Range::Ports(from, to))
        };
        let addrs = |span: Option<_>| span.map(|(from, to)| Range::Addrs(from, to));
        match word {
            "from" => self.from = Some(words.take("start of a range", end)?),
            "to" => self.to = Some(words.take("end of a range", end)?),
            "network" => self.range = Some(words.take("network", |it| addrs(ipv4_network(it)))?),
            _ if has_ports => self.range = Some(words.take("range of ports", ports)?),
            _ => self.range = Some(words.take("range", |it| addrs(address_range(it)))?),
        }
        Ok(())
    }

    /// Returns the range, which one option or two give.
    fn range(&self) -> Result<Option<Range>, Fault> {
        match (self.from, self.to, self.range) {
            (None, None, range) => Ok(range),
            (Some((_, RangeEnd::Addr(from))), Some((_, RangeEnd::Addr(to))), None) => {
                Ok(Some(Range::Addrs(from, to)))
            }
            (Some((_, RangeEnd::Port(from))), Some((_, RangeEnd::Port(to))), None) => {
                Ok(Some(Range::Ports(from, to)))
            }
            (Some((word, _)), ..) | (_, Some((word, _)), _) => {
                Err(Fault::new("options from and to, or range", word))
            }
        }
    }
}

/// Returns whether sets of the type have the option.
fn is_option(set_type: &SetType, word: &str) -> bool {
    use SetType::{BitmapIp, HashIp, HashIpMark, HashIpPort, HashMac, HashNetNet};
    let has_ports_or_mark =
        set_type.as_str().starts_with("hash:ip,") && !matches!(set_type, SetType::HashIpMac);
    match word {
        "timeout" | "counters" | "comment" | "skbinfo" => true,
        "range" => is_bitmap(set_type),
        "from" | "to" => is_bitmap(set_type) || has_ports_or_mark,
        "network" => set_type.has_address_range() || has_ports_or_mark,
        "netmask" => matches!(set_type, BitmapIp | HashIp | HashIpPort | HashNetNet),
        "bitmask" => matches!(set_type, HashIp | HashIpPort | HashNetNet),
        "markmask" => *set_type == HashIpMark,
        "size" => *set_type == SetType::ListSet,
        "family" | "-4" | "-6" => set_type.is_hash() && *set_type != HashMac,
        "hashsize" | "maxelem" | "forceadd" | "bucketsize" | "initval" | "probes" | "resize"
        | "gc" => set_type.is_hash(),
        // Other words are refused as unknown flags.
        _ => true,
    }
}

fn is_bitmap(set_type: &SetType) -> bool {
    set_type.as_str().starts_with("bitmap:")
}

fn family(word: &str) -> Option<SetFamily> {
    match word {
        "inet" | "ipv4" | "-4" => Some(SetFamily::V4),
        "inet6" | "ipv6" | "-6" => Some(SetFamily::V6),
        "any" | "unspec" => Some(SetFamily::Unspecified),
        _ => None,
    }
}

fn flag(word: &str) -> Result<SetFlags, Fault> {
    let known = FLAGS.iter().find(|(_, name)| *name == word);
    known
        .map(|(flag, _)| *flag)
        .ok_or_else(|| Fault::new("option of a set", word))
}

/// Parses a timeout within the limit of the kernel.
pub(super) fn timeout(word: &str) -> Option<u32> {
    number(word).filter(|seconds| *seconds <= MAX_TIMEOUT)
}

/// Parses a mask of the family.
fn bitmask(family: SetFamily) -> impl Fn(&str) -> Option<IpAddr> {
    move |word| address(word).filter(|mask| mask.is_ipv6() == (family == SetFamily::V6))
}
