//! Tests of commits.

use std::cell::RefCell;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use testkit::link::set_sysctl;
use vipline_reconcile::{Edit, diff};
use vipline_rtnl::{Address, AddressFlags, Command, Commands, Kind, Link, Name, Object, Scope};

use crate::lab::{Lab, address, name};

fn bridge(text: &str) -> Object {
    Link::new(name(text), "bridge".into()).into()
}

/// Returns addresses with all configurable properties.
fn forms() -> Vec<Address> {
    let mut forms: Vec<Address> = [
        "10.0.0.1/32",
        "10.0.1.1/24",
        "10.0.1.2/24",
        "127.1.0.1/32",
        "169.254.20.10/32",
        "fd00::1/128",
        "fd00:1::1/64",
        "fe80::7/64",
        "fec0::1/64",
        "2001:db8::1/128",
    ]
    .map(|net| address("b0", net))
    .to_vec();
    let with = |net: &str, change: &dyn Fn(&mut Address)| {
        let mut address = address("b0", net);
        change(&mut address);
        address
    };
    for scope in [Scope::Link, Scope::Host, Scope::Site, Scope::Other(77)] {
        let net = format!("10.1.0.{}/32", forms.len());
        forms.push(with(&net, &|address| address.scope = scope));
    }
    for (net, peer) in [("10.2.0.1/30", "10.3.0.2"), ("fd02::1/128", "fd03::2")] {
        forms.push(with(net, &|address| {
            address.peer = Some(peer.parse().unwrap());
        }));
    }
    forms.push(with("10.4.0.1/24", &|address| {
        address.flags = AddressFlags::NO_PREFIX_ROUTE;
    }));
    forms.push(with("fd04::1/64", &|address| {
        address.flags |= AddressFlags::NO_PREFIX_ROUTE;
    }));
    forms.push(with("fd05::1/64", &|address| {
        address.flags |= AddressFlags::HOME_ADDRESS | AddressFlags::MANAGE_TEMPORARY;
    }));
    forms
}

#[test]
fn committed_addresses_are_dumped_and_equal_those_that_ip_adds_from_the_text() {
    let mut ours = Lab::new();
    let mut objects = vec![bridge("b0")];
    objects.extend(forms().into_iter().map(Object::from));
    ours.add(objects.clone());
    ours.assert_judged();
    let names = [name("b0")];
    let dump = ours.dump_links(&names);
    let edits = diff(dump.clone().into_objects(), &objects);
    assert!(edits.is_empty(), "{}", Commands::from_edits(&edits));

    let mut theirs = Lab::new();
    let added: Vec<_> = objects.iter().cloned().map(Edit::Add).collect();
    theirs.batch(&Commands::from_edits(&added).to_string());
    let mut made = theirs.dump_links(&names);
    assert_eq!(
        made.addresses().collect::<Vec<_>>(),
        dump.addresses().collect::<Vec<_>>()
    );
    let edits = diff(made.into_objects(), &objects);
    assert!(edits.is_empty(), "{}", Commands::from_edits(&edits));

    // All addresses are deleted one by one, by the client and by `ip`.
    let edits = diff(dump.into_objects(), &[bridge("b0")]);
    let removed = Commands::from_edits(&edits);
    assert_eq!(removed.as_slice().len(), forms().len());
    ours.client.commit(&removed).unwrap();
    theirs.batch(&removed.to_string());
    for lab in [&mut ours, &mut theirs] {
        made = lab.dump_links(&names);
        assert_eq!(made.addresses().next(), None);
        lab.commit(&[Edit::Remove(bridge("b0"))]).unwrap();
        assert_eq!(lab.client.link(&name("b0")).unwrap(), None);
        lab.assert_judged();
    }
}

#[test]
fn an_ipv6_address_is_usable_at_once() {
    let mut lab = Lab::new();
    lab.batch(
        "link add v0 type veth peer name v1\n\
         link set v0 up\n\
         link set v1 up\n",
    );
    let address = address("v0", "fd00::1/128");
    lab.add([address.into()]);
    let dump = lab.dump_links(&[name("v0")]);
    let found = dump.of(&name("v0")).find(|one| one.net == address.net);
    let flags = found.unwrap().flags;
    assert_eq!(flags, AddressFlags::NO_DAD | AddressFlags::PERMANENT);
}

