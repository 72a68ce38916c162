//! An API server on which everything goes wrong, while objects come and go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use apiserver::{Chaos, FaultKind};
use testkit::over::Over;

use crate::cluster::{Cluster, served, slice};

/// For how long things go wrong: each of them does so several times.
const WHILE: Duration = Duration::from_secs(20);

/// How long it may take afterwards until all is well: the longest wait of a
/// watch that failed many times, and some more.
const CALM: Duration = Duration::from_secs(60);

/// How far apart two changes are.
const PAUSE: Duration = Duration::from_millis(10);

#[test]
fn whatever_the_api_does_the_kernel_ends_up_as_it_wants_and_loses_nothing() {
    let steady = served("web", "10.96.0.10", 1);
    let cluster = Cluster::with(steady.into_iter().chain(served("busy", "10.96.0.11", 2)));
    let proxy = cluster.start();
    let is_over = AtomicBool::new(false);
    let (counts, looks) = thread::scope(|scope| {
        let chaos = scope.spawn(|| Chaos::new(7, WHILE).run(&cluster.server));
        let changes = scope.spawn(|| change(&cluster, &is_over));
        let looks = scope.spawn(|| look(&cluster, &is_over));
        let over = Over::new(&is_over);
        let counts = chaos.join().unwrap();
        drop(over);
        println!("{} changes", changes.join().unwrap());
        (counts, looks.join().unwrap())
    });
    println!("{looks} looks at the kernel while this went wrong: {counts:?}");
    assert!(
        counts.len() >= FaultKind::RECOVERABLE.len() - 1,
        "{counts:?}"
    );
    assert!(looks > 20, "{looks}");
    let end = Instant::now();
    while cluster.say("diff").code != 0 {
        assert!(end.elapsed() < CALM, "not in step {CALM:?} after the end");
    }
    assert!(proxy.terminate().unwrap().success());
}

/// Changes objects all the time, but one Service, and returns how often.
fn change(cluster: &Cluster, is_over: &AtomicBool) -> usize {
    let mut round = 0;
    while !is_over.load(Ordering::Relaxed) {
        let number = u8::try_from(round % 7).unwrap();
        cluster.server.apply(slice("busy", 2, 1 + number));
        let name = format!("brief-{number}");
        match round / 7 % 2 {
            0 => {
                let ip = format!("10.96.1.{number}");
                cluster.server.apply_all(served(&name, &ip, 10 + number));
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

/// Looks all the time for the Service that does not change, and returns how often.
fn look(cluster: &Cluster, is_over: &AtomicBool) -> usize {
    let mut looks = 0;
    while !is_over.load(Ordering::Relaxed) {
        let rules = cluster.ruleset();
        for text in ["10.96.0.10", "10.244.1.1", "10.244.1.2", "10.96.0.11"] {
            assert!(rules.contains(text), "{text} is not in\n{rules}");
        }
        looks += 1;
        thread::sleep(PAUSE);
    }
    looks
}
