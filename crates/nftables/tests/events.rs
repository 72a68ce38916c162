//! Decoded events of the monitor with a real kernel.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "nft is the other one"
)]

use std::collections::BTreeSet;

use testkit::netns::Netns;
use testkit::nft;
use vipline_nftables::{Client, Commit, Event, EventObject, Monitor, Notifications, Object};

/// A namespace with a client and a monitor of all tables.
struct Lab {
    netns: Netns,
    client: Client,
    monitor: Monitor,
}

impl Lab {
    fn new(notifications: Notifications) -> Self {
        let netns = Netns::new().unwrap();
        let client = netns.run(Client::open).unwrap();
        let monitor = netns
            .run(|| Monitor::open_with(notifications, &[]))
            .unwrap();
        Self {
            netns,
            client,
            monitor,
        }
    }

    /// Changes the ruleset as another process. Returns the only commit.
    #[track_caller]
    fn commit(&mut self, script: &str) -> Commit {
        let output = self.netns.run(|| nft::run(&["-f", "-"], script));
        assert!(output.status.success(), "{script}\n{output:?}");
        let notification = self.monitor.read().unwrap();
        assert!(!notification.is_incomplete);
        let [commit] = &*notification.commits else {
            panic!("{notification:?}")
        };
        commit.clone()
    }

    /// Changes the ruleset as another process. Returns the texts of the events.
    #[track_caller]
    fn events(&mut self, script: &str) -> Vec<String> {
        texts(&self.commit(script))
    }
}

fn texts(commit: &Commit) -> Vec<String> {
    commit.events.iter().map(Event::to_string).collect()
}

#[test]
fn events_contain_the_objects_the_process_and_the_generation() {
    let mut lab = Lab::new(Notifications::all().with_events());
    let commit = lab.commit(
        "add table inet t\n\
         add chain inet t c { type filter hook input priority 5; policy drop; }\n\
         add set inet t s { type inet_service; }\n\
         add map inet t m { type ipv4_addr : verdict; flags interval; }\n\
         add element inet t s { 22, 80 }\n\
         add element inet t m { 192.0.2.0/24 : drop, 198.51.100.7 : accept }\n\
         add rule inet t c tcp dport { 25, 110 } accept\n\
         add rule inet t c tcp dport @s accept comment \"named\"\n",
    );
    assert_eq!(&*commit.process.name, "nft");
    assert_eq!(commit.generation, lab.client.generation().unwrap());
    let found: BTreeSet<_> = texts(&commit).into_iter().collect();
    let expected = [
        "add table inet t",
        "add chain inet t c",
        "add set inet t s",
        "add map inet t m",
        "add element inet t s { 22 }",
        "add element inet t s { 80 }",
        "add element inet t m { 192.0.2.0/24 : drop }",
        "add element inet t m { 198.51.100.7 : accept }",
        "add rule inet t c tcp dport { 25, 110 } accept # handle 5",
        "add rule inet t c tcp dport @s accept comment \"named\" # handle 6",
    ];
    assert_eq!(found, expected.map(str::to_owned).into());
    let chain = commit.events.iter().find_map(|event| match &event.object {
        EventObject::Object(Object::Chain(chain)) => Some(chain),
        _ => None,
    });
    assert_eq!(chain.unwrap().base.as_ref().unwrap().priority, 5);

    let deleted = lab.events("delete rule inet t c handle 5\ndelete element inet t s { 22 }");
    let expected = [
        "delete rule inet t c tcp dport { 25, 110 } accept # handle 5",
        "delete element inet t s { 22 }",
    ];
    assert_eq!(deleted, expected);
    let deleted = lab.events("delete element inet t m { 192.0.2.0/24 : drop }");
    assert_eq!(deleted, ["delete element inet t m { 192.0.2.0/24 }"]);
    let deleted: BTreeSet<_> = lab.events("delete table inet t").into_iter().collect();
    let expected = [
        "delete rule inet t c tcp dport @s accept comment \"named\" # handle 6",
        "delete set inet t s",
        "delete map inet t m",
        "delete chain inet t c",
        "delete table inet t",
    ];
    assert_eq!(deleted, expected.map(str::to_owned).into());
}

