//! Names and indices of IP sets: structures of the kernel contain the index of a set.

use std::collections::HashMap;
use std::sync::Arc;

use crate::direction::{Direction, SetDirections};
use crate::structure::{Reader, Writer};

/// Index of no set: `IPSET_INVALID_ID` of `linux/netfilter/ipset/ip_set.h`.
pub(crate) const IPSET_INVALID_ID: u16 = 65535;

/// The names and indices of IP sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetIndexes {
    indexes: HashMap<Box<str>, u16>,
    names: HashMap<u16, Box<str>>,
}

/// Names and indices of IP sets: rules of a kernel contain the index of a set.
///
/// `nft::Client::set_names` reads them from a kernel.
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
        let unused = |index: &u16| !self.names.contains_key(index);
        if let Some(index) = (0..IPSET_INVALID_ID).find(unused) {
            self.insert(index, name);
        }
    }

    /// Returns the index of a set, if it exists.
    pub(crate) fn index(&self, name: &str) -> Option<u16> {
        self.indexes.get(name).copied()
    }

    /// Returns the name of an index, if its set exists.
    pub(crate) fn name(&self, index: u16) -> Option<&str> {
        self.names.get(&index).map(|name| &**name)
    }
}

/// Bit of `flags` in `struct xt_set_info`: a set that does not contain the packet.
///
/// Bit `n` is set if dimension `n`, from 1, is a source: `enum ip_set_kopt`.
pub(crate) const IPSET_INV_MATCH: u8 = 1;

/// Writes `struct xt_set_info`. Returns `None` if the set does not exist.
pub(crate) fn write_info(
    name: &str,
    directions: SetDirections,
    mut flags: u8,
    out: &mut Writer<'_>,
) -> Option<()> {
    let index = out.sets().index(name)?;
    let mut dimension = 0;
    for direction in directions.iter() {
        dimension += 1;
        flags |= u8::from(direction == Direction::Source) << dimension;
    }
    out.u16(index).u8(dimension).u8(flags);
    Some(())
}

/// Reads `struct xt_set_info`: name, directions and flags. The inner value is `None` for no
/// set, and the outer one for an unknown set.
pub(crate) fn read_info(reader: &mut Reader<'_>) -> Option<Option<(String, SetDirections, u8)>> {
    let (index, dimension, flags) = (reader.u16()?, reader.u8()?, reader.u8()?);
    if index == IPSET_INVALID_ID {
        return Some(None);
    }
    let directions = (1..=dimension.min(7)).map(|dimension| match flags >> dimension & 1 {
        0 => Direction::Destination,
        _ => Direction::Source,
    });
    let directions = SetDirections::new(directions)?;
    let name = reader.sets().name(index)?.to_owned();
    Some(Some((name, directions, flags)))
}
