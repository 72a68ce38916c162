//! Which real server each scheduler chooses.

use testkit::traffic::{Conversation, Protocol};
use vipline_ipvs::{Command, Commands, Scheduler};

use crate::site::{Site, both};
use crate::{commands, has_module};

#[test]
fn shares_are_equal_by_rr_and_by_weight_by_wrr() {
    let mut site = Site::new(3);
    for protocol in both() {
        for family in 0..2 {
            let weights = ["-w 1", "-w 2", "-w 3"];
            let ask = site.serve(protocol, family, "-s rr", &weights);
            assert_eq!(site.shares(ask, &site.lab.client, 30), [10, 10, 10]);
            let ask = site.serve(protocol, family, "-s wrr", &weights);
            assert_eq!(site.shares(ask, &site.lab.client, 30), [5, 10, 15]);
        }
    }
}

#[test]
fn hashes_keep_a_source_with_its_server_unless_its_port_counts() {
    let mut site = Site::new(3);
    let reals = ["", "", ""];
    for family in 0..2 {
        for scheduler in ["sh", "mh"] {
            let ask = site.serve(Protocol::Tcp, family, &format!("-s {scheduler}"), &reals);
            for host in [&site.lab.client, &site.lab.pod, &site.lab.remote] {
                let mut shares = site.shares(ask, host, 5);
                shares.sort_unstable();
                assert_eq!(shares, [0, 0, 5], "{scheduler} {}", host.name);
            }
            let options = format!("-s {scheduler} -b {scheduler}-port");
            let ask = site.serve(Protocol::Tcp, family, &options, &reals);
            let shares = site.shares(ask, &site.lab.client, 24);
            assert!(!shares.contains(&24), "{options}: {shares:?}");
        }
    }
}

#[test]
fn a_source_whose_server_is_out_has_another_with_a_fallback_only() {
    let mut site = Site::new(2);
    for options in ["-s sh", "-s sh -b sh-fallback"] {
        let ask = site.serve(Protocol::Tcp, 0, options, &["", ""]);
        let shares = site.shares(ask, &site.lab.client, 4);
        let chosen = shares.iter().position(|share| *share == 4).unwrap();
        let out = site.real(Protocol::Tcp, ask.target, chosen, "-w 0");
        site.commit(&out.replace("-a", "-e"));
        let answers = ask.times(&site.lab.client.netns, 4);
        let other = &site.lab.backends[1 - chosen].name;
        let expected = if options.ends_with("fallback") { 4 } else { 0 };
        assert_eq!(answers.by(other), expected, "{options}: {answers}");
        assert_eq!(answers.answered(), expected, "{options}: {answers}");
    }
}

#[test]
fn a_source_whose_server_is_full_has_another_with_a_fallback_only() {
    let mut site = Site::new(2);
    for family in 0..2 {
        for options in [
            "-s sh",
            "-s sh -b sh-fallback",
            "-s mh",
            "-s mh -b mh-fallback",
        ] {
            let ask = site.serve(Protocol::Tcp, family, options, &["-x 1", "-x 1"]);
            let first = site.hold(ask, 1);
            let second = Conversation::open(&site.lab.client.netns, ask);
            let other = second.map(|second| second.server() != first[0].server());
            let has_fallback = options.ends_with("fallback");
            assert_eq!(other.ok(), has_fallback.then_some(true), "{options}");
        }
    }
}

#[test]
fn destinations_have_one_server_by_dh_lblc_and_lblcr() {
    let mut site = Site::new(2);
    for scheduler in ["dh", "lblc", "lblcr"] {
        let options = format!("-s {scheduler}");
        // With such weights, no server has too many connections.
        let ask = site.serve(Protocol::Tcp, 0, &options, &["-w 100", "-w 100"]);
        // The first connection chooses: of two at once, each may.
        let first = site.shares(ask, &site.lab.client, 1);
        let expected: Vec<_> = first.iter().map(|share| share * 6).collect();
        assert_eq!(
            site.shares(ask, &site.lab.client, 6),
            expected,
            "{scheduler}"
        );
        assert_eq!(site.shares(ask, &site.lab.pod, 6), expected, "{scheduler}");
    }
}

#[test]
fn open_connections_tell_where_the_next_one_goes() {
    let mut site = Site::new(2);
    for (scheduler, weights, count, expected) in [
        ("lc", ["-w 1", "-w 3"], 8, [4, 4]),
        ("wlc", ["-w 1", "-w 1"], 8, [4, 4]),
        ("wlc", ["-w 1", "-w 3"], 8, [2, 6]),
        ("sed", ["-w 1", "-w 3"], 8, [2, 6]),
        ("nq", ["-w 1", "-w 9"], 2, [1, 1]),
        ("fo", ["-w 1", "-w 3"], 6, [0, 6]),
        // It overflows when there are more than its weight.
        ("ovf", ["-w 2", "-w 3"], 6, [2, 4]),
        // One that is full is left out.
        ("fo", ["-w 1", "-w 3 -x 2"], 6, [4, 2]),
        ("rr", ["-x 1", ""], 6, [1, 5]),
    ] {
        for family in 0..2 {
            let ask = site.serve(Protocol::Tcp, family, &format!("-s {scheduler}"), &weights);
            let open = site.hold(ask, count);
            assert_eq!(site.held(&open), expected, "{scheduler} {weights:?}");
        }
    }
}

#[test]
fn connections_go_to_the_idle_server() {
    let mut site = Site::new(2);
    for scheduler in ["lc", "wlc"] {
        let ask = site.serve(Protocol::Tcp, 0, &format!("-s {scheduler}"), &[""]);
        let busy = site.hold(ask, 5);
        assert_eq!(site.held(&busy), [5, 0]);
        let idle = site.real(Protocol::Tcp, ask.target, 1, "");
        site.commit(&idle);
        let next = site.hold(ask, 5);
        assert_eq!(site.held(&next), [0, 5], "{scheduler}");
    }
}

#[test]
fn a_server_of_weight_zero_keeps_its_connections_and_gets_no_other() {
    let mut site = Site::new(2);
    let ask = site.serve(Protocol::Tcp, 0, "-s rr", &["", ""]);
    let mut open = site.hold(ask, 4);
    assert_eq!(site.held(&open), [2, 2]);
    let drained = site.real(Protocol::Tcp, ask.target, 0, "-w 0");
    site.commit(&drained.replace("-a", "-e"));
    assert_eq!(site.shares(ask, &site.lab.client, 6), [0, 6]);
    for conversation in &mut open {
        conversation.say("still here").unwrap();
    }
}

#[test]
fn both_of_two_that_chance_picks_are_asked() {
    let mut site = Site::new(2);
    let probe = commands("-A -t 192.0.2.99:1 -s twos");
    let Command::Add(server) = probe.as_slice()[0] else {
        panic!("it is an addition");
    };
    assert_eq!(server.scheduler, Scheduler::PowerOfTwo);
    if let Err(error) = site
        .client
        .commit(&Commands::from_iter([probe.as_slice()[0]]))
    {
        // Not each kernel has been built with it.
        assert!(error.is_scheduler_missing(), "{error}");
        assert!(!has_module("ip_vs_twos"), "{error}");
        return;
    }
    let ask = site.serve(Protocol::Tcp, 0, "-s twos", &["", ""]);
    let shares = site.shares(ask, &site.lab.client, 40);
    assert!(!shares.contains(&0), "{shares:?}");
}
