//! Commands: edits in an order that the kernel accepts.

use std::collections::HashSet;
use std::fmt;

use vipline_netlink::message::{NLM_F_CREATE, NLM_F_EXCL};
use vipline_reconcile::Edit;

use crate::uapi::*;
use crate::wire::IndexedAddress;
use crate::{Address, AddressFlags, Link, Name, Object};

/// A change that is sent as one message.
///
/// Displays as a line of input of `ip -batch`, without a newline.
///
/// Exhaustive: links and addresses are added and removed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command {
    /// `link add`: creates a link, which must not exist.
    AddLink(Link),
    /// `link delete`: deletes a link and its addresses.
    RemoveLink(Name),
    /// `address add`: adds an address, which must not exist.
    AddAddress(Address),
    /// `address delete`: deletes an address.
    RemoveAddress(Address),
}

impl Command {
    /// Returns the name of the link.
    pub fn interface(&self) -> Name {
        match self {
            Self::AddLink(link) => link.name,
            Self::RemoveLink(name) => *name,
            Self::AddAddress(address) | Self::RemoveAddress(address) => address.interface,
        }
    }

    /// Returns whether [`encode`](Self::encode) needs the index of the link.
    pub fn needs_index(&self) -> bool {
        matches!(self, Self::AddAddress(_) | Self::RemoveAddress(_))
    }

    /// Returns the message type.
    pub fn ty(&self) -> u16 {
        match self {
            Self::AddLink(_) => RTM_NEWLINK,
            Self::RemoveLink(_) => RTM_DELLINK,
            Self::AddAddress(_) => RTM_NEWADDR,
            Self::RemoveAddress(_) => RTM_DELADDR,
        }
    }

    /// Returns the flags of the message in addition to `NLM_F_REQUEST` and `NLM_F_ACK`.
    pub fn flags(&self) -> u16 {
        match self {
            Self::AddLink(_) | Self::AddAddress(_) => NLM_F_CREATE | NLM_F_EXCL,
            Self::RemoveLink(_) | Self::RemoveAddress(_) => 0,
        }
    }

    /// Appends the payload of the message.
    ///
    /// `index` is the index of the link; commands of links ignore it.
    pub fn encode(&self, index: u32, out: &mut Vec<u8>) {
        match self {
            Self::AddLink(link) => link.encode(out),
            Self::RemoveLink(name) => Link::encode_name(name, out),
            Self::AddAddress(address) => IndexedAddress::new(address, index).encode(out),
            Self::RemoveAddress(address) => IndexedAddress::new(address, index).encode_place(out),
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

/// Commands in an order that the kernel accepts.
///
/// Displays as input of `ip -batch`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Commands {
    commands: Vec<Command>,
}

impl Commands {
    /// Returns the commands that apply the edits.
    ///
    /// The order is: create links, delete addresses, add addresses, delete links. Within
    /// each group, edits keep their order, except that secondary addresses are deleted
    /// before others, because the kernel may delete them together with the primary one.
    /// Addresses of a deleted link need no command.
    ///
    /// A link that changes its kind is deleted and created without its former addresses:
    /// the caller must dump and diff again.
    /// A changed address is deleted and added.
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

    /// Returns whether there are no commands.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns the commands.
    pub fn as_slice(&self) -> &[Command] {
        &self.commands
    }
}

/// Commands by the phases of a commit.
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

    /// Deletes an address, unless its link is deleted.
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
    fn links_are_created_before_their_addresses_and_deleted_after_them() {
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
