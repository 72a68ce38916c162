//! nfacct counters, compared with the program `nfacct` and with rules.

use std::net::UdpSocket;
use std::process::{Command, Output};

use testkit::iptables::Programs;
use testkit::netns::Netns;
use vipline_iptables::nfacct::{Client, Name};
use vipline_iptables::{Client as Iptables, Family, Variant, program_name};

/// Returns a network namespace and a client in it.
fn lab() -> (Netns, Client) {
    let netns = Netns::new().unwrap();
    let client = netns.run(Client::open).unwrap();
    (netns, client)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Runs `nfacct` and returns its output.
fn nfacct(netns: &Netns, args: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = netns.run(|| Command::new("nfacct").args(args).output().unwrap());
    assert!(
        status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&stderr)
    );
    String::from_utf8(stdout).unwrap()
}

#[test]
fn a_counter_is_created_listed_and_deleted() {
    let (netns, mut client) = lab();
    let longest = name(&"n".repeat(31));
    let none = client.get(&longest).unwrap_err();
    assert!(none.is_not_found(), "{none:?}");
    client.create(&longest).unwrap();
    assert!(client.create(&longest).unwrap_err().is_already_exists());
    client.ensure(&longest).unwrap();
    client.ensure(&name("other")).unwrap();
    let listed = nfacct(&netns, &["list"]);
    assert!(listed.contains(&format!("= {longest};")), "{listed}");
    assert!(listed.contains("= other;"), "{listed}");

    let counter = client.get(&longest).unwrap();
    assert_eq!(counter.name, longest);
    assert_eq!((counter.packets, counter.bytes, counter.rules), (0, 0, 0));
    let names = client.dump().unwrap().into_iter().map(|one| one.name);
    assert_eq!(names.collect::<Vec<_>>(), [longest.clone(), name("other")]);

    client.delete(&longest).unwrap();
    assert!(client.delete(&longest).unwrap_err().is_not_found());
    assert!(!nfacct(&netns, &["list"]).contains("nnn"));
}

#[test]
fn counters_created_by_nfacct_are_dumped() {
    let (netns, mut client) = lab();
    assert!(client.dump().unwrap().is_empty());
    nfacct(&netns, &["add", "theirs"]);
    assert_eq!(
        client.dump().unwrap(),
        [client.get(&name("theirs")).unwrap()]
    );
}

#[test]
fn rules_update_a_counter_and_prevent_its_deletion() {
    for family in Family::ALL {
        for variant in Variant::ALL {
            let (netns, mut client) = lab();
            let programs = Programs::new().unwrap();
            let [save, restore] = programs
                .variant(&format!("{}-{variant}", program_name(family)))
                .unwrap();
            let mut iptables = netns.run(|| Iptables::open_at(save, restore)).unwrap();
            let mut restore = |rules: &str| {
                let document = format!("*filter\n{rules}\nCOMMIT\n");
                netns.run(|| iptables.restore(&document))
            };
            let rule = "-A OUTPUT -p udp -m nfacct --nfacct-name hits";
            restore(rule).unwrap_err();
            client.create(&name("hits")).unwrap();
            restore(rule).unwrap();

            let (address, header) = match family {
                Family::V4 => ("127.0.0.1:0", 28),
                Family::V6 => ("[::1]:0", 48),
            };
            netns.run(|| {
                let socket = UdpSocket::bind(address).unwrap();
                let address = socket.local_addr().unwrap();
                for length in [10, 20, 30] {
                    socket.send_to(&vec![0; length], address).unwrap();
                }
            });
            let counter = client.get(&name("hits")).unwrap();
            assert_eq!(
                (counter.packets, counter.bytes, counter.rules),
                (3, 60 + 3 * header, 1)
            );
            let printed = nfacct(&netns, &["get", "hits"]);
            assert!(
                printed.contains("pkts = 00000000000000000003,"),
                "{printed}"
            );

            assert!(client.delete(&name("hits")).unwrap_err().is_busy());
            restore("-F OUTPUT").unwrap();
            client.delete(&name("hits")).unwrap();
        }
    }
}
