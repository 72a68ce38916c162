//! Selection of real servers by each scheduler.

use testkit::traffic::{Connection, Protocol};
use vipline_ipvs::{Command, Commands, Scheduler};

use crate::site::{Site, both};
use crate::{commands, has_module};

#[test]
fn rr_distributes_equally_and_wrr_by_weight() {
    let mut site = Site::new(3);
    for protocol in both() {
        for family in 0..2 {
            let weights = ["-w 1", "-w 2", "-w 3"];
            let probe = site.serve(protocol, family, "-s rr", &weights);
            assert_eq!(site.shares(probe, &site.lab.client, 30), [10, 10, 10]);
            let probe = site.serve(protocol, family, "-s wrr", &weights);
            assert_eq!(site.shares(probe, &site.lab.client, 30), [5, 10, 15]);
        }
    }
}

#[test]
fn source_hashes_select_one_server_per_source_unless_ports_are_hashed() {
    let mut site = Site::new(3);
    let reals = ["", "", ""];
    for family in 0..2 {
        for scheduler in ["sh", "mh"] {
            let probe = site.serve(Protocol::Tcp, family, &format!("-s {scheduler}"), &reals);
            for host in [&site.lab.client, &site.lab.pod, &site.lab.remote] {
                let mut shares = site.shares(probe, host, 5);
                shares.sort_unstable();
                assert_eq!(shares, [0, 0, 5], "{scheduler} {}", host.name);
            }
            let options = format!("-s {scheduler} -b {scheduler}-port");
            let probe = site.serve(Protocol::Tcp, family, &options, &reals);
            let shares = site.shares(probe, &site.lab.client, 24);
            assert!(!shares.contains(&24), "{options}: {shares:?}");
        }
    }
}

#[test]
fn a_source_with_an_unavailable_server_moves_only_with_fallback() {
    let mut site = Site::new(2);
    for options in ["-s sh", "-s sh -b sh-fallback"] {
        let probe = site.serve(Protocol::Tcp, 0, options, &["", ""]);
        let shares = site.shares(probe, &site.lab.client, 4);
        let chosen = shares.iter().position(|share| *share == 4).unwrap();
        let out = site.real(Protocol::Tcp, probe.target, chosen, "-w 0");
        site.commit(&out.replace("-a", "-e"));
        let answers = probe.times(&site.lab.client.netns, 4);
        let other = &site.lab.backends[1 - chosen].name;
        let expected = if options.ends_with("fallback") { 4 } else { 0 };
        assert_eq!(answers.count(other), expected, "{options}: {answers}");
        assert_eq!(answers.succeeded(), expected, "{options}: {answers}");
    }
}

#[test]
fn a_source_with_a_full_server_moves_only_with_fallback() {
    let mut site = Site::new(2);
    for family in 0..2 {
        for options in [
            "-s sh",
            "-s sh -b sh-fallback",
            "-s mh",
            "-s mh -b mh-fallback",
        ] {
            let probe = site.serve(Protocol::Tcp, family, options, &["-x 1", "-x 1"]);
            let first = site.hold(probe, 1);
            let second = Connection::open(&site.lab.client.netns, probe);
            let other = second.map(|second| second.server() != first[0].server());
            let has_fallback = options.ends_with("fallback");
            assert_eq!(other.ok(), has_fallback.then_some(true), "{options}");
        }
    }
}

#[test]
fn dh_lblc_and_lblcr_select_one_server_per_destination() {
    let mut site = Site::new(2);
    for scheduler in ["dh", "lblc", "lblcr"] {
        let options = format!("-s {scheduler}");
        // With these weights, no server is overloaded.
        let probe = site.serve(Protocol::Tcp, 0, &options, &["-w 100", "-w 100"]);
        // The first connection is alone: of concurrent ones any can select the
        // server.
        let first = site.shares(probe, &site.lab.client, 1);
        let expected: Vec<_> = first.iter().map(|share| share * 6).collect();
        assert_eq!(
            site.shares(probe, &site.lab.client, 6),
            expected,
            "{scheduler}"
        );
        assert_eq!(
            site.shares(probe, &site.lab.pod, 6),
            expected,
            "{scheduler}"
        );
    }
}

#[test]
fn open_connections_determine_the_next_server() {
    let mut site = Site::new(2);
    for (scheduler, weights, count, expected) in [
        ("lc", ["-w 1", "-w 3"], 8, [4, 4]),
        ("wlc", ["-w 1", "-w 1"], 8, [4, 4]),
        ("wlc", ["-w 1", "-w 3"], 8, [2, 6]),
        ("sed", ["-w 1", "-w 3"], 8, [2, 6]),
        ("nq", ["-w 1", "-w 9"], 2, [1, 1]),
        ("fo", ["-w 1", "-w 3"], 6, [0, 6]),
        // Connections overflow beyond the weight.
        ("ovf", ["-w 2", "-w 3"], 6, [2, 4]),
        // A full server is skipped.
        ("fo", ["-w 1", "-w 3 -x 2"], 6, [4, 2]),
        ("rr", ["-x 1", ""], 6, [1, 5]),
    ] {
        for family in 0..2 {
            let probe = site.serve(Protocol::Tcp, family, &format!("-s {scheduler}"), &weights);
            let open = site.hold(probe, count);
            assert_eq!(site.held(&open), expected, "{scheduler} {weights:?}");
        }
    }
}

#[test]
fn connections_go_to_the_idle_server() {
    let mut site = Site::new(2);
    for scheduler in ["lc", "wlc"] {
        let probe = site.serve(Protocol::Tcp, 0, &format!("-s {scheduler}"), &[""]);
        let busy = site.hold(probe, 5);
        assert_eq!(site.held(&busy), [5, 0]);
        let idle = site.real(Protocol::Tcp, probe.target, 1, "");
        site.commit(&idle);
        let next = site.hold(probe, 5);
        assert_eq!(site.held(&next), [0, 5], "{scheduler}");
    }
}

#[test]
fn a_server_of_weight_zero_keeps_connections_and_receives_no_new_ones() {
    let mut site = Site::new(2);
    let probe = site.serve(Protocol::Tcp, 0, "-s rr", &["", ""]);
    let mut open = site.hold(probe, 4);
    assert_eq!(site.held(&open), [2, 2]);
    let drained = site.real(Protocol::Tcp, probe.target, 0, "-w 0");
    site.commit(&drained.replace("-a", "-e"));
    assert_eq!(site.shares(probe, &site.lab.client, 6), [0, 6]);
    for connection in &mut open {
        connection.exchange("still here").unwrap();
    }
}

#[test]
fn twos_uses_both_servers() {
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
        // Some kernels are built without it.
        assert!(error.is_unsupported(), "{error}");
        assert!(!has_module("ip_vs_twos"), "{error}");
        return;
    }
    let probe = site.serve(Protocol::Tcp, 0, "-s twos", &["", ""]);
    let shares = site.shares(probe, &site.lab.client, 40);
    assert!(!shares.contains(&0), "{shares:?}");
}
