//! Tests of rejected commands.

use std::time::Duration;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use testkit::link::set_sysctl;
use vipline_netlink::Errno;
use vipline_reconcile::Edit;
use vipline_rtnl::{Client, Command, Commands, Error, Link, Object, RejectedCommand};

use crate::lab::{Lab, address, name};

fn add(interface: &str, net: &str) -> Command {
    Command::AddAddress(address(interface, net))
}

fn remove(interface: &str, net: &str) -> Command {
    Command::RemoveAddress(address(interface, net))
}

/// Commits commands, and returns the error and the rejected commands.
#[track_caller]
fn rejections(lab: &mut Lab, commands: &[Command]) -> (Error, Vec<RejectedCommand>) {
    let commands: Commands = commands.iter().cloned().collect();
    let error = lab.client.commit(&commands).unwrap_err();
    let rejected = match &error {
        Error::Rejected { rejected, .. } => rejected.clone(),
        error => panic!("{error}"),
    };
    (error, rejected)
}

#[test]
fn rejected_commands_are_listed_and_all_others_are_executed() {
    let mut lab = Lab::new();
    lab.add([address("lo", "10.0.0.5/32").into()]);
    let mut commands: Vec<Command> = (1..=200)
        .map(|host| add("lo", &format!("10.0.0.{host}/32")))
        .collect();
    // The last command is in another datagram.
    commands.push(remove("lo", "10.0.1.1/32"));
    commands.push(add("lo", "127.0.0.1/8"));
    commands.insert(100, Command::RemoveLink(name("b0")));
    let (error, rejected) = rejections(&mut lab, &commands);
    let told: Vec<(String, Errno)> = rejected
        .iter()
        .map(|one| (one.request.to_string(), one.errno))
        .collect();
    let expected = [
        ("address add 10.0.0.5/32 dev lo", Errno::EXIST),
        ("link delete b0", Errno::NODEV),
        ("address delete 10.0.1.1/32 dev lo", Errno::ADDRNOTAVAIL),
        ("address add 127.0.0.1/8 dev lo", Errno::EXIST),
    ];
    assert_eq!(told, expected.map(|(text, errno)| (text.to_owned(), errno)));
    assert_eq!(error.errno(), Some(Errno::EXIST));
    assert!(!error.is_already_exists() && !error.is_not_found());
    let text = error.to_string();
    let start = "ip address add 10.0.0.5/32 dev lo: file exists";
    assert!(text.starts_with(start), "{text}");
    assert!(text.ends_with("; and 1 more"), "{text}");
    let dump = lab.dump_links(&[name("lo")]);
    assert_eq!(
        dump.addresses()
            .filter(|one| one.net.prefix_len() == 32)
            .count(),
        200
    );
}

#[test]
fn existing_and_missing_addresses_of_both_families_are_reported() {
    let mut lab = Lab::new();
    for net in ["10.0.0.1/32", "fd00::1/128"] {
        lab.add([address("lo", net).into()]);
        let (error, _) = rejections(&mut lab, &[add("lo", net)]);
        assert!(error.is_already_exists(), "{error}");
        lab.commit(&[Edit::Remove(address("lo", net).into())])
            .unwrap();
        let (error, _) = rejections(&mut lab, &[remove("lo", net)]);
        assert!(error.is_not_found(), "{error}");
        assert_eq!(error.errno(), Some(Errno::ADDRNOTAVAIL));
    }
    lab.add([Link::new(name("b0"), "bridge".into()).into()]);
    let again = Command::AddLink(Link::dummy(name("b0")));
    let (error, _) = rejections(&mut lab, &[again]);
    assert!(
        error.is_already_exists() || error.is_unsupported(),
        "{error}"
    );
    let again = Command::AddLink(Link::new(name("b0"), "bridge".into()));
    let (error, _) = rejections(&mut lab, &[again]);
    assert!(error.is_already_exists(), "{error}");
    let (error, _) = rejections(&mut lab, &[Command::RemoveLink(name("b1"))]);
    assert!(error.is_not_found(), "{error}");
}

