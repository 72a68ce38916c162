//! CPU time of a change among many Services, with a margin for slow machines.
//!
//! The benches assert the exact limits. The limits here are ten times as large.

use std::time::Duration;

use proxy_core::{Engine, Event};
use testkit::cpu;
use testkit::generate::{Stack, cluster};
use testkit::netns::Netns;

use crate::fixtures::{apply, config, web, with_endpoints};

/// Ten times the maximum time of a change from event to commit. CPU time includes system
/// calls, and excludes time of other processes.
const DEADLINE: Duration = Duration::from_millis(10);

/// Changes in a series, and series until one must meet the deadline, because other
/// processes use the caches.
const CHANGES: usize = 100;
const ATTEMPTS: usize = 3;

#[test]
fn a_change_among_ten_thousand_services_meets_its_deadline() {
    let events: Vec<_> = cluster(10_000, 1, Stack::V4)
        .flat_map(|builder| builder.events())
        .collect();
    Netns::new().expect("a network namespace").run(|| {
        let mut engine = config().open().expect("the kernel has nf_tables");
        engine.set_flow_cleanup_clock(cpu::now);
        apply(&mut engine, events);
        engine.apply(Event::Synced);
        let mut now = Duration::ZERO;
        assert!(engine.poll(now).expect("the first sync").is_success());
        let mut assert_deadline = |name: &str, endpoints: fn(usize) -> Vec<String>| {
            let mut series = || -> Duration {
                let mut times: Vec<_> = (0..CHANGES)
                    .map(|number| change(&mut engine, &mut now, &endpoints(number)))
                    .collect();
                times.sort_unstable();
                times[CHANGES - 2]
            };
            let mut times = Vec::new();
            while times.last().is_none_or(|&time| time > DEADLINE) {
                assert!(times.len() < ATTEMPTS, "{name}: {times:?}");
                times.push(series());
            }
        };
        assert_deadline("one endpoint replaced", |number| addresses(5, number));
        assert_deadline("endpoints 5 to 6 to 5", |number| {
            addresses(5 + number % 2, 0)
        });
    });
}

/// Returns `count` addresses, the last of which depends on `number`.
fn addresses(count: usize, number: usize) -> Vec<String> {
    let last = |n| if n + 1 == count { number % 200 } else { 0 };
    (0..count)
        .map(|n| format!("10.200.{}.{}", n + 1, last(n) + 1))
        .collect()
}

/// Replaces the endpoints of a Service. Returns the CPU time from the event to the commit,
/// without the search for stale flows that follows.
fn change(engine: &mut Engine, now: &mut Duration, addresses: &[String]) -> Duration {
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let events = with_endpoints(web("10.250.0.1"), &addresses).events();
    assert!(engine.poll(*now).is_none(), "nothing is due yet");
    *now += Duration::from_secs(5);
    let (time, report) = cpu::time_of(|| {
        apply(engine, events);
        engine.poll(*now).expect("a change is due")
    });
    assert!(report.is_success(), "{report}");
    let searches = report.families.into_iter().filter_map(|done| done.cleanup);
    let searches = searches.map(|cleaned| cleaned.expect("conntrack can be searched"));
    time.saturating_sub(searches.filter_map(|cleaned| cleaned.duration).sum())
}
