//! Options of dumps, and the order of chains.

use std::net::{Ipv4Addr, UdpSocket};

use testkit::link;
use vipline_nftables::expr::SetRef;
use vipline_nftables::{DumpOptions, Edit};

use super::*;

impl Lab {
    /// Sends a datagram to a port of the loopback address.
    fn send(&self, port: u16) {
        self.netns.run(|| {
            link::up("lo").unwrap();
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = (Ipv4Addr::LOCALHOST, port);
            assert_eq!(socket.send_to(b"x", address).unwrap(), 1);
        });
    }
}

#[test]
fn elements_of_dynamic_sets_and_meters_are_dumped_on_demand() {
    let mut lab = Lab::new();
    lab.nft(
        "table inet filter {\n\
         set seen { type ipv4_addr; size 8; flags dynamic; }\n\
         chain output {\n\
         type filter hook output priority 0\n\
         udp dport 9 add @seen { ip daddr counter }\n\
         udp dport 9 meter flows { ip saddr counter }\n\
         }\n}",
    );
    lab.send(9);
    let mut dump = |options| lab.client.dump_with(&[table()], options).unwrap();
    let count = |ruleset: &Ruleset| {
        let (_, elements) = ruleset.set(&table(), "seen").unwrap();
        let rules = ruleset.rules(&table(), &name("output"));
        let sets = rules.flat_map(|(_, rule)| rule.sets());
        let meters = sets.filter_map(|set| match set {
            SetRef::Anonymous(meter) => Some(meter.elements.len()),
            SetRef::Named(_) => None,
        });
        (elements.len(), meters.collect::<Vec<_>>())
    };
    let without = dump(DumpOptions::new());
    assert_eq!(count(&without), (0, vec![0]));
    let with = dump(DumpOptions::new().with_dynamic_elements());
    assert_eq!(count(&with), (1, vec![1]));
    let (_, elements) = with.set(&table(), "seen").unwrap();
    assert_eq!(
        elements[0].to_string(),
        "127.0.0.1 counter packets 1 bytes 29"
    );

    // The elements are copied with their counters.
    let mut copy = Lab::new();
    let edits: Vec<_> = with.into_objects().map(Edit::Add).collect();
    copy.client
        .commit(&Transaction::from_edits(&edits))
        .unwrap();
    let options = DumpOptions::new().with_dynamic_elements();
    let copied = copy.client.dump_with(&[table()], options).unwrap();
    assert_eq!(count(&copied), (1, vec![1]));
    let listing = copy.netns.run(|| nft::succeeds(&["list", "ruleset"], ""));
    let line = "127.0.0.1 counter packets 1 bytes 29";
    assert!(listing.contains(line), "{listing}");
}

/// Two chains of the same hook and priority, and a chain that counts the packets by the
/// chain that they passed last.
const ORDER: &str = "table inet filter {\n\
    chain zeta {\ntype filter hook output priority 0\nmeta mark set 1\n}\n\
    chain last {\ntype filter hook output priority 1\n\
    meta mark 1 counter\nmeta mark 2 counter\n}\n\
    chain alpha {\ntype filter hook output priority 0\nmeta mark set 2\n}\n\
    }";

#[test]
fn chains_of_the_same_priority_keep_their_order_in_copies() {
    let mut original = Lab::new();
    original.nft(ORDER);
    let ruleset = original.client.dump(&[table()]).unwrap();
    let names = |ruleset: &Ruleset| -> Vec<String> {
        let chains = ruleset.objects().filter_map(|object| match object {
            Object::Chain(chain) => Some(chain.name.to_string()),
            _ => None,
        });
        chains.collect()
    };
    assert_eq!(names(&ruleset), ["zeta", "last", "alpha"]);
    let text = ruleset.to_string();
    let (mut by_text, mut by_netlink) = (Lab::new(), Lab::new());
    by_text.nft(&text);
    let edits: Vec<_> = ruleset.clone().into_objects().map(Edit::Add).collect();
    by_netlink
        .client
        .commit(&Transaction::from_edits(&edits))
        .unwrap();
    for lab in [&mut original, &mut by_text, &mut by_netlink] {
        lab.send(9);
        let installed = lab.client.dump(&[table()]).unwrap();
        assert_eq!(names(&installed), names(&ruleset));
        let rules = installed.rules(&table(), &name("last"));
        let counts: Vec<_> = rules
            .map(|(_, rule)| match rule.exprs.last() {
                Some(Expr::Counter(counter)) => counter.packets,
                other => panic!("{other:?}"),
            })
            .collect();
        // The kernel runs the chain that was added last first. The second packet is the
        // ICMP error.
        assert_eq!(counts, [2, 0]);
    }
    let sorted: Ruleset = [&ruleset]
        .into_iter()
        .flat_map(|ruleset| {
            let mut objects: Vec<_> = ruleset.objects().collect();
            objects.reverse();
            objects
        })
        .collect();
    assert_ne!(sorted, ruleset, "the order of the chains differs");
}
