//! Requests for the names and indices of IP sets: `NFNL_SUBSYS_IPSET`.
//!
//! A rule says `-m set --match-set pods src`, but the structure in the kernel has a number, the
//! index of the set, for example 7. The kernel assigns it, so it is read before a rule is encoded,
//! and again before the next commit: a set that was destroyed and created anew may have another
//! one. A rule with a set that does not exist has no encoding.

use std::sync::Arc;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, NLA_F_NET_BYTEORDER, put_be32, put_u8};

pub(super) use crate::extensions::set_indexes::SetIndexes;
use crate::matches::Match;
use crate::targets::Target;

// linux/netfilter/nfnetlink.h
const NFNL_SUBSYS_IPSET: u8 = 6;
// linux/netfilter.h
const NFPROTO_IPV4: u8 = 2;
// linux/netfilter/ipset/ip_set.h
/// Protocol version. Since version 7 replies contain indices. A reply to version 6 has none, and
/// its sets count as missing.
const IPSET_PROTOCOL: u8 = 7;
const IPSET_CMD_LIST: u8 = 7;
const IPSET_ATTR_PROTOCOL: u16 = 1;
const IPSET_ATTR_SETNAME: u16 = 2;
const IPSET_ATTR_FLAGS: u16 = 6;
const IPSET_ATTR_INDEX: u16 = 11;
const IPSET_FLAG_LIST_HEADER: u32 = 1 << 2;

/// Type of a request for sets.
pub(super) const LIST: u16 = u16::from_be_bytes([NFNL_SUBSYS_IPSET, IPSET_CMD_LIST]);

/// Length of `struct nfgenmsg`.
const HEADER: usize = 4;

/// Names and indices of IP sets: rules of a kernel contain the index of a set.
///
/// [`Client::set_names`](super::Client::set_names) reads them from a kernel.
#[derive(Clone, Debug, Default)]
pub struct SetNames(pub(crate) Arc<SetIndexes>);

impl SetNames {
    pub(crate) fn from_indexes(indexes: SetIndexes) -> Self {
        Self(Arc::new(indexes))
    }

    /// Gives a set that has no index an unused one, for rules that no kernel has.
    ///
    /// A set beyond the number of indices, 65,535, remains unknown.
    pub fn assign(&mut self, name: &str) {
        Arc::make_mut(&mut self.0).assign(name);
    }

    /// Returns indices and names, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &str)> {
        self.0.iter()
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
            match attr.kind {
                IPSET_ATTR_SETNAME => name = Some(attr.str()?),
                IPSET_ATTR_INDEX => index = Some(attr.be16()?),
                // Type, family, revision and counts, which rules do not contain.
                _ => {}
            }
        }
        if let (Some(name), Some(index)) = (name, index) {
            self.insert(index, name);
        }
        Ok(())
    }

    /// Returns the set of a match if it does not exist.
    pub(super) fn missing_in<'m>(&self, one: &'m Match<'_>) -> Option<&'m str> {
        let Match::Set(set) = one else { return None };
        self.missing(set.name.value())
    }

    /// Returns the first set of a target that does not exist.
    pub(super) fn missing_of<'t>(&self, target: &'t Target<'_>) -> Option<&'t str> {
        let Target::Set(target) = target else {
            return None;
        };
        let mut sets = [&target.add, &target.del, &target.map]
            .into_iter()
            .flatten();
        sets.find_map(|set| self.missing(&set.name))
    }

    fn missing<'n>(&self, name: &'n str) -> Option<&'n str> {
        self.index(name).is_none().then_some(name)
    }
}

/// Returns the payload of a request for the names and indices of all sets.
pub(super) fn request() -> Vec<u8> {
    // Sets of IPv6 are listed as well.
    let mut payload = vec![NFPROTO_IPV4, 0, 0, 0];
    put_u8(&mut payload, IPSET_ATTR_PROTOCOL, IPSET_PROTOCOL);
    // Without the flag the kernel lists all entries of all sets.
    put_be32(
        &mut payload,
        IPSET_ATTR_FLAGS | NLA_F_NET_BYTEORDER,
        IPSET_FLAG_LIST_HEADER,
    );
    payload
}

#[cfg(test)]
mod tests {
    use vipline_netlink::attr::{put_be16, put_str};

    use super::*;
    use crate::Family;
    use crate::extensions::structure::{Context, Encoded, decode, encode};
    use crate::matches::{CounterMatch, Set};
    use crate::options::direction::{Direction, SetDirections};
    use crate::targets::{self, SetReference};

    fn sets() -> SetIndexes {
        let mut payload = vec![2, 0, 0, 0];
        put_str(&mut payload, IPSET_ATTR_SETNAME, "pods");
        put_be16(&mut payload, IPSET_ATTR_INDEX | NLA_F_NET_BYTEORDER, 7);
        let mut sets = SetIndexes::default();
        sets.push(&payload).unwrap();
        sets
    }

    fn context(sets: &SetIndexes) -> Context<'_> {
        let family = Family::V4;
        Context { family, sets }
    }

    #[test]
    fn a_match_contains_the_index_of_its_set() {
        let sets = sets();
        let directions = SetDirections::new([Direction::Source, Direction::Destination]).unwrap();
        let mut set = Set::lacks("pods", directions);
        set.return_nomatch = true;
        set.packets = Some(CounterMatch::Less(5));
        let Encoded {
            name,
            revision,
            bytes,
        } = encode(&set, context(&sets)).unwrap();
        assert_eq!((name, revision, bytes.len()), ("set", 4, 48));
        assert_eq!(&bytes[..4], [7_u16.to_ne_bytes(), [2, 0b011]].concat());
        assert_eq!(decode(4, &bytes, context(&sets)), Some(set));
        assert_eq!(decode::<Set<'_>>(3, &bytes, context(&sets)), None);
        let none = SetIndexes::default();
        assert_eq!(decode::<Set<'_>>(4, &bytes, context(&none)), None);
    }

    #[test]
    fn a_target_contains_the_indices_of_its_sets() {
        let sets = sets();
        let mut set = targets::Set::add("pods", Direction::Source);
        set.exist = true;
        set.timeout = Some(5);
        set.map = Some(SetReference::new("pods", Direction::Destination));
        set.map_mark = true;
        let Encoded {
            name,
            revision,
            bytes,
        } = encode(&set, context(&sets)).unwrap();
        assert_eq!((name, revision, bytes.len()), ("SET", 3, 24));
        assert_eq!(&bytes[4..8], [0xff, 0xff, 0, 0]);
        assert_eq!(decode(3, &bytes, context(&sets)), Some(set));
        let set = targets::Set::del("services", Direction::Source);
        assert!(encode(&set, context(&sets)).is_none());
    }

    #[test]
    fn a_missing_set_has_no_encoding() {
        let sets = sets();
        let set = Set::contains("services", Direction::Source);
        assert!(encode(&set, context(&sets)).is_none());
        let one = Match::from(set);
        assert_eq!(sets.missing_in(&one), Some("services"));
    }
}
