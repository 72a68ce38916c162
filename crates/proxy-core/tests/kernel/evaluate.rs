//! Evaluation of packets against the rules of the kernel.

use std::time::Duration;

use proxy_core::evaluate::{Outcome, Verdict, observed_host, packet};
use proxy_core::{Engine, Event, Family};
use testkit::link;
use testkit::netns::Netns;
use testkit::nft;
use vipline_service_model::Protocol;

use crate::fixtures::{apply, config, web_with};

fn synced() -> Engine {
    let mut engine = Engine::open(config()).expect("the kernel has nf_tables");
    apply(&mut engine, web_with("10.96.0.10", 2).events());
    engine.apply(Event::Synced);
    let report = engine.poll(Duration::ZERO).expect("a sync is due");
    assert!(report.is_success(), "{report}");
    engine
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
    let gateway = link::Hop::Via([192, 168, 0, 1].into());
    link::add_route(net("0.0.0.0/0"), gateway, "eth0").expect("a route");
}

fn outcomes(engine: &Engine, source: &str) -> Vec<Outcome> {
    let host = observed_host().expect("addresses and routes");
    let source = source.parse().expect("an address");
    let destination = "10.96.0.10:80".parse().expect("an address with a port");
    let packet = packet(&host, Protocol::Tcp, source, destination);
    let rules = engine.installed_rules(Family::V4).expect("a dump");
    let rules = rules.expect("the mode is evaluated");
    rules
        .evaluate(&packet, &host)
        .expect("the rules are evaluated")
}

#[test]
fn installed_rules_include_those_of_other_programs() {
    let (netns, other) = (
        Netns::new().expect("a namespace"),
        Netns::new().expect("one"),
    );
    netns.run(|| {
        router(&other);
        let engine = synced();
        let reached = outcomes(&engine, "198.51.100.9");
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
        let filtered = outcomes(&engine, "198.51.100.9");
        let verdicts: Vec<_> = filtered.iter().map(|it| it.verdict.clone()).collect();
        assert_eq!(verdicts, [endpoints[0].clone(), Verdict::Dropped]);
        let last = filtered[1].trace.matches().last().map(ToString::to_string);
        let last = last.expect("a rule drops the packet");
        assert!(last.contains("inet firewall forward handle"), "{last}");
        let from_pod = outcomes(&engine, "10.1.0.9");
        assert!(from_pod.iter().all(|it| it.verdict != Verdict::Dropped));
    });
}
