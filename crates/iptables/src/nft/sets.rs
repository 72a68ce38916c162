//! IP sets: rules contain the index of a set instead of its name.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32, put_u8};
use vipline_nftables::Bytes;

use super::structure::{Reader, Writer};
use crate::direction::{Direction, SetDirections};
use crate::matches::{CounterMatch, Match, Set};
use crate::negatable::Negatable;
use crate::targets::{self, SetReference, Target};

/// Type of a `LIST` request: `NFNL_SUBSYS_IPSET` and `IPSET_CMD_LIST`.
pub(super) const LIST: u16 = 6 << 8 | 7;

/// Protocol version. Since version 7 replies contain indices.
const PROTOCOL: u8 = 7;

/// `NLA_F_NET_BYTEORDER`.
const NET: u16 = 0x4000;

// Attributes of linux/netfilter/ipset/ip_set.h.
const ATTR_PROTOCOL: u16 = 1;
const ATTR_SETNAME: u16 = 2;
const ATTR_FLAGS: u16 = 6;
const ATTR_INDEX: u16 = 11;

/// `IPSET_FLAG_LIST_HEADER`: sets without their entries.
const LIST_HEADER: u32 = 1 << 2;

/// Length of `struct nfgenmsg`.
const HEADER: usize = 4;

/// Name, revision and structure of a match.
type Structure = (&'static str, u32, Bytes);

/// Revision of match `set`.
const REVISION: u32 = 4;

/// Revision of target `SET`.
const TARGET_REVISION: u32 = 3;

/// Index of no set: `IPSET_INVALID_ID`.
const INVALID: u16 = 65535;

// Bits of `flags` in `struct xt_set_info`: enum ip_set_kopt. Bit `n` is set if
// dimension `n`, from 1, is a source.
const INVERT: u8 = 1;

// enum ipset_cmd_flags
const EXIST: u32 = 1;
const SKIP_COUNTER_UPDATE: u32 = 1 << 3;
const SKIP_SUBCOUNTER_UPDATE: u32 = 1 << 4;
const RETURN_NOMATCH: u32 = 1 << 7;
const MAP_MARK: u32 = 1 << 8;
const MAP_PRIO: u32 = 1 << 9;
const MAP_QUEUE: u32 = 1 << 10;

/// The names and indices of IP sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetIndexes {
    indexes: HashMap<Box<str>, u16>,
    names: HashMap<u16, Box<str>>,
}

/// Names and indices of IP sets: rules of a kernel contain the index of a set.
///
/// [`Client::set_names`](super::Client::set_names) reads them from a kernel.
#[derive(Clone, Debug, Default)]
pub struct SetNames(pub(crate) Arc<SetIndexes>);

impl SetNames {
    pub(crate) fn from_indexes(indexes: SetIndexes) -> Self {
        Self(Arc::new(indexes))
    }

    /// Returns indices and names, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &str)> {
        let names = self.0.names.iter();
        names.map(|(index, name)| (*index, &**name))
    }
}

impl FromIterator<(u16, String)> for SetNames {
    /// Collects indices and names.
    fn from_iter<T: IntoIterator<Item = (u16, String)>>(names: T) -> Self {
        let mut indexes = SetIndexes::default();
        for (index, name) in names {
            indexes.insert(index, &name);
        }
        Self::from_indexes(indexes)
    }
}