/// Commits edits, and returns the numbers of datagrams and bytes sent.
#[track_caller]
fn counted(lab: &mut Lab, edits: &[Edit<Object>]) -> (u64, u64) {
    let before = lab.client.counters();
    lab.commit(edits).unwrap();
    let after = lab.client.counters();
    let bytes = after.bytes_sent - before.bytes_sent;
    (after.sends - before.sends, bytes)
}

/// Returns the length of a request for a link by name: headers, name and mask.
fn question(name: &Name) -> u64 {
    let name = (4 + name.as_bytes().len() + 1).next_multiple_of(4);
    u64::try_from(16 + 16 + name + 8).unwrap()
}

/// Lengths of the messages of an IPv4 and an IPv6 address: headers and two addresses.
const V4: u64 = 16 + 8 + 2 * 8;
const V6: u64 = 16 + 8 + 2 * 20;

#[test]
fn ten_thousand_addresses_take_eighty_datagrams_and_one_message_each() {
    let mut lab = Lab::new();
    lab.add([bridge("b0")]);
    let all: Vec<Object> = (0..10_000_u16)
        .map(|host| {
            let [high, low] = host.to_be_bytes();
            address("b0", &format!("10.9.{high}.{low}/32")).into()
        })
        .collect();
    for wanted in [&all[..], &[]] {
        let installed = lab.dump_links(&[name("b0")]);
        let link = bridge("b0");
        let edits = diff(
            installed.into_objects(),
            std::iter::once(&link).chain(wanted),
        );
        assert_eq!(edits.len(), 10_000);
        let (sends, bytes) = counted(&mut lab, &edits);
        assert_eq!(
            sends,
            1 + 10_000_u64.div_ceil(128),
            "one question, 79 sends"
        );
        assert_eq!(bytes, question(&name("b0")) + 10_000 * V4);
        let dump = lab.dump_links(&[name("b0")]);
        assert_eq!(dump.addresses().count(), wanted.len());
    }
}

#[test]
fn one_address_takes_one_message_and_no_dump() {
    let mut lab = Lab::new();
    let link = name("kube-ipvs0");
    lab.add([bridge("kube-ipvs0")]);
    for (net, bytes) in [("10.96.0.1/32", V4), ("fd00:96::1/128", V6)] {
        let object = Object::from(address("kube-ipvs0", net));
        for edit in [Edit::Add(object.clone()), Edit::Remove(object)] {
            let before = lab.client.counters();
            let counted = counted(&mut lab, &[edit]);
            assert_eq!(counted, (2, question(&link) + bytes));
            // The link and two acknowledgments.
            assert_eq!(lab.client.counters().receives - before.receives, 3);
        }
    }
}

#[test]
fn links_are_created_and_deleted_with_their_addresses() {
    let mut lab = Lab::new();
    let names = ["b0", "b1"].map(name);
    lab.add([
        address("b1", "10.0.0.1/32").into(),
        address("b0", "fd00::1/128").into(),
        bridge("b0"),
        bridge("b1"),
        address("b0", "10.0.0.1/32").into(),
        address("lo", "10.0.0.2/32").into(),
    ]);
    lab.assert_judged();
    assert_eq!(lab.dump_links(&names).into_objects().count(), 5);

    // Two links and an address are deleted, a link is created: four commands.
    let wanted: Vec<Object> = vec![bridge("b2"), address("b2", "10.0.0.1/32").into()];
    let edits = diff(lab.dump_links(&names).into_objects(), &wanted);
    let commands = Commands::from_edits(&edits);
    assert_eq!(
        commands.to_string(),
        "link add b2 type bridge\n\
         address add 10.0.0.1/32 dev b2\n\
         link delete b0\n\
         link delete b1\n"
    );
    lab.client.commit(&commands).unwrap();
    lab.assert_judged();
    let found: Vec<Name> = lab
        .client
        .dump()
        .unwrap()
        .links()
        .map(|link| link.name)
        .collect();
    assert_eq!(found, ["b2", "lo"].map(name));
    lab.reach(&[name("b2")], &wanted);
}

