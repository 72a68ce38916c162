//! Properties: encoding round-trips, the kernel accepts all commands, and decoding never
//! panics.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use proptest::collection::vec;
use proptest::prelude::*;
use vipline_netlink::attr::put_u32;
use vipline_reconcile::{Edit, Keyed, diff};
use vipline_rtnl::wire::Reply;
use vipline_rtnl::{
    Address, AddressFlags, Command, Commands, Key, Kind, Link, Name, Object, Scope, Snapshot,
};

/// All configurable flags with which the kernel accepts an address.
const CHOSEN: AddressFlags = AddressFlags::NO_DAD
    .union(AddressFlags::OPTIMISTIC)
    .union(AddressFlags::HOME_ADDRESS)
    .union(AddressFlags::MANAGE_TEMPORARY)
    .union(AddressFlags::NO_PREFIX_ROUTE)
    .union(AddressFlags::AUTO_JOIN);

fn name() -> impl Strategy<Value = Name> {
    // Few names, so keys collide often.
    (0..4_u8).prop_map(|number| Name::new(&format!("x{number}")).unwrap())
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just("dummy"),
        Just("bridge"),
        "[a-z]{1,20}".prop_map(|kind| &*kind.leak())
    ]
    .prop_map(Kind::from)
}

fn ip() -> impl Strategy<Value = IpAddr> {
    let few = (0..4_u8).prop_map(|last| IpAddr::from([10, 0, 0, last]));
    let v4 = any::<[u8; 4]>().prop_map(IpAddr::from);
    let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
    prop_oneof![few, v4, v6]
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![
        Just(Scope::Global),
        Just(Scope::Site),
        Just(Scope::Link),
        Just(Scope::Host),
        Just(Scope::Nowhere),
        (1..200_u8).prop_map(Scope::Other),
    ]
}

fn address() -> impl Strategy<Value = Address> {
    let flags = any::<u32>().prop_map(AddressFlags::from_bits_retain);
    (
        name(),
        ip(),
        0..=128_u8,
        any::<Option<u8>>(),
        scope(),
        flags,
    )
        .prop_map(|(interface, ip, prefix, peer, scope, flags)| {
            let longest = if ip.is_ipv4() { 32 } else { 128 };
            let peer = peer.map(|last| match ip {
                IpAddr::V4(_) => IpAddr::from([10, 200, 0, last]),
                IpAddr::V6(_) => IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, u16::from(last)]),
            });
            let net = IpNet::new(ip, prefix.min(longest)).unwrap();
            let mut address = Address::new(interface, net).with_scope(scope);
            address.peer = peer.filter(|peer| *peer != ip);
            address.flags = flags;
            address
        })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (name(), kind()).prop_map(|(name, kind)| Command::AddLink(Link::new(name, kind))),
        name().prop_map(Command::RemoveLink),
        address().prop_map(Command::AddAddress),
        address().prop_map(Command::RemoveAddress),
    ]
}

/// Generates links, each name with a fixed kind, and their addresses.
fn state() -> impl Strategy<Value = Snapshot> {
    (vec(name(), 0..4), vec(address(), 0..12)).prop_map(|(names, addresses)| {
        let links: BTreeSet<Name> = names.into_iter().collect();
        let mut state = Snapshot::default();
        for address in addresses {
            if links.contains(&address.interface) {
                state.insert(address);
            }
        }
        links
            .into_iter()
            .for_each(|name| state.insert_link(Link::dummy(name)));
        state
    })
}

/// A model of the links and addresses of the kernel.
type Model = BTreeMap<Key, Object>;

fn model(state: Snapshot) -> Model {
    let objects = state.into_objects();
    objects.map(|object| (object.key(), object)).collect()
}

/// Executes a command, and returns whether the kernel would accept the command.
fn execute(model: &mut Model, command: &Command) -> bool {
    let link = Key::Link(command.interface());
    match command {
        Command::AddLink(link) => {
            let link = Object::from(link.clone());
            model.insert(link.key(), link).is_none()
        }
        Command::RemoveLink(name) => {
            let is_there = model.contains_key(&link);
            model.retain(|_, object| object.interface() != *name);
            is_there
        }
        Command::AddAddress(address) => {
            let address = Object::from(*address);
            model.contains_key(&link) && model.insert(address.key(), address).is_none()
        }
        Command::RemoveAddress(address) => model.remove(&Object::from(*address).key()).is_some(),
    }
}

fn encoded(command: &Command, index: u32) -> Vec<u8> {
    let mut out = Vec::new();
    command.encode(index, &mut out);
    out
}