impl SetIndexes {
    /// Adds the set of a reply to [`request`].
    pub(super) fn push(&mut self, payload: &[u8]) -> Result<(), DecodeError> {
        let attrs = payload.get(HEADER..).unwrap_or_default();
        let (mut name, mut index) = (None, None);
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind & !NET {
                ATTR_SETNAME => name = Some(attr.str()?),
                ATTR_INDEX => index = Some(attr.be16()?),
                _ => {}
            }
        }
        if let (Some(name), Some(index)) = (name, index) {
            self.insert(index, name);
        }
        Ok(())
    }

    /// Adds a set.
    pub(crate) fn insert(&mut self, index: u16, name: &str) {
        self.indexes.insert(name.into(), index);
        self.names.insert(index, name.into());
    }

    /// Assigns an unused index to a set that has none. A set beyond the number of indices
    /// remains unknown.
    pub(crate) fn assign(&mut self, name: &str) {
        if self.indexes.contains_key(name) {
            return;
        }
        if let Some(index) = (0..INVALID).find(|index| !self.names.contains_key(index)) {
            self.insert(index, name);
        }
    }

    /// Returns the set of a match if it does not exist.
    pub(super) fn missing_in<'m>(&self, one: &'m Match<'_>) -> Option<&'m str> {
        let Match::Set(set) = one else { return None };
        self.missing(set.name.value())
    }

    /// Returns the first set of a target that does not exist.
    pub(super) fn missing_of<'t>(&self, target: &'t Target<'_>) -> Option<&'t str> {
        let Target::Set(it) = target else { return None };
        let mut sets = [&it.add, &it.del, &it.map].into_iter().flatten();
        sets.find_map(|set| self.missing(&set.name))
    }

    fn missing<'n>(&self, name: &'n str) -> Option<&'n str> {
        (!self.indexes.contains_key(name)).then_some(name)
    }

    /// Returns the structure of a match. Returns `None` if the set does not exist.
    pub(super) fn encode(&self, set: &Set<'_>) -> Option<Structure> {
        let invert = u8::from(set.name.is_negated()) * INVERT;
        let out = self.info(Writer::default(), set.name.value(), set.directions, invert)?;
        let out = counter(counter(out.zeros(4), set.packets), set.bytes);
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let flags = flag(set.return_nomatch, RETURN_NOMATCH)
            | flag(set.keep_counters, SKIP_COUNTER_UPDATE)
            | flag(set.keep_subcounters, SKIP_SUBCOUNTER_UPDATE);
        Some(("set", REVISION, out.u32(flags).finish()))
    }

    /// Appends `struct xt_set_info`.
    fn info(
        &self,
        out: Writer,
        name: &str,
        directions: SetDirections,
        mut flags: u8,
    ) -> Option<Writer> {
        let index = *self.indexes.get(name)?;
        let mut dimension = 0;
        for direction in directions.iter() {
            dimension += 1;
            flags |= u8::from(direction == Direction::Source) << dimension;
        }
        Some(out.u16(index).u8(dimension).u8(flags))
    }

    /// Reads `struct xt_set_info`. Returns the name, the directions and the flags.
    fn read_info(
        &self,
        reader: &mut Reader<'_>,
    ) -> Option<Option<(Cow<'static, str>, SetDirections, u8)>> {
        let (index, dimension, bits) = (reader.u16()?, reader.u8()?, reader.u8()?);
        if index == INVALID {
            return Some(None);
        }
        let directions = (1..=dimension.min(7)).map(|dimension| match bits >> dimension & 1 {
            0 => Direction::Destination,
            _ => Direction::Source,
        });
        let directions = SetDirections::new(directions)?;
        let name = String::from(self.names.get(&index)?.clone());
        Some(Some((name.into(), directions, bits)))
    }

    /// Returns the structure of a target. Returns `None` if a set does not exist.
    pub(super) fn encode_target(&self, it: &targets::Set<'_>) -> Option<Structure> {
        let mut out = Writer::default();
        for set in [&it.add, &it.del, &it.map] {
            out = match set {
                Some(set) => self.info(out, &set.name, set.directions, 0)?,
                None => out.u16(INVALID).zeros(2),
            };
        }
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let flags = flag(it.exist, EXIST)
            | flag(it.map_mark, MAP_MARK)
            | flag(it.map_prio, MAP_PRIO)
            | flag(it.map_queue, MAP_QUEUE);
        let out = out.u32(flags).u32(it.timeout.unwrap_or(u32::MAX));
        Some(("SET", TARGET_REVISION, out.finish()))
    }

    /// Returns the target of a structure. Returns `None` if a set is unknown, or if the
    /// structure is of another revision.
    pub(super) fn decode_target(
        &self,
        revision: u32,
        bytes: &[u8],
    ) -> Option<targets::Set<'static>> {
        if revision != TARGET_REVISION {
            return None;
        }
        let mut reader = Reader::new(bytes);
        let mut set = || {
            let info = self.read_info(&mut reader)?;
            Some(info.map(|(name, directions, _)| SetReference { name, directions }))
        };
        let (add, del, map) = (set()?, set()?, set()?);
        let (flags, timeout) = (reader.u32()?, reader.u32()?);
        Some(targets::Set {
            add,
            exist: flags & EXIST != 0,
            timeout: Some(timeout).filter(|timeout| *timeout != u32::MAX),
            del,
            map,
            map_mark: flags & MAP_MARK != 0,
            map_prio: flags & MAP_PRIO != 0,
            map_queue: flags & MAP_QUEUE != 0,
        })
    }

    /// Returns the match of a structure. Returns `None` if the set is unknown, or if the
    /// structure is of another revision.
    pub(super) fn decode(&self, revision: u32, bytes: &[u8]) -> Option<Set<'static>> {
        if revision != REVISION {
            return None;
        }
        let mut reader = Reader::new(bytes);
        let (name, directions, bits) = self.read_info(&mut reader)??;
        reader.bytes(4)?;
        let (packets, bytes) = (read_counter(&mut reader)?, read_counter(&mut reader)?);
        let flags = reader.u32()?;
        let name = Negatable::new(bits & INVERT != 0, name);
        Some(Set {
            name,
            directions,
            return_nomatch: flags & RETURN_NOMATCH != 0,
            keep_counters: flags & SKIP_COUNTER_UPDATE != 0,
            keep_subcounters: flags & SKIP_SUBCOUNTER_UPDATE != 0,
            packets,
            bytes,
        })
    }
}