#[test]
fn a_link_that_changes_its_kind_is_created_again() {
    let mut lab = Lab::new();
    lab.add([bridge("x0"), address("x0", "10.0.0.1/32").into()]);
    let wanted: [Object; 2] = [
        Link::new(name("x0"), Kind::from("ifb")).into(),
        address("x0", "10.0.0.2/32").into(),
    ];
    lab.reach(&[name("x0")], &wanted);
    lab.assert_judged();
}

#[test]
fn commands_after_a_link_is_replaced_refer_to_the_new_link() {
    let mut lab = Lab::new();
    lab.add([bridge("x0")]);
    let on_x0 = address("x0", "10.0.0.1/32");
    let commands: Commands = [
        Command::AddAddress(on_x0),
        Command::RemoveLink(name("x0")),
        Command::AddLink(Link::new(name("x0"), Kind::from("ifb"))),
        Command::AddAddress(on_x0),
    ]
    .into_iter()
    .collect();
    lab.client.commit(&commands).unwrap();
    let dump = lab.dump_links(&[name("x0")]);
    assert_eq!(dump.addresses().count(), 1);
    assert_eq!(dump.links().next().unwrap().kind, Kind::from("ifb"));
}

#[test]
fn all_addresses_of_a_network_are_deleted_without_a_rejection() {
    let mut lab = Lab::new();
    let mut objects = vec![bridge("b0")];
    let hosts = (1..20).map(|host| address("b0", &format!("10.0.0.{host}/24")).into());
    objects.extend(hosts);
    lab.add(objects);
    let installed = lab.dump_links(&[name("b0")]);
    let secondary = |address: &&Address| address.flags.contains(AddressFlags::SECONDARY);
    assert_eq!(installed.addresses().filter(secondary).count(), 18);
    // The deletion of the primary address would delete all.
    let edits = diff(installed.into_objects(), &[bridge("b0")]);
    assert_eq!(edits.len(), 19);
    lab.commit(&edits).unwrap();
    assert_eq!(lab.dump_links(&[name("b0")]).addresses().next(), None);
}

/// Links of the generated states.
const LINKS: [&str; 3] = ["b0", "b1", "b2"];
/// Addresses of the links: single ones, several of one network, and IPv6.
const NETS: [&str; 14] = [
    "10.0.0.1/32",
    "10.0.0.2/32",
    "10.0.0.3/32",
    "10.0.1.1/32",
    "10.1.0.1/24",
    "10.1.0.2/24",
    "10.1.0.3/24",
    "10.1.0.4/24",
    "fd00::1/128",
    "fd00::2/128",
    "fd00::3/128",
    "fd00::4/64",
    "fd00::5/64",
    "fe80::6/64",
];

/// Generates links and their addresses, each in one of three variants.
fn state() -> impl Strategy<Value = Vec<Object>> {
    let addresses = btree_map(0..NETS.len(), 0..3_usize, 0..NETS.len());
    vec(option::of(addresses), LINKS.len()).prop_map(|links| {
        let mut objects = Vec::new();
        for (link, addresses) in LINKS.into_iter().zip(links) {
            let Some(addresses) = addresses else {
                continue;
            };
            objects.push(bridge(link));
            for (net, form) in addresses {
                objects.push(formed(address(link, NETS[net]), form).into());
            }
        }
        objects
    })
}

/// Returns one of three variants of an address.
fn formed(mut address: Address, form: usize) -> Address {
    // All addresses of a network have the same scope.
    if form == 1 && address.net.prefix_len() == 32 {
        address.scope = Scope::Link;
    }
    if form == 2 {
        address.flags |= AddressFlags::NO_PREFIX_ROUTE;
    }
    address
}

#[test]
fn the_commands_of_a_diff_change_any_state_to_any_other() {
    let lab = Lab::new();
    let names = LINKS.map(name);
    lab.netns
        .run(|| set_sysctl("ipv4/conf/all/promote_secondaries", "1"))
        .unwrap();
    let lab = RefCell::new(lab);
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(40)
    };
    TestRunner::new(config)
        .run(&vec(state(), 2), |states| {
            let mut lab = lab.borrow_mut();
            for wanted in &states {
                lab.reach(&names, wanted);
            }
            lab.assert_judged();
            Ok(())
        })
        .unwrap();
}