#[test]
fn addresses_of_a_missing_link_are_rejected_and_others_are_not() {
    let mut lab = Lab::new();
    let commands = [
        add("lo", "10.0.0.1/32"),
        add("lo", "127.0.0.1/8"),
        add("kube-ipvs0", "10.0.0.2/32"),
        remove("kube-ipvs0", "10.0.0.3/32"),
        add("lo", "10.0.0.4/32"),
    ];
    let before = lab.client.counters();
    let (error, rejected) = rejections(&mut lab, &commands);
    let told: Vec<_> = rejected.iter().map(|one| one.request.clone()).collect();
    assert_eq!(told, commands[1..4]);
    assert_eq!(rejected[1].errno, Errno::NODEV);
    let text = error.to_string();
    let lack = "ip address add 10.0.0.2/32 dev kube-ipvs0: no such device";
    assert!(text.contains(lack), "{text}");
    // Two requests for links, and the commands before and after them.
    assert_eq!(lab.client.counters().sends - before.sends, 4);
    assert_eq!(lab.dump_links(&[name("lo")]).of(&name("lo")).count(), 4);

    let (error, _) = rejections(&mut lab, &commands[2..4]);
    assert!(error.is_not_found(), "{error}");
}

#[test]
fn addresses_of_a_link_that_cannot_be_created_are_rejected() {
    let mut lab = Lab::new();
    let link = Link::new(name("x0"), "no-such-kind".into());
    let edits = [
        Edit::Add(Object::from(link)),
        Edit::Add(address("x0", "10.0.0.1/32").into()),
        Edit::Add(address("lo", "10.0.0.1/32").into()),
    ];
    let error = lab.commit(&edits).unwrap_err();
    let text = error.to_string();
    let lack = "ip link add x0 type no-such-kind: operation not supported (Unknown device type); \
                ip address add 10.0.0.1/32 dev x0: no such device";
    assert_eq!(text, lack);
    assert!(!error.is_unsupported(), "one is not found");
    let error = lab.commit(&edits[..1]).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    assert_eq!(error.errno(), Some(Errno::OPNOTSUPP));
    assert_eq!(lab.dump_links(&[name("lo")]).addresses().count(), 3);
}

#[test]
fn the_deletion_of_the_loopback_device_is_rejected() {
    let mut lab = Lab::new();
    let (error, _) = rejections(&mut lab, &[Command::RemoveLink(name("lo"))]);
    assert!(error.is_unsupported(), "{error}");
    assert!(lab.client.link(&name("lo")).unwrap().is_some());
}

#[test]
fn a_link_without_ipv6_is_not_reported_as_a_missing_capability() {
    let mut lab = Lab::new();
    lab.netns
        .run(|| set_sysctl("ipv6/conf/lo/disable_ipv6", "1"))
        .unwrap();
    let (error, _) = rejections(&mut lab, &[add("lo", "fd00::1/128")]);
    assert_eq!(error.errno(), Some(Errno::ACCES));
}

#[test]
fn all_of_thousands_of_rejections_are_listed() {
    let mut lab = Lab::new();
    let commands: Vec<Command> = (0..3000_u16)
        .map(|host| {
            let [high, low] = host.to_be_bytes();
            remove("lo", &format!("10.0.{high}.{low}/32"))
        })
        .collect();
    let (error, rejected) = rejections(&mut lab, &commands);
    assert!(error.is_not_found());
    let told: Vec<Command> = rejected.into_iter().map(|one| one.request).collect();
    assert_eq!(told, commands);
}

#[test]
fn changes_require_a_capability_and_dumps_do_not() {
    let lab = Lab::new();
    lab.netns.run(|| {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_ADMIN);
        set_capabilities(None, sets).unwrap();
        let mut client = Client::open().unwrap();
        assert!(client.dump().unwrap().link(&name("lo")).is_some());
        let commands: Commands = [add("lo", "10.0.0.1/32")].into_iter().collect();
        let error = client.commit(&commands).unwrap_err();
        assert!(matches!(error, Error::Denied), "{error:?}");
        assert_eq!(error.errno(), Some(Errno::PERM));
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    });
}

#[test]
fn a_reply_timeout_of_zero_is_rejected() {
    let client = Lab::new().client;
    client.set_timeout(Duration::from_secs(1)).unwrap();
    let zero = client.set_timeout(Duration::ZERO).unwrap_err();
    assert!(matches!(zero, Error::Netlink(_)), "{zero:?}");
}