proptest! {
    #[test]
    fn an_address_round_trips(address in address(), index in any::<u32>()) {
        let command = Command::AddAddress(address);
        let bytes = encoded(&command, index);
        let Reply::Address(found) = Reply::decode(command.ty(), &bytes).unwrap() else {
            panic!("not an address");
        };
        prop_assert_eq!(found.index, index);
        let flags = address.flags & CHOSEN;
        let mut sent = address;
        sent.flags = flags;
        prop_assert_eq!(found.on(address.interface), sent);

        let command = Command::RemoveAddress(address);
        let bytes = encoded(&command, index);
        let Reply::Address(found) = Reply::decode(command.ty(), &bytes).unwrap() else {
            panic!("not an address");
        };
        let found = Object::from(found.on(address.interface));
        prop_assert_eq!(found.key(), Object::from(address).key());
    }

    #[test]
    fn a_link_round_trips(name in name(), kind in kind()) {
        let link = Link::new(name, kind);
        let command = Command::AddLink(link.clone());
        let answer = Reply::decode(command.ty(), &encoded(&command, 0)).unwrap();
        prop_assert_eq!(answer, Reply::Link(link));
    }

    #[test]
    fn a_state_equals_the_sum_of_its_objects(state in state()) {
        let objects: Vec<Object> = state.clone().into_objects().collect();
        prop_assert!(diff(state.clone().into_objects(), &objects).is_empty());
        let listed: usize = state.links().map(|link| state.of(&link.name).count()).sum();
        prop_assert_eq!(listed, state.addresses().count());
        prop_assert_eq!(listed + state.links().count(), objects.len());
        prop_assert_eq!(objects.into_iter().collect::<Snapshot>(), state);
    }

    #[test]
    fn the_commands_of_a_diff_are_accepted_and_result_in_the_desired_state(
        (from, to) in (state(), state()),
    ) {
        let wanted: Vec<Object> = to.clone().into_objects().collect();
        let commands = Commands::from_edits(&diff(from.clone().into_objects(), &wanted));
        let mut model = model(from);
        for command in commands.as_slice() {
            prop_assert!(execute(&mut model, command), "{command}");
        }
        let edits = diff(model.into_values(), &wanted);
        prop_assert!(edits.is_empty(), "{}", Commands::from_edits(&edits));
    }

    #[test]
    fn the_commands_of_edits_in_any_order_are_accepted(
        edits in state().prop_flat_map(|state| {
            let edits: Vec<_> = state.into_objects().map(Edit::Add).collect();
            Just(edits).prop_shuffle()
        }),
    ) {
        let mut model = Model::new();
        for command in Commands::from_edits(&edits).as_slice() {
            prop_assert!(execute(&mut model, command), "{command}");
        }
        let removed = edits.into_iter().map(|edit| Edit::Remove(edit.object().clone()));
        let removed: Vec<_> = removed.collect();
        for command in Commands::from_edits(&removed).as_slice() {
            prop_assert!(execute(&mut model, command), "{command}");
        }
        prop_assert!(model.is_empty());
    }

    #[test]
    fn a_command_displays_as_one_line(command in command()) {
        let line = command.to_string();
        prop_assert!(!line.contains('\n'));
        prop_assert!(line.split(' ').all(|word| !word.is_empty()), "{line}");
    }

    #[test]
    fn unknown_attributes_are_skipped(command in command(), kind in 100..200_u16) {
        let mut bytes = encoded(&command, 7);
        let expected = Reply::decode(command.ty(), &bytes);
        put_u32(&mut bytes, kind, 7);
        prop_assert_eq!(Reply::decode(command.ty(), &bytes), expected);
    }

    #[test]
    fn decoding_any_bytes_does_not_panic(
        ty in 16..24_u16,
        family in prop_oneof![Just(0_u8), Just(2), Just(10)],
        mut payload in vec(any::<u8>(), 0..200),
    ) {
        payload.insert(0, family);
        let _ = Reply::decode(ty, &payload);
    }

    #[test]
    fn decoding_a_truncated_or_changed_command_does_not_panic(
        command in command(),
        at in any::<prop::sample::Index>(),
        with in any::<u8>(),
    ) {
        let mut bytes = encoded(&command, 7);
        let at = at.index(bytes.len());
        let _ = Reply::decode(command.ty(), &bytes[..at]);
        bytes[at] = with;
        let _ = Reply::decode(command.ty(), &bytes);
    }
}