/// Returns the payload of a request for the names and indices of all sets.
pub(super) fn request() -> Vec<u8> {
    let mut payload = vec![2, 0, 0, 0];
    put_u8(&mut payload, ATTR_PROTOCOL, PROTOCOL);
    put_be32(&mut payload, ATTR_FLAGS | NET, LIST_HEADER);
    payload
}

/// Appends `struct ip_set_counter_match`.
fn counter(out: Writer, condition: Option<CounterMatch>) -> Writer {
    let (op, value) = match condition {
        None => (0, 0),
        Some(CounterMatch::Equal(value)) => (1, value),
        Some(CounterMatch::NotEqual(value)) => (2, value),
        Some(CounterMatch::Less(value)) => (3, value),
        Some(CounterMatch::Greater(value)) => (4, value),
    };
    out.bytes(&value.to_ne_bytes()).u8(op).zeros(7)
}

fn read_counter(reader: &mut Reader<'_>) -> Option<Option<CounterMatch>> {
    let value = u64::from_ne_bytes(reader.array()?);
    let op = reader.u8()?;
    reader.bytes(7)?;
    Some(match op {
        0 => None,
        1 => Some(CounterMatch::Equal(value)),
        2 => Some(CounterMatch::NotEqual(value)),
        3 => Some(CounterMatch::Less(value)),
        4 => Some(CounterMatch::Greater(value)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use vipline_netlink::attr::{put_be16, put_str};

    use super::*;

    fn sets() -> SetIndexes {
        let mut payload = vec![2, 0, 0, 0];
        put_str(&mut payload, ATTR_SETNAME, "pods");
        put_be16(&mut payload, ATTR_INDEX | NET, 7);
        let mut sets = SetIndexes::default();
        sets.push(&payload).unwrap();
        sets
    }

    #[test]
    fn a_match_contains_the_index_of_its_set() {
        let directions = SetDirections::new([Direction::Source, Direction::Destination]).unwrap();
        let mut set = Set::lacks("pods", directions);
        set.return_nomatch = true;
        set.packets = Some(CounterMatch::Less(5));
        let (name, revision, bytes) = sets().encode(&set).unwrap();
        assert_eq!((name, revision, bytes.len()), ("set", 4, 48));
        assert_eq!(&bytes[..4], [7_u16.to_ne_bytes(), [2, 0b011]].concat());
        assert_eq!(sets().decode(4, &bytes), Some(set));
        assert_eq!(sets().decode(3, &bytes), None);
        assert_eq!(SetIndexes::default().decode(4, &bytes), None);
    }

    #[test]
    fn a_target_contains_the_indices_of_its_sets() {
        let mut set = targets::Set::add("pods", Direction::Source);
        set.exist = true;
        set.timeout = Some(5);
        set.map = Some(SetReference::new("pods", Direction::Destination));
        set.map_mark = true;
        let (name, revision, bytes) = sets().encode_target(&set).unwrap();
        assert_eq!((name, revision, bytes.len()), ("SET", 3, 24));
        assert_eq!(&bytes[4..8], [0xff, 0xff, 0, 0]);
        assert_eq!(sets().decode_target(3, &bytes), Some(set));
        let set = targets::Set::del("services", Direction::Source);
        assert_eq!(sets().encode_target(&set), None);
    }

    #[test]
    fn a_missing_set_has_no_encoding() {
        let set = Set::contains("services", Direction::Source);
        assert_eq!(sets().encode(&set), None);
    }
}
