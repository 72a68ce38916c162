//! Detection of changes by other programs.

use std::process::Command;
use std::time::Duration;

use proxy_core::{Engine, Event, Family, IptablesBackend, Mode, Report};
use testkit::netns::Netns;
use vipline_iptables::{self as iptables, Variant};

use super::chains::{chains, save, sorted};
use super::run;
use crate::fixtures::{self, apply, sync, web_with};

/// Returns a watching engine after its first sync, with the iptables variant of the
/// machine or over netlink.
fn watching_engine(backend: IptablesBackend) -> (Engine, Duration) {
    let mut config = fixtures::config().with_mode(Mode::Iptables);
    config.iptables.backend = backend;
    let mut engine = config.open().expect("iptables is installed");
    apply(&mut engine, web_with("10.96.0.10", 3).events());
    engine.apply(Event::Synced);
    let mut now = Duration::ZERO;
    let report = sync(&mut engine, &mut now);
    assert!(report.is_success(), "{report}");
    engine
        .watch()
        .expect("the kernel sends nf_tables notifications");
    assert!(engine.is_watching());
    (engine, now)
}

/// Polls for up to two seconds of engine time until a sync is done.
fn next_report(engine: &mut Engine, now: &mut Duration) -> Option<Report> {
    for _ in 0..20 {
        *now += Duration::from_millis(100);
        if let Some(report) = engine.poll(*now) {
            return Some(report);
        }
        let ready = engine.fds();
        let mut fds: Vec<_> = ready
            .iter()
            .map(|fd| rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN))
            .collect();
        let wait = Duration::from_millis(20)
            .try_into()
            .expect("the name is short");
        rustix::event::poll(&mut fds, Some(&wait)).expect("descriptors are open");
    }
    None
}

/// Asserts that the rules of both families use the nfacct counters.
fn assert_counters_are_used() {
    let mut counters = iptables::nfacct::Client::open().expect("the kernel has nfacct");
    let counters = counters.dump().expect("a dump");
    let used = counters.iter().map(|it| (it.name.as_str(), it.rules));
    let mut used: Vec<_> = used.collect();
    used.sort_unstable();
    let expected = [
        ("ct_state_invalid_dropped_pkts", 2),
        ("localhost_nps_accepted_pkts", 0),
    ];
    assert_eq!(used, expected);
}

#[test]
fn foreign_changes_to_our_chains_are_detected_and_repaired_at_once() {
    for backend in [IptablesBackend::Programs, IptablesBackend::Netlink] {
        assert_changes_are_repaired(backend);
    }
}

fn assert_changes_are_repaired(backend: IptablesBackend) {
    Netns::new().expect("a network namespace").run(|| {
        let (mut engine, mut now) = watching_engine(backend);
        assert_counters_are_used();
        assert!(
            next_report(&mut engine, &mut now).is_none(),
            "no change happened"
        );
        // The engine's own change is not drift.
        apply(&mut engine, web_with("10.96.0.10", 4).events());
        let report = next_report(&mut engine, &mut now).expect("a change is due");
        assert!(report.is_success(), "{report}");
        assert!(
            next_report(&mut engine, &mut now).is_none(),
            "the change was the engine's own"
        );
        // Foreign chains in the same tables.
        for command in [
            "-t nat -N MINE",
            "-t nat -A MINE -j RETURN",
            "-t nat -I PREROUTING -j MINE",
            "-t nat -F MINE",
        ] {
            run(Variant::Nft, command);
        }
        assert!(
            next_report(&mut engine, &mut now).is_none(),
            "the changes concern foreign chains"
        );
        for damage in [
            "-t nat -F KUBE-SERVICES",
            "-t nat -D OUTPUT -m comment --comment PORTALS -j KUBE-SERVICES",
            "-t filter -F",
            "-t nat -F",
            "-t nat -A KUBE-MARK-MASQ -j ACCEPT",
        ] {
            let before = sorted(chains(&save(Variant::Nft, Family::V4)));
            let words = damage.split(' ').map(|word| match word {
                "PORTALS" => "kubernetes service portals",
                word => word,
            });
            let mut program = Command::new("iptables-nft");
            let output = program
                .args(words)
                .output()
                .expect("the program is installed");
            assert!(output.status.success(), "{damage}: {output:?}");
            let report = next_report(&mut engine, &mut now).expect(damage);
            assert!(report.is_success(), "{damage}: {report}");
            let drift = report.families[0]
                .drift
                .as_ref()
                .expect("the change is reported as drift");
            assert!(
                drift.changes > 0 && !drift.processes.is_empty(),
                "{damage}: {drift}"
            );
            let mut after = sorted(chains(&save(Variant::Nft, Family::V4)));
            let mut before = before;
            for chains in [&mut before, &mut after] {
                // The engine does not restore foreign rules.
                chains.retain(|_, rules| {
                    rules.retain(|rule| !rule.contains("MINE"));
                    true
                });
            }
            assert_eq!(after, before, "{damage}");
        }
    });
}