#[test]
fn elements_of_sets_that_exist_are_decoded() {
    let mut lab = Lab::new(Notifications::all().with_events());
    lab.commit("table ip t {\nset s { type mark . inet_service; }\n}");
    let t = lab.client.tables().unwrap().remove(0).id;
    for notifications in [Notifications::all(), Notifications::new(&[t])] {
        let late = lab
            .netns
            .run(|| Monitor::open_with(notifications.with_events(), &[]));
        lab.monitor = late.unwrap();
        let events = lab.events("add element ip t s { 0x2 . 443 }");
        assert_eq!(events, ["add element ip t s { 0x00000002 . 443 }"]);
        lab.commit("delete element ip t s { 0x2 . 443 }");
    }
}

#[test]
fn a_filter_may_be_a_closure() {
    let ours = "mine".to_owned();
    let filter = move |change: vipline_nftables::Change<'_>| change.chain == ours;
    let mut lab = Lab::new(Notifications::all().with_events().with_filter(filter));
    let events = lab.events(
        "add table ip t\nadd chain ip t mine\nadd chain ip t theirs\n\
         add rule ip t theirs drop\nadd rule ip t mine accept",
    );
    let expected = [
        "add table ip t",
        "add chain ip t mine",
        "add rule ip t mine accept # handle 4",
    ];
    assert_eq!(events, expected);
}

#[test]
fn stateful_objects_are_decoded() {
    let mut lab = Lab::new(Notifications::all().with_events());
    let script = "add table ip t\nadd counter ip t n\nadd quota ip t q { over 7 bytes; }";
    let expected = ["add table ip t", "add counter ip t n", "add quota ip t q"];
    assert_eq!(lab.events(script), expected);
    let deleted = lab.events("delete counter ip t n\ndelete quota ip t q");
    assert_eq!(deleted, ["delete counter ip t n", "delete quota ip t q"]);
}

#[test]
fn a_rule_that_existed_before_is_deleted_with_its_anonymous_sets() {
    let script = "table inet t {\nchain c {\n\
        tcp dport { 25, 110 } accept\n\
        ip saddr . tcp dport vmap { 192.0.2.1 . 80 : drop }\n}\n}\n";
    let netns = Netns::new().unwrap();
    netns.run(|| nft::succeeds(&["-f", "-"], script));
    let client = netns.run(Client::open).unwrap();
    let notifications = Notifications::all().with_events();
    let monitor = netns.run(|| Monitor::open_with(notifications, &[]));
    let monitor = monitor.unwrap();
    let mut lab = Lab {
        netns,
        client,
        monitor,
    };
    let found: Vec<_> = lab.events("flush chain inet t c");
    let expected = [
        "tcp dport { 25, 110 } accept # handle 3",
        "ip saddr . tcp dport vmap { 192.0.2.1 . 80 : drop } # handle 5",
    ];
    let matches = ["", "meta nfproto ipv4 meta l4proto tcp "];
    let expected = expected.iter().zip(matches);
    let expected = expected.map(|(text, implied)| format!("delete rule inet t c {implied}{text}"));
    let expected: Vec<_> = expected.collect();
    assert_eq!(found, expected);
    // The kernel uses the names again.
    let found = lab.events("add rule inet t c udp dport { 53, 123 } accept");
    assert_eq!(
        found,
        ["add rule inet t c udp dport { 53, 123 } accept # handle 7"]
    );
    let found = lab.events("flush chain inet t c");
    assert_eq!(
        found,
        ["delete rule inet t c udp dport { 53, 123 } accept # handle 7"]
    );
}

#[test]
fn a_rule_with_a_meter_has_the_meter() {
    let mut lab = Lab::new(Notifications::all().with_events());
    lab.commit("table inet t {\nchain c {\n}\n}");
    let found = lab.events("add rule inet t c meter m size 16 { ip saddr counter }");
    let text = "meta nfproto ipv4 meter m size 16 { ip saddr counter }";
    assert_eq!(found, [format!("add rule inet t c {text} # handle 3")]);
}
