//! Record of the interfaces and addresses that this program added.
//!
//! The record consists of sets in the table of this program. An interface or address is
//! recorded before it is added, and forgotten after it was removed. An interface or
//! address that existed before is not recorded, so it is never removed.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vipline_nftables::{Comment, Datatype, Element, Object, Ruleset, Set, TableId, Value};
use vipline_rtnl::{Address, Command, Name};

use super::Options;
use super::rules::{name, table};

/// Names of the sets.
const INTERFACES: &str = "added-interfaces";
const IPV4_ADDRESSES: &str = "added-ipv4-addresses";
const IPV6_ADDRESSES: &str = "added-ipv6-addresses";

/// Length of an interface name in a key, in bytes.
const INTERFACE: usize = 16;

/// Interfaces and addresses that this program added.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Journal {
    /// Added interfaces.
    pub(super) interfaces: BTreeSet<Name>,
    /// Added addresses with their interfaces.
    pub(super) addresses: BTreeSet<(Name, IpAddr)>,
}

impl Journal {
    /// Reads the record from a dump. Skips keys that this program does not write.
    pub(super) fn read(installed: &Ruleset) -> Self {
        let id = table();
        let elements = |text| {
            let set = installed.set(&id, text);
            set.map_or(&[][..], |(_, elements)| elements)
        };
        let addresses = [IPV4_ADDRESSES, IPV6_ADDRESSES].map(elements);
        Self {
            interfaces: elements(INTERFACES).iter().filter_map(interface).collect(),
            addresses: addresses.concat().iter().filter_map(address).collect(),
        }
    }

    /// Records the additions of commands.
    pub(super) fn record(&mut self, commands: &[Command]) {
        for command in commands {
            match command {
                Command::AddLink(link) => drop(self.interfaces.insert(link.name)),
                Command::AddAddress(address) => drop(self.addresses.insert(key(address))),
                _ => {}
            }
        }
    }

    /// Forgets the addition of a command.
    pub(super) fn forget(&mut self, command: &Command) {
        match command {
            Command::AddLink(link) => drop(self.interfaces.remove(&link.name)),
            Command::AddAddress(address) => drop(self.addresses.remove(&key(address))),
            _ => {}
        }
    }

    /// Forgets the entries of another record.
    pub(super) fn remove(&mut self, other: &Self) {
        self.interfaces.retain(|it| !other.interfaces.contains(it));
        self.addresses.retain(|it| !other.addresses.contains(it));
    }

    /// Returns the entries that options do not include.
    pub(super) fn without(&self, options: &Options) -> Self {
        let mut unused = self.clone();
        unused.interfaces.remove(&options.interface);
        unused.addresses.retain(|(interface, address)| {
            *interface != options.interface || !options.addresses.contains(address)
        });
        unused
    }

    /// Returns the sets and their elements.
    pub(super) fn objects(&self) -> Vec<Object> {
        let sets = Sets::new(table());
        let interfaces = self.interfaces.iter().filter_map(|interface| {
            let element = sets.interfaces.element(&[text(interface)]);
            element.ok()
        });
        let addresses = self.addresses.iter().filter_map(|(interface, address)| {
            let set = match address {
                IpAddr::V4(_) => &sets.ipv4_addresses,
                IpAddr::V6(_) => &sets.ipv6_addresses,
            };
            set.element(&[text(interface), (*address).into()]).ok()
        });
        let elements = interfaces.chain(addresses).map(Object::from);
        let elements: Vec<_> = elements.collect();
        let sets = [sets.interfaces, sets.ipv4_addresses, sets.ipv6_addresses];
        sets.into_iter().map(Object::from).chain(elements).collect()
    }
}

/// Returns the key of an address.
fn key(address: &Address) -> (Name, IpAddr) {
    (address.interface, address.ip())
}

/// The sets of the record.
struct Sets {
    interfaces: Set,
    ipv4_addresses: Set,
    ipv6_addresses: Set,
}

