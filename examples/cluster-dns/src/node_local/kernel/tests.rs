//! Tests against the running kernel.
//!
//! Bridges replace dummy links, which many kernels lack.

use std::process::Command;

use testkit::netns::Netns;

use super::*;

/// Addresses of both families.
const ADDRESSES: [&str; 2] = ["169.254.20.10", "fd00::10"];

fn options(interface: &str, addresses: &[&str]) -> Options {
    let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
    Options::new(addresses, 53, Name::new(interface).unwrap()).unwrap()
}

/// Opens the kernel, with bridges in place of dummy links.
fn kernel() -> Kernel {
    let mut kernel = Kernel::open().unwrap();
    kernel.kind = Kind::Other("bridge".into());
    kernel
}

/// Runs a program and returns its output.
fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the addresses on an interface with their prefix lengths, sorted.
fn addresses(interface: &str) -> Vec<String> {
    let text = run(&format!("ip -oneline address show dev {interface}"));
    let address = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
    let mut all: Vec<String> = text.lines().filter_map(address).collect();
    all.sort_unstable();
    all
}

fn interfaces() -> Vec<String> {
    let text = run("ip -oneline link show");
    let name = |line: &str| Some(line.split(": ").nth(1)?.to_owned());
    text.lines().filter_map(name).collect()
}

#[test]
fn rules_and_records_are_those_that_nft_lists() {
    Netns::new().unwrap().run(|| {
        kernel().apply(&options("dns", &ADDRESSES), true).unwrap();
        let table = run("nft list table inet cluster-dns");
        let rules: Vec<&str> = table.lines().map(str::trim).collect();
        for (line, count) in [
            (
                "type filter hook prerouting priority raw; policy accept;",
                1,
            ),
            ("type filter hook output priority raw; policy accept;", 1),
            (
                "ip daddr . meta l4proto . th dport @ipv4-sockets notrack",
                2,
            ),
            (
                "ip6 daddr . meta l4proto . th dport @ipv6-sockets notrack",
                2,
            ),
            (
                "ip saddr . meta l4proto . th sport @ipv4-sockets notrack",
                1,
            ),
            (
                "ip6 saddr . meta l4proto . th sport @ipv6-sockets notrack",
                1,
            ),
            ("elements = { \"dns\" }", 1),
            ("elements = { \"dns\" . 169.254.20.10 }", 1),
            ("elements = { \"dns\" . fd00::10 }", 1),
        ] {
            let found = rules.iter().filter(|rule| **rule == line).count();
            assert_eq!(found, count, "{line} in {table}");
        }
        assert_eq!(addresses("dns"), ["169.254.20.10/32", "fd00::10/128"]);
    });
}

#[test]
fn the_state_is_reached_once_and_removed_completely() {
    Netns::new().unwrap().run(|| {
        let (mut kernel, options) = (kernel(), options("dns", &ADDRESSES));
        let first = kernel.apply(&options, false).unwrap();
        assert_eq!(first.commands.len(), 3, "{first}");
        assert!(!run("nft list ruleset").contains("notrack"));
        let rules = kernel.apply(&options, true).unwrap();
        assert!(rules.objects > 0 && rules.commands.is_empty(), "{rules}");
        assert!(kernel.apply(&options, true).unwrap().is_empty());
        kernel.apply(&options, false).unwrap();
        assert!(!run("nft list ruleset").contains("notrack"));
        assert_eq!(interfaces(), ["lo", "dns"]);
        assert!(!kernel.remove().unwrap().is_empty());
        assert_eq!(interfaces(), ["lo"]);
        assert_eq!(run("nft list ruleset"), "");
        assert!(kernel.remove().unwrap().is_empty());
    });
}

#[test]
fn changes_by_other_programs_are_repaired() {
    Netns::new().unwrap().run(|| {
        let (mut kernel, options) = (kernel(), options("dns", &ADDRESSES));
        kernel.apply(&options, true).unwrap();
        let before = run("nft list ruleset");
        for change in [
            "ip link delete dns",
            "ip address delete 169.254.20.10/32 dev dns",
            "ip -6 address delete fd00::10/128 dev dns",
            "nft flush ruleset",
            "nft delete element inet cluster-dns ipv4-sockets { 169.254.20.10 . udp . 53 }",
            "nft flush chain inet cluster-dns output",
            "nft add rule inet cluster-dns output drop",
        ] {
            run(change);
            assert!(
                !kernel.apply(&options, true).unwrap().is_empty(),
                "{change}"
            );
            assert!(kernel.apply(&options, true).unwrap().is_empty(), "{change}");
            assert_eq!(run("nft list ruleset"), before, "{change}");
            assert_eq!(addresses("dns"), ["169.254.20.10/32", "fd00::10/128"]);
        }
        kernel.remove().unwrap();
        assert_eq!(interfaces(), ["lo"]);
    });
}

#[test]
fn a_later_process_takes_over_and_removes_what_a_killed_one_left() {
    Netns::new().unwrap().run(|| {
        kernel().apply(&options("old", &ADDRESSES), true).unwrap();
        let mut later = kernel();
        let options = options("new", &["169.254.20.10", "10.96.0.10"]);
        later.apply(&options, true).unwrap();
        assert_eq!(interfaces(), ["lo", "new"]);
        assert_eq!(addresses("new"), ["10.96.0.10/32", "169.254.20.10/32"]);
        assert!(later.apply(&options, true).unwrap().is_empty());
        // Without the options of the process.
        assert!(!kernel().remove().unwrap().is_empty());
        assert_eq!(interfaces(), ["lo"]);
        assert_eq!(run("nft list ruleset"), "");
    });
}

#[test]
fn interfaces_and_addresses_of_other_programs_stay() {
    Netns::new().unwrap().run(|| {
        run("ip link add dns type bridge");
        run("ip address add 169.254.20.10/24 dev dns");
        run("ip address add 192.0.2.1/24 dev dns");
        run("nft add table inet firewall");
        let before = addresses("dns");
        let mut kernel = kernel();
        kernel.apply(&options("dns", &ADDRESSES), true).unwrap();
        assert_eq!(addresses("dns").len(), 3);
        kernel.remove().unwrap();
        assert_eq!(addresses("dns"), before);
        assert_eq!(run("nft list tables"), "table inet firewall\n");
    });
}

#[test]
fn an_interface_that_another_program_replaced_stays() {
    Netns::new().unwrap().run(|| {
        let mut kernel = kernel();
        kernel.apply(&options("dns", &ADDRESSES), true).unwrap();
        run("ip link delete dns");
        run("ip link add dns type veth peer name other");
        run("ip address add 192.0.2.1/24 dev dns");
        kernel.apply(&options("dns", &ADDRESSES), true).unwrap();
        assert_eq!(addresses("dns").len(), 3);
        kernel.remove().unwrap();
        assert_eq!(addresses("dns"), ["192.0.2.1/24"]);
    });
}

#[test]
fn a_kernel_without_dummy_links_is_named_and_nothing_stays() {
    Netns::new().unwrap().run(|| {
        let mut kernel = Kernel::open().unwrap();
        let interface = "nodelocaldns";
        match kernel.apply(&options(interface, &ADDRESSES), false) {
            // This kernel has dummy links.
            Ok(_) => assert!(interfaces().contains(&interface.to_owned())),
            Err(error) => {
                let text = error.to_string();
                assert!(matches!(error, Error::NoDummy(_)), "{text}");
                assert!(text.contains("module `dummy`"), "{text}");
            }
        }
        kernel.remove().unwrap();
        assert_eq!(interfaces(), ["lo"]);
        assert_eq!(run("nft list ruleset"), "");
    });
}
