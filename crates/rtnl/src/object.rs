//! What the state of the kernel consists of, and the keys of it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use vipline_reconcile::Keyed;

use crate::{Address, Link, Name};

/// A link, or an address on one.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Object {
    /// A link, without its addresses.
    Link(Link),
    /// An address on a link.
    Address(Address),
}

/// What identifies an object.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Key {
    /// A link, by its name.
    Link(Name),
    /// An address, by its interface, itself with its prefix, and its peer.
    Address(Name, IpNet, Option<IpAddr>),
}

impl Object {
    /// Returns the name of the link that the object is or is on.
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

/// Links by their names, and the addresses on them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Addresses {
    links: BTreeMap<Name, Link>,
    addresses: BTreeMap<Name, BTreeMap<(IpNet, Option<IpAddr>), Address>>,
}

impl Addresses {
    /// Puts a link in, in the place of one of its name.
    pub fn insert_link(&mut self, link: Link) {
        self.links.insert(link.name, link);
    }

    /// Puts an address in, in the place of one of its key.
    pub fn insert(&mut self, address: Address) {
        let on = self.addresses.entry(address.interface).or_default();
        on.insert((address.net, address.peer), address);
    }

    /// Returns the link of this name.
    pub fn link(&self, name: &Name) -> Option<&Link> {
        self.links.get(name)
    }

    /// Returns the links in the order of their names.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// Returns the addresses on all links, those on one link in a row.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.addresses.values().flat_map(BTreeMap::values)
    }

    /// Returns the addresses on the link of this name.
    pub fn of(&self, name: &Name) -> impl Iterator<Item = &Address> {
        let on = self.addresses.get(name);
        on.into_iter().flat_map(BTreeMap::values)
    }

    /// Hands all links over, then all addresses.
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

impl Extend<Object> for Addresses {
    fn extend<I: IntoIterator<Item = Object>>(&mut self, objects: I) {
        for object in objects {
            match object {
                Object::Link(link) => self.insert_link(link),
                Object::Address(address) => self.insert(address),
            }
        }
    }
}

impl FromIterator<Object> for Addresses {
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
    fn what_a_link_is_makes_a_difference_and_its_number_and_state_do_not() {
        let wanted = Link::dummy(Name::new("a").unwrap());
        let mut told = wanted.clone();
        told.index = 7;
        told.flags |= LinkFlags::UP;
        assert!(Object::from(told.clone()).is_equivalent(&wanted.clone().into()));
        told.kind = Kind::from("bridge");
        assert!(!Object::from(told).is_equivalent(&wanted.into()));
    }
}