impl Sets {
    fn new(table: TableId) -> Self {
        let set = |text, key: &[Datatype], words| {
            let comment = Comment::new(words).expect("a valid comment");
            Set::new(table.clone(), name(text), key).with_comment(comment)
        };
        let addresses = "addresses that cluster-dns added";
        Self {
            interfaces: set(
                INTERFACES,
                &[Datatype::Ifname],
                "interfaces that cluster-dns added",
            ),
            ipv4_addresses: set(
                IPV4_ADDRESSES,
                &[Datatype::Ifname, Datatype::Ipv4Addr],
                addresses,
            ),
            ipv6_addresses: set(
                IPV6_ADDRESSES,
                &[Datatype::Ifname, Datatype::Ipv6Addr],
                addresses,
            ),
        }
    }
}

/// Returns the value of an interface name.
fn text(interface: &Name) -> Value {
    Value::Text(interface.as_bytes().into())
}

/// Returns the interface of an element.
fn interface(element: &Element) -> Option<Name> {
    let (name, rest) = element.key_bytes().split_at_checked(INTERFACE)?;
    rest.is_empty().then(|| decode(name)).flatten()
}

/// Returns interface and address of an element.
fn address(element: &Element) -> Option<(Name, IpAddr)> {
    let (name, address) = element.key_bytes().split_at_checked(INTERFACE)?;
    let address = match address.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(address).ok()?).into(),
        16 => Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?).into(),
        _ => return None,
    };
    Some((decode(name)?, address))
}

/// Decodes an interface name that NUL bytes pad.
fn decode(padded: &[u8]) -> Option<Name> {
    let end = padded.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(padded.get(..end)?).ok()?;
    Name::new(text).ok()
}

#[cfg(test)]
mod tests {
    use vipline_rtnl::Link;

    use super::*;

    fn interface(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn journal(interfaces: &[&str], addresses: &[(&str, &str)]) -> Journal {
        let addresses = addresses.iter();
        Journal {
            interfaces: interfaces.iter().map(|text| interface(text)).collect(),
            addresses: addresses
                .map(|(name, address)| (interface(name), address.parse().unwrap()))
                .collect(),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let written = journal(
            &["nodelocaldns", "fifteen-letters"],
            &[
                ("nodelocaldns", "169.254.20.10"),
                ("lo", "169.254.20.10"),
                ("lo", "fd00::10"),
            ],
        );
        for journal in [written, Journal::default()] {
            let ruleset: Ruleset = journal.objects().into_iter().collect();
            assert_eq!(Journal::read(&ruleset), journal);
        }
    }

    #[test]
    fn entries_of_other_options_are_unused() {
        let addresses = vec!["169.254.20.10".parse().unwrap()];
        let options = Options::new(addresses, 53, interface("lo")).unwrap();
        let mut all = journal(
            &["lo", "nodelocaldns"],
            &[
                ("lo", "169.254.20.10"),
                ("lo", "fd00::10"),
                ("eth0", "169.254.20.10"),
            ],
        );
        let unused = journal(
            &["nodelocaldns"],
            &[("lo", "fd00::10"), ("eth0", "169.254.20.10")],
        );
        assert_eq!(all.without(&options), unused);
        all.remove(&unused);
        assert_eq!(all, journal(&["lo"], &[("lo", "169.254.20.10")]));
    }

    #[test]
    fn only_additions_are_recorded_and_forgotten() {
        let address = Address::new(interface("lo"), "fd00::10/128".parse().unwrap());
        let link = Link::dummy(interface("nodelocaldns"));
        let mut found = Journal::default();
        found.record(&[
            Command::AddLink(link.clone()),
            Command::AddAddress(address),
            Command::RemoveLink(interface("eth0")),
        ]);
        assert_eq!(found, journal(&["nodelocaldns"], &[("lo", "fd00::10")]));
        found.forget(&Command::RemoveLink(link.name));
        found.forget(&Command::AddAddress(address));
        assert_eq!(found, journal(&["nodelocaldns"], &[]));
    }
}
