//! Evaluation of packets against the rules of the kernel.

use std::process::Command;
use std::time::Duration;

use proxy_core::evaluate::{
    KernelState, Outcome, Rules, Verdict, node_source, observed_host, packet, read_kernel,
};
use proxy_core::evaluator::{Error, Host};
use proxy_core::{Event, Family, Mode};
use testkit::link;
use testkit::netns::Netns;
use testkit::nft;
use vipline_service_model::Transport;

use crate::fixtures::{apply, config, web_with};

fn sync() {
    let mut engine = config().open().expect("the kernel has nf_tables");
    apply(&mut engine, web_with("10.96.0.10", 2).events());
    engine.apply(Event::Synced);
    let report = engine.poll(Duration::ZERO).expect("a sync is due");
    assert!(report.is_success(), "{report}");
}

/// Creates the interfaces of a router.
fn router(other: &Netns) {
    use std::os::fd::AsFd;

    let net = |text: &str| text.parse().expect("a network");
    for (name, address) in [("eth0", "192.168.0.5/24"), ("pods", "10.1.0.254/24")] {
        link::add_pair(name, &format!("{name}-peer"), other.as_fd()).expect("a veth pair");
        other
            .run(|| link::up(&format!("{name}-peer")))
            .expect("the peer");
        link::up(name).expect("the link");
        link::add_address(name, net(address)).expect("an address");
    }
    link::set_sysctl("ipv4/ip_forward", "1").expect("the sysctl exists");
    let gateway = link::Hop::Via([192, 168, 0, 1].into());
    link::add_route(net("0.0.0.0/0"), gateway, "eth0").expect("a route");
}

fn outcomes(source: &str) -> Vec<Outcome> {
    let rules = Mode::Nftables
        .installed_rules(&config(), Family::V4)
        .expect("a dump");
    let rules = rules.expect("the mode is evaluated");
    let host = observed_host().expect("addresses and routes");
    evaluate(&rules, &host, source).expect("the rules are evaluated")
}

fn evaluate(rules: &Rules, host: &Host, source: &str) -> Result<Vec<Outcome>, Error> {
    let source = source.parse().expect("an address");
    let destination = "10.96.0.10:80".parse().expect("an address with a port");
    let packet = packet(host, Transport::Tcp, source, destination);
    rules.evaluate(&packet, host)
}

fn ip(args: &str) {
    let output = Command::new("ip").args(args.split(' ')).output();
    let output = output.expect("ip is installed");
    assert!(output.status.success(), "ip {args}: {output:?}");
}

#[test]
fn installed_rules_include_those_of_other_programs() {
    let (netns, other) = (
        Netns::new().expect("a namespace"),
        Netns::new().expect("one"),
    );
    netns.run(|| {
        router(&other);
        sync();
        let reached = outcomes("198.51.100.9");
        let endpoints = ["10.1.0.1:8080", "10.1.0.2:8080"];
        let endpoints = endpoints.map(|it| Verdict::Endpoint(it.parse().expect("an endpoint")));
        let verdicts: Vec<_> = reached.iter().map(|it| it.verdict.clone()).collect();
        assert_eq!(verdicts, endpoints);
        let trace = reached[0].trace.to_string();
        assert!(trace.contains("routed through pods"), "{trace}");

        nft::succeeds(
            &["-f", "-"],
            "table inet firewall {\nchain forward {\ntype filter hook forward priority 10\n\
             iifname eth0 ip daddr 10.1.0.2 counter drop\n}\n}\n",
        );
        let filtered = outcomes("198.51.100.9");
        let verdicts: Vec<_> = filtered.iter().map(|it| it.verdict.clone()).collect();
        assert_eq!(verdicts, [endpoints[0].clone(), Verdict::Dropped]);
        let last = filtered[1].trace.matches().last().map(ToString::to_string);
        let last = last.expect("a rule drops the packet");
        assert!(last.contains("inet firewall forward handle"), "{last}");
        let from_pod = outcomes("10.1.0.9");
        assert!(from_pod.iter().all(|it| it.verdict != Verdict::Dropped));
    });
}

#[test]
fn the_longest_route_decides_also_if_it_discards_packets() {
    let (netns, other) = (
        Netns::new().expect("a namespace"),
        Netns::new().expect("one"),
    );
    netns.run(|| {
        router(&other);
        sync();
        ip("route add unreachable 10.1.0.1/32");
        ip("route add blackhole 10.1.0.2/32");
        link::up("lo").expect("the loopback device");
        ip("-6 route add prohibit fd00:10::13/128");
        let state = read_kernel().expect("the state of the kernel");
        let line = "\nprohibit fd00:10::13/128 1024\n";
        assert!(state.to_string().contains(line), "{state}");
        let saved: KernelState = state.to_string().parse().expect("a saved state");
        assert_eq!(saved.to_string(), state.to_string());
        let rules = Mode::Nftables.saved_rules(&saved).expect("rules");
        let rules = rules.expect("the mode is evaluated");
        let of_saved = evaluate(&rules, &saved.host(), "198.51.100.9");
        for outcomes in [
            outcomes("198.51.100.9"),
            of_saved.expect("the rules are evaluated"),
        ] {
            let verdicts: Vec<_> = outcomes.iter().map(|it| it.verdict.clone()).collect();
            assert_eq!(verdicts, [Verdict::Refused, Verdict::Dropped]);
            for (outcome, route) in outcomes
                .iter()
                .zip(["unreachable 10.1.0.1", "blackhole 10.1.0.2"])
            {
                let trace = outcome.trace.to_string();
                assert!(
                    trace.ends_with(&format!("routed to {route}/32\n")),
                    "{trace}"
                );
            }
        }
    });
}

