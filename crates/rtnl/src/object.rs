//! Keyed objects: links and addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use vipline_reconcile::Keyed;

use crate::{Address, Link, Name};

/// A link or an address.
///
/// Exhaustive: the objects of this crate are links and addresses.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Object {
    /// A link, without its addresses.
    Link(Link),
    /// An address on a link.
    Address(Address),
}

/// Identity of an object.
///
/// Exhaustive: the objects of this crate are links and addresses.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Key {
    /// Name of a link.
    Link(Name),
    /// Interface, address with prefix, and peer of an address.
    Address(Name, IpNet, Option<IpAddr>),
}

impl Object {
    /// Returns the name of the link.
    pub fn interface(&self) -> Name {
        match self {
            Self::Link(link) => link.name,
            Self::Address(address) => address.interface,
        }
    }
}

impl Keyed for Object {
    type Key<'a> = Key;

    fn key(&self) -> Key {
        match self {
            Self::Link(link) => Key::Link(link.name),
            Self::Address(address) => Key::Address(address.interface, address.net, address.peer),
        }
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Link(one), Self::Link(other)) => one.kind == other.kind,
            (Self::Address(one), Self::Address(other)) => one.is_like(other),
            _ => false,
        }
    }
}

impl From<Link> for Object {
    fn from(link: Link) -> Self {
        Self::Link(link)
    }
}

impl From<Address> for Object {
    fn from(address: Address) -> Self {
        Self::Address(address)
    }
}

/// Links and their addresses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Snapshot {
    links: BTreeMap<Name, Link>,
    addresses: BTreeMap<Name, BTreeMap<(IpNet, Option<IpAddr>), Address>>,
}

impl Snapshot {
    /// Inserts a link, replacing a link with the same name.
    pub fn insert_link(&mut self, link: Link) {
        self.links.insert(link.name, link);
    }

    /// Inserts an address, replacing an address with the same key.
    pub fn insert(&mut self, address: Address) {
        let on = self.addresses.entry(address.interface).or_default();
        on.insert((address.net, address.peer), address);
    }

    /// Returns a link by its name.
    pub fn link(&self, name: &Name) -> Option<&Link> {
        self.links.get(name)
    }

    /// Returns the links, sorted by name.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// Returns the addresses of all links, grouped by link.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.addresses.values().flat_map(BTreeMap::values)
    }

    /// Returns the addresses of the link with this name.
    pub fn of(&self, name: &Name) -> impl Iterator<Item = &Address> {
        let on = self.addresses.get(name);
        on.into_iter().flat_map(BTreeMap::values)
    }

    /// Returns all links, then all addresses.
    pub fn into_objects(self) -> impl Iterator<Item = Object> {
        let links = self.links.into_values().map(Object::Link);
        let addresses = self.addresses.into_values();
        links.chain(
            addresses
                .flat_map(BTreeMap::into_values)
                .map(Object::Address),
        )
    }
}

impl Extend<Object> for Snapshot {
    fn extend<I: IntoIterator<Item = Object>>(&mut self, objects: I) {
        for object in objects {
            match object {
                Object::Link(link) => self.insert_link(link),
                Object::Address(address) => self.insert(address),
            }
        }
    }
}

impl FromIterator<Object> for Snapshot {
    fn from_iter<I: IntoIterator<Item = Object>>(objects: I) -> Self {
        let mut all = Self::default();
        all.extend(objects);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, LinkFlags};

    #[test]
    fn links_of_another_kind_differ_and_links_with_another_index_or_state_do_not() {
        let wanted = Link::dummy(Name::new("a").unwrap());
        let mut dumped = wanted.clone();
        dumped.index = 7;
        dumped.flags |= LinkFlags::UP;
        assert!(Object::from(dumped.clone()).is_equivalent(&wanted.clone().into()));
        dumped.kind = Kind::from("bridge");
        assert!(!Object::from(dumped).is_equivalent(&wanted.into()));
    }
}
