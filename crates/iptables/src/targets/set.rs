//! `-j SET`: IP set entries.

use std::borrow::Cow;
use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::direction::SetDirections;
use crate::options::number;
use crate::options::quote::Bare;
use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};

/// Adds and deletes IP set entries: `-j SET --add-set seen src`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Set<'a> {
    /// Set to which an entry is added.
    pub add: Option<SetReference<'a>>,
    /// Whether the timeout of an existing entry is reset.
    pub exist: bool,
    /// Timeout of the entry in seconds. Default: the timeout of the set.
    pub timeout: Option<u32>,
    /// Set from which an entry is deleted.
    pub del: Option<SetReference<'a>>,
    /// Set whose matching entry has the skbinfo (mark, priority, queue) of the packet.
    pub map: Option<SetReference<'a>>,
    /// Whether the mark is set from skbinfo.
    pub map_mark: bool,
    /// Whether the priority is set from skbinfo.
    pub map_prio: bool,
    /// Whether the queue is set from skbinfo.
    pub map_queue: bool,
}

/// A set name and the packet fields that form an element.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SetReference<'a> {
    /// Name of the set.
    pub name: Cow<'a, str>,
    /// Packet fields, one per dimension of the set.
    pub directions: SetDirections,
}

impl<'a> SetReference<'a> {
    /// Creates a set reference.
    pub fn new(name: impl Into<Cow<'a, str>>, directions: impl Into<SetDirections>) -> Self {
        Self {
            name: name.into(),
            directions: directions.into(),
        }
    }
}

impl<'a> Set<'a> {
    /// Adds an entry to the set.
    pub fn add(name: impl Into<Cow<'a, str>>, directions: impl Into<SetDirections>) -> Self {
        Self {
            add: Some(SetReference::new(name, directions)),
            ..Self::default()
        }
    }

    /// Deletes an entry from the set.
    pub fn del(name: impl Into<Cow<'a, str>>, directions: impl Into<SetDirections>) -> Self {
        Self {
            del: Some(SetReference::new(name, directions)),
            ..Self::default()
        }
    }
}

fn set<'a>(place: &mut Option<SetReference<'a>>, values: &mut Values<'_, 'a>) -> Parsed {
    let name = values.bare()?;
    let directions = values.parse(SetDirections::parse)?;
    set_once(place, SetReference { name, directions })
}

impl<'a> Extension<'a> for Set<'a> {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--add-set",
            "--del-set",
            "--map-set",
            "--map-mark",
            "--map-prio",
            "--map-queue",
            "--timeout",
            "--exist",
        ]
    }

    fn min_options(&self) -> usize {
        let added = self.add.is_some() || !self.exist && self.timeout.is_none();
        let maps = self.map_mark || self.map_prio || self.map_queue;
        if added && self.map.is_some() == maps {
            1
        } else {
            usize::MAX
        }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--add-set" => set(&mut self.add, values),
            "--exist" => set_flag(&mut self.exist),
            // The kernel uses this value for no timeout.
            "--timeout" => match values.parse(number::parse_as)? {
                u32::MAX => Err(Unsupported),
                timeout => set_once(&mut self.timeout, timeout),
            },
            "--del-set" => set(&mut self.del, values),
            "--map-set" => set(&mut self.map, values),
            "--map-mark" => set_flag(&mut self.map_mark),
            "--map-prio" => set_flag(&mut self.map_prio),
            "--map-queue" => set_flag(&mut self.map_queue),
            _ => Ok(false),
        }
    }
}

impl fmt::Display for SetReference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Bare(&self.name), self.directions)
    }
}

impl fmt::Display for Set<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-j SET")?;
        if let Some(set) = &self.add {
            write!(f, " --add-set {set}")?;
        }
        if self.exist {
            f.write_str(" --exist")?;
        }
        if let Some(timeout) = self.timeout {
            write!(f, " --timeout {timeout}")?;
        }
        if let Some(set) = &self.del {
            write!(f, " --del-set {set}")?;
        }
        if let Some(set) = &self.map {
            write!(f, " --map-set {set}")?;
        }
        let flags = [
            (self.map_mark, " --map-mark"),
            (self.map_prio, " --map-prio"),
            (self.map_queue, " --map-queue"),
        ];
        for (_, option) in flags.iter().filter(|(set, _)| *set) {
            f.write_str(option)?;
        }
        Ok(())
    }
}

// enum ipset_cmd_flags
const IPSET_FLAG_EXIST: u32 = 1 << 0;
const IPSET_FLAG_MAP_SKBMARK: u32 = 1 << 8;
const IPSET_FLAG_MAP_SKBPRIO: u32 = 1 << 9;
const IPSET_FLAG_MAP_SKBQUEUE: u32 = 1 << 10;

/// `struct xt_set_info_target_v3`. A set that does not exist has no index.
impl Structure for Set<'_> {
    const NAME: &'static str = "SET";
    const REVISION: u32 = 3;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        for set in [&self.add, &self.del, &self.map] {
            match set {
                Some(set) => out.set(&set.name, set.directions, 0)?,
                None => out.no_set(),
            };
        }
        out.u32(flags([
            (self.exist, IPSET_FLAG_EXIST),
            (self.map_mark, IPSET_FLAG_MAP_SKBMARK),
            (self.map_prio, IPSET_FLAG_MAP_SKBPRIO),
            (self.map_queue, IPSET_FLAG_MAP_SKBQUEUE),
        ]));
        out.u32(self.timeout.unwrap_or(u32::MAX));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut set = || {
            let info = reader.set()?;
            Some(info.map(|(name, directions, _)| SetReference {
                name: name.into(),
                directions,
            }))
        };
        let (add, del, map) = (set()?, set()?, set()?);
        let (flags, timeout) = (reader.u32()?, reader.u32()?);
        Some(Self {
            add,
            exist: flags & IPSET_FLAG_EXIST != 0,
            timeout: Some(timeout).filter(|timeout| *timeout != u32::MAX),
            del,
            map,
            map_mark: flags & IPSET_FLAG_MAP_SKBMARK != 0,
            map_prio: flags & IPSET_FLAG_MAP_SKBPRIO != 0,
            map_queue: flags & IPSET_FLAG_MAP_SKBQUEUE != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, Rule};

    #[test]
    fn set_target_is_parsed_and_printed() {
        let all = Set {
            exist: true,
            timeout: Some(5),
            del: Some(SetReference::new("b", Direction::Destination)),
            map: Some(SetReference::new("c", Direction::Source)),
            map_mark: true,
            map_prio: true,
            map_queue: true,
            ..Set::add("a", Direction::Source)
        };
        let table = [
            ("-j SET --add-set a src", Set::add("a", Direction::Source)),
            (
                "-j SET --del-set a dst",
                Set::del("a", Direction::Destination),
            ),
            (
                "-j SET --add-set a src --exist --timeout 5 --del-set b dst --map-set c src --map-mark --map-prio --map-queue",
                all,
            ),
        ];
        for (text, set) in table {
            let rule = Rule::new().with_target(set);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
        for text in ["-j SET", "-j SET --exist", "-j SET --map-set c src"] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
        }
    }
}