#[test]
fn the_preferred_source_of_a_route_is_the_source_of_the_node() {
    let (netns, other) = (
        Netns::new().expect("a namespace"),
        Netns::new().expect("one"),
    );
    netns.run(|| {
        router(&other);
        ip("addr add 192.0.2.50/32 dev lo");
        ip("route add 10.96.0.0/12 via 192.168.0.1 src 192.0.2.50");
        let state = read_kernel().expect("the state of the kernel").to_string();
        let saved: KernelState = state.parse().expect("a saved state");
        for host in [observed_host().expect("addresses and routes"), saved.host()] {
            let source = |to: &str| node_source(&host, to.parse().expect("an address"));
            assert_eq!(source("10.96.0.10"), "192.0.2.50".parse().ok());
            assert_eq!(source("198.51.100.9"), "192.168.0.5".parse().ok());
        }
    });
}

#[test]
fn bridges_whose_packets_pass_the_rules_are_read() {
    let netns = Netns::new().expect("a namespace");
    netns.run(|| {
        ip("link add br0 type bridge");
        // The file exists if `br_netfilter` is loaded.
        let calls = std::fs::read_to_string("/proc/sys/net/bridge/bridge-nf-call-iptables");
        let is_called = calls.is_ok_and(|value| value.trim() == "1");
        let state = read_kernel().expect("the state of the kernel").to_string();
        assert_eq!(state.contains("\nbridge br0\n"), is_called, "{state}");
    });
}

#[test]
fn an_unknown_order_of_translations_is_an_error() {
    let (netns, other) = (
        Netns::new().expect("a namespace"),
        Netns::new().expect("one"),
    );
    netns.run(|| {
        router(&other);
        sync();
        let table = |rule: &str| {
            let chain = "chain p {\ntype nat hook prerouting priority dstnat\n";
            let text = format!("table ip zzz {{\n{chain}{rule}\n}}\n}}\n");
            nft::succeeds(&["-f", "-"], &text);
        };
        table("ip daddr 10.96.0.11 dnat to 10.1.0.9");
        let outcomes = outcomes("198.51.100.9");
        assert_eq!(outcomes.len(), 2, "the packet matches one table only");
        table("ip daddr 10.96.0.10 dnat to 10.1.0.9");
        let rules = Mode::Nftables
            .installed_rules(&config(), Family::V4)
            .expect("a dump");
        let rules = rules.expect("the mode is evaluated");
        let host = observed_host().expect("addresses and routes");
        let error = evaluate(&rules, &host, "198.51.100.9").expect_err("unknown");
        let error = error.to_string();
        let names = "ip zzz p and ip kube-proxy nat-prerouting";
        assert!(error.contains(names), "{error}");
    });
}

#[test]
fn rules_of_iptables_legacy_are_evaluated_besides_those_of_nf_tables() {
    let (netns, other) = (
        Netns::new().expect("a namespace"),
        Netns::new().expect("one"),
    );
    netns.run(|| {
        router(&other);
        sync();
        let add = |program: &str, endpoint: &str| {
            let args = ["-A", "FORWARD", "-d", endpoint, "-j", "DROP"];
            let output = Command::new(program).args(args).output();
            let output = output.expect("both variants are installed");
            assert!(output.status.success(), "{program}: {output:?}");
        };
        add("iptables-nft", "10.1.0.1");
        add("iptables-legacy", "10.1.0.2");
        let state = read_kernel().expect("the state of the kernel").to_string();
        let saved: KernelState = state.parse().expect("a saved state");
        let rules = Mode::Nftables.saved_rules(&saved).expect("rules");
        let rules = rules.expect("the mode is evaluated");
        let of_saved = evaluate(&rules, &saved.host(), "198.51.100.9");
        for outcomes in [
            outcomes("198.51.100.9"),
            of_saved.expect("the rules are evaluated"),
        ] {
            let last = outcomes.iter().map(|it| {
                assert_eq!(it.verdict, Verdict::Dropped);
                let step = it.trace.matches().last().expect("a rule drops the packet");
                format!("{} {}", step.table(), step.text())
            });
            let last: Vec<_> = last.collect();
            assert_eq!(
                last,
                [
                    "ip filter -A FORWARD -d 10.1.0.1/32 -j DROP",
                    "ip legacy-filter -A FORWARD -d 10.1.0.2/32 -j DROP"
                ]
            );
        }
    });
}
