//! Commands: edits in the order the kernel takes them.

use std::collections::HashSet;
use std::fmt;

use vipline_netlink::message::{CREATE, EXCL};
use vipline_reconcile::Edit;

use crate::wire::{self, Numbered};
use crate::{Address, AddressFlags, Link, Name, Object};

/// Something the kernel is told in one message.
///
/// Its text is a line that `ip -batch` reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command {
    /// `link add`: a link comes, and must not be there yet.
    AddLink(Link),
    /// `link delete`: a link goes, with its addresses.
    RemoveLink(Name),
    /// `address add`: an address comes, and must not be there yet.
    AddAddress(Address),
    /// `address delete`: an address goes.
    RemoveAddress(Address),
}

impl Command {
    /// Returns the name of the link that the command is about.
    pub fn interface(&self) -> Name {
        match self {
            Self::AddLink(link) => link.name,
            Self::RemoveLink(name) => *name,
            Self::AddAddress(address) | Self::RemoveAddress(address) => address.interface,
        }
    }

    /// Tells whether the message needs the number of the link.
    pub fn needs_index(&self) -> bool {
        matches!(self, Self::AddAddress(_) | Self::RemoveAddress(_))
    }

    /// Returns the type of the message.
    pub fn ty(&self) -> u16 {
        match self {
            Self::AddLink(_) => wire::NEW_LINK,
            Self::RemoveLink(_) => wire::DELETE_LINK,
            Self::AddAddress(_) => wire::NEW_ADDRESS,
            Self::RemoveAddress(_) => wire::DELETE_ADDRESS,
        }
    }

    /// Returns the flags of the message, without those of every request.
    pub fn flags(&self) -> u16 {
        match self {
            Self::AddLink(_) | Self::AddAddress(_) => CREATE | EXCL,
            Self::RemoveLink(_) | Self::RemoveAddress(_) => 0,
        }
    }

    /// Appends the payload of the message; a command about an address needs the
    /// number of its link.
    pub fn encode(&self, index: u32, out: &mut Vec<u8>) {
        match self {
            Self::AddLink(link) => link.encode(out),
            Self::RemoveLink(name) => Link::encode_name(name, out),
            Self::AddAddress(address) => Numbered::new(address, index).encode(out),
            Self::RemoveAddress(address) => Numbered::new(address, index).encode_place(out),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddLink(link) => write!(f, "link add {link}"),
            Self::RemoveLink(name) => write!(f, "link delete {name}"),
            Self::AddAddress(address) => write!(f, "address add {address}"),
            Self::RemoveAddress(address) => write!(f, "address delete {}", address.place()),
        }
    }
}

/// Commands in the order the kernel takes them, each on its own.
///
/// Its text is a script that `ip -batch` reads.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Commands {
    commands: Vec<Command>,
}

impl Commands {
    /// Returns the commands that make these edits.
    ///
    /// Links come first, then addresses go, then addresses come, then links go;
    /// within each of these, edits keep their order, but of the addresses that
    /// go, secondary ones are the first, as they may go with others.
    /// What is on a link that goes, goes with it.
    ///
    /// A link that changes its kind goes and comes again, without the addresses
    /// that were on it: dump and diff once more.
    /// An address that changes goes and comes, too.
    pub fn from_edits<'a, E>(edits: E) -> Self
    where
        E: IntoIterator<Item = &'a Edit<Object>, IntoIter: Clone>,
    {
        let edits = edits.into_iter();
        let gone: HashSet<Name> = edits
            .clone()
            .filter_map(|edit| match edit {
                Edit::Remove(Object::Link(link)) => Some(link.name),
                Edit::Change {
                    old: Object::Link(link),
                    ..
                } => Some(link.name),
                _ => None,
            })
            .collect();
        let mut phases = Phases::default();
        for edit in edits {
            match edit {
                Edit::Add(new) => phases.add(new),
                Edit::Remove(Object::Link(link)) => {
                    phases.lost_links.push(Command::RemoveLink(link.name));
                }
                Edit::Remove(Object::Address(address)) => phases.remove(address, &gone),
                Edit::Change { old, new } => {
                    match old {
                        Object::Link(link) => phases.links.push(Command::RemoveLink(link.name)),
                        Object::Address(address) => phases.remove(address, &gone),
                    }
                    phases.add(new);
                }
            }
        }
        phases.into_commands().collect()
    }

    /// Tells whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns the commands in their order.
    pub fn as_slice(&self) -> &[Command] {
        &self.commands
    }
}

/// Commands, sorted into the phases of a commit.
#[derive(Default)]
struct Phases {
    links: Vec<Command>,
    lost_secondaries: Vec<Command>,
    lost: Vec<Command>,
    addresses: Vec<Command>,
    lost_links: Vec<Command>,
}

impl Phases {
    fn add(&mut self, object: &Object) {
        match object {
            Object::Link(link) => self.links.push(Command::AddLink(link.clone())),
            Object::Address(address) => self.addresses.push(Command::AddAddress(*address)),
        }
    }

    /// Removes an address, unless it goes with its link.
    fn remove(&mut self, address: &Address, gone: &HashSet<Name>) {
        if gone.contains(&address.interface) {
            return;
        }
        let lost = match address.flags.contains(AddressFlags::SECONDARY) {
            true => &mut self.lost_secondaries,
            false => &mut self.lost,
        };
        lost.push(Command::RemoveAddress(*address));
    }

    fn into_commands(self) -> impl Iterator<Item = Command> {
        let phases = [
            self.links,
            self.lost_secondaries,
            self.lost,
            self.addresses,
            self.lost_links,
        ];
        phases.into_iter().flatten()
    }
}

impl FromIterator<Command> for Commands {
    fn from_iter<I: IntoIterator<Item = Command>>(commands: I) -> Self {
        Self {
            commands: commands.into_iter().collect(),
        }
    }
}

impl fmt::Display for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.commands
            .iter()
            .try_for_each(|command| writeln!(f, "{command}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str) -> Object {
        Link::dummy(Name::new(name).unwrap()).into()
    }

    fn address(interface: &str, net: &str, flags: AddressFlags) -> Object {
        let name = Name::new(interface).unwrap();
        let mut address = Address::new(name, net.parse().unwrap());
        address.flags |= flags;
        address.into()
    }

    #[test]
    fn links_come_before_their_addresses_and_go_after_them() {
        let none = AddressFlags::empty();
        let scoped = |scope| match address("b", "10.0.0.4/32", none) {
            Object::Address(address) => Address { scope, ..address }.into(),
            link => link,
        };
        let edits = [
            Edit::Remove(link("a")),
            Edit::Remove(address("a", "10.0.0.1/32", none)),
            Edit::Remove(address("b", "10.0.0.2/24", none)),
            Edit::Remove(address("b", "10.0.0.3/24", AddressFlags::SECONDARY)),
            Edit::Add(address("c", "10.0.0.1/32", none)),
            Edit::Change {
                old: scoped(crate::Scope::Global),
                new: scoped(crate::Scope::Link),
            },
            Edit::Add(link("c")),
        ];
        assert_eq!(
            Commands::from_edits(&edits).to_string(),
            "link add c type dummy\n\
             address delete 10.0.0.3/24 dev b\n\
             address delete 10.0.0.2/24 dev b\n\
             address delete 10.0.0.4/32 dev b\n\
             address add 10.0.0.1/32 dev c\n\
             address add 10.0.0.4/32 dev b scope link\n\
             link delete a\n"
        );
    }
}
