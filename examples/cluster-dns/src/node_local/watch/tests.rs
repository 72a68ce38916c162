//! Tests in network namespaces. The interface is `lo`, which exists.

use std::process::Command;

use testkit::netns::Netns;
use vipline_rtnl::Name;

use super::*;

/// Time for a repair on a busy machine. Without notifications it would take [`PERIOD`].
const SOON: Duration = Duration::from_secs(20);

fn options() -> Options {
    let addresses = ["169.254.20.10", "fd00::10"].map(|text| text.parse().unwrap());
    Options::new(addresses.to_vec(), 53, Name::new("lo").unwrap()).unwrap()
}

/// Runs a program and returns its output.
fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn has_rules() -> bool {
    run("nft list ruleset").contains("notrack")
}

/// Returns the number of node-local addresses on `lo`.
fn addresses() -> usize {
    let text = run("ip -oneline address show dev lo");
    let is_ours = |line: &&str| line.contains("169.254.20.10/") || line.contains("fd00::10/");
    text.lines().filter(is_ours).count()
}

#[track_caller]
fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_true() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn rules_follow_the_addresses_and_are_removed_first() {
    Netns::new().unwrap().run(|| {
        let node = NodeLocal::open(options()).unwrap();
        assert_eq!((addresses(), has_rules()), (2, false));
        node.serve().unwrap();
        assert_eq!((addresses(), has_rules()), (2, true));
        node.withdraw().unwrap();
        assert_eq!((addresses(), has_rules()), (2, false));
        node.close().unwrap();
        assert_eq!(addresses(), 0);
        assert_eq!(run("nft list ruleset"), "");
    });
}

#[test]
fn changes_by_other_programs_are_repaired_without_delay() {
    Netns::new().unwrap().run(|| {
        let node = NodeLocal::open(options()).unwrap();
        node.serve().unwrap();
        for (number, change) in (1..).zip([
            "nft flush ruleset",
            "ip address delete 169.254.20.10/32 dev lo",
            "ip -6 address delete fd00::10/128 dev lo",
        ]) {
            run(change);
            wait_until(change, || addresses() == 2 && has_rules());
            wait_until("count", || node.counters().repairs() == number);
        }
        assert_eq!(node.counters().failures(), 0);
        node.close().unwrap();
        assert_eq!((addresses(), has_rules()), (0, false));
    });
}

#[test]
fn a_change_of_another_interface_is_no_reason_for_a_check() {
    Netns::new().unwrap().run(|| {
        let options = options();
        let mut listener = listen(0).unwrap();
        run("ip link add other type bridge");
        run("ip address add 192.0.2.1/24 dev other");
        let mut events = 0;
        listener
            .read(|event| {
                events += 1;
                assert!(!concerns(&options, &event), "{event:?}");
            })
            .unwrap();
        assert!(events > 0);
        run("ip address add 169.254.20.10/32 dev other");
        let mut is_concerned = false;
        listener
            .read(|event| is_concerned |= concerns(&options, &event))
            .unwrap();
        assert!(is_concerned);
    });
}

#[test]
fn kept_addresses_and_rules_are_taken_over() {
    Netns::new().unwrap().run(|| {
        let first = NodeLocal::open(options().kept()).unwrap();
        first.serve().unwrap();
        first.withdraw().unwrap();
        first.close().unwrap();
        assert_eq!((addresses(), has_rules()), (2, true));
        let generation = || {
            vipline_nftables::Client::open()
                .unwrap()
                .generation()
                .unwrap()
        };
        let before = generation();
        // The next process removes no rule before it serves.
        let second = NodeLocal::open(options().kept()).unwrap();
        second.serve().unwrap();
        assert_eq!(generation(), before);
        drop(second);
        assert_eq!((addresses(), has_rules()), (2, true));
        assert!(super::super::cleanup().unwrap());
        assert_eq!((addresses(), has_rules()), (0, false));
    });
}
