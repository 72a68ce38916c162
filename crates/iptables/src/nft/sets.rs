//! IP sets: rules contain the index of a set instead of its name.

use std::collections::HashMap;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32, put_u8};
use vipline_nftables::Bytes;

use super::structure::{Reader, Writer};
use crate::direction::{Direction, SetDirections};
use crate::matches::{CounterMatch, Set};
use crate::negatable::Negatable;

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

// Bits of `flags` in `struct xt_set_info`: enum ip_set_kopt. Bit `n` is set if
// dimension `n`, from 1, is a source.
const INVERT: u8 = 1;

// enum ipset_cmd_flags
const SKIP_COUNTER_UPDATE: u32 = 1 << 3;
const SKIP_SUBCOUNTER_UPDATE: u32 = 1 << 4;
const RETURN_NOMATCH: u32 = 1 << 7;

/// The names and indices of IP sets.
#[derive(Debug, Default)]
pub(super) struct SetIndexes {
    indexes: HashMap<Box<str>, u16>,
    names: HashMap<u16, Box<str>>,
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
            self.indexes.insert(name.into(), index);
            self.names.insert(index, name.into());
        }
        Ok(())
    }

    /// Returns the structure of a match. Returns `None` if the set does not exist.
    pub(super) fn encode(&self, set: &Set<'_>) -> Option<Structure> {
        let index = *self.indexes.get(&**set.name.value())?;
        let mut flags = u8::from(set.name.is_negated()) * INVERT;
        let mut dimension = 0;
        for direction in set.directions.iter() {
            dimension += 1;
            flags |= u8::from(direction == Direction::Source) << dimension;
        }
        let out = Writer::default().u16(index).u8(dimension).u8(flags);
        let out = counter(counter(out.zeros(4), set.packets), set.bytes);
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let flags = flag(set.return_nomatch, RETURN_NOMATCH)
            | flag(set.keep_counters, SKIP_COUNTER_UPDATE)
            | flag(set.keep_subcounters, SKIP_SUBCOUNTER_UPDATE);
        Some(("set", REVISION, out.u32(flags).finish()))
    }

    /// Returns the match of a structure. Returns `None` if the set is unknown, or if the
    /// structure is of another revision.
    pub(super) fn decode(&self, revision: u32, bytes: &[u8]) -> Option<Set<'static>> {
        if revision != REVISION {
            return None;
        }
        let mut reader = Reader::new(bytes);
        let (index, dimension, bits) = (reader.u16()?, reader.u8()?, reader.u8()?);
        reader.bytes(4)?;
        let (packets, bytes) = (read_counter(&mut reader)?, read_counter(&mut reader)?);
        let flags = reader.u32()?;
        let directions = (1..=dimension).map(|dimension| match bits >> dimension & 1 {
            0 => Direction::Destination,
            _ => Direction::Source,
        });
        let directions = SetDirections::new(directions.take(7))?;
        let name = String::from(self.names.get(&index)?.clone());
        let name = Negatable::new(bits & INVERT != 0, name.into());
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
    fn a_missing_set_has_no_encoding() {
        let set = Set::contains("services", Direction::Source);
        assert_eq!(sets().encode(&set), None);
    }
}
