//! An API server with random failures while objects change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use apiserver::{Chaos, FaultKind};
use testkit::flag::SetOnDrop;

use crate::cluster::{Cluster, service_with_endpoints, slice};

/// Duration of the failures. Each kind of failure occurs several times.
const CHAOS_TIME: Duration = Duration::from_secs(20);

/// Maximum time to converge afterwards: the maximum backoff of a watch, with a margin.
const RECOVERY_TIME: Duration = Duration::from_secs(60);

/// Pause between two changes, and between two checks.
const PAUSE: Duration = Duration::from_millis(40);

#[test]
fn rules_survive_api_failures_and_converge_afterwards() {
    let steady = service_with_endpoints("web", "10.96.0.10", 1);
    let cluster = Cluster::with(steady.into_iter().chain(service_with_endpoints(
        "busy",
        "10.96.0.11",
        2,
    )));
    let proxy = cluster.start();
    let is_over = AtomicBool::new(false);
    let (counts, checks) = thread::scope(|scope| {
        let chaos = scope.spawn(|| Chaos::new(7, CHAOS_TIME).run(&cluster.server));
        let changes = scope.spawn(|| change(&cluster, &is_over));
        let checks = scope.spawn(|| check(&cluster, &is_over));
        let stop = SetOnDrop::new(&is_over);
        let counts = chaos.join().unwrap();
        drop(stop);
        println!("{} changes", changes.join().unwrap());
        (counts, checks.join().unwrap())
    });
    println!("{checks} checks of the kernel during these failures: {counts:?}");
    assert!(
        counts.len() >= FaultKind::RECOVERABLE.len() - 1,
        "{counts:?}"
    );
    assert!(checks > 20, "{checks}");
    let end = Instant::now();
    while cluster.run("diff").code != 0 {
        assert!(
            end.elapsed() < RECOVERY_TIME,
            "the kernel differs {RECOVERY_TIME:?} after the end"
        );
    }
    assert!(proxy.terminate().unwrap().success());
}

/// Changes objects continuously, except for one Service. Returns the number of rounds.
fn change(cluster: &Cluster, is_over: &AtomicBool) -> usize {
    let mut round = 0;
    while !is_over.load(Ordering::Relaxed) {
        let number = u8::try_from(round % 7).unwrap();
        cluster.server.apply(slice("busy", 2, 1 + number));
        let name = format!("brief-{number}");
        match round / 7 % 2 {
            0 => {
                let ip = format!("10.96.1.{number}");
                cluster
                    .server
                    .apply_all(service_with_endpoints(&name, &ip, 10 + number));
            }
            _ if number % 2 == 0 => {
                cluster.server.apply(slice(&name, 10 + number, 3));
            }
            _ => {
                cluster.server.delete("Service", "default", &name);
                let slice = format!("{name}-{}", 10 + number);
                cluster.server.delete("EndpointSlice", "default", &slice);
            }
        }
        round += 1;
        thread::sleep(PAUSE);
    }
    round
}

/// Checks continuously that the unchanged Service is programmed. Returns the number of
/// checks.
fn check(cluster: &Cluster, is_over: &AtomicBool) -> usize {
    let mut checks = 0;
    while !is_over.load(Ordering::Relaxed) {
        let rules = cluster.ruleset();
        for text in ["10.96.0.10", "10.244.1.1", "10.244.1.2", "10.96.0.11"] {
            assert!(rules.contains(text), "{text} is not in\n{rules}");
        }
        checks += 1;
        thread::sleep(PAUSE);
    }
    checks
}
