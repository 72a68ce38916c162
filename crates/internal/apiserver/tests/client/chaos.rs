//! Everything that goes wrong, for a while.

use std::thread;
use std::time::{Duration, Instant};

use apiserver::{ApiServer, Chaos, Mishap};

use crate::support::{Mirror, service};

const DURATION: Duration = Duration::from_secs(12);
const PAUSE: Duration = Duration::from_millis(100);

/// Has objects come, change and go until the time.
fn churn(server: &ApiServer, until: Instant) {
    let mut round = 0_u16;
    while Instant::now() < until {
        let name = format!("s{}", round % 40);
        if round.is_multiple_of(7) {
            server.delete("Service", "default", &name);
        } else {
            server.apply(service(&name, round));
        }
        round = round.wrapping_add(1);
        thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_survives_it_and_knows_the_truth_at_the_end() {
    let server = ApiServer::start();
    let mirror = Mirror::new(&server).await;
    let chaos = Chaos::new(7, DURATION).pause(PAUSE);
    let counts = thread::scope(|scope| {
        let driver = scope.spawn(|| chaos.run(&server));
        churn(&server, Instant::now() + DURATION);
        driver.join().unwrap()
    });
    mirror.catch_up(&server).await;
    assert!(counts.values().sum::<usize>() > 0, "{counts:?}");
    assert!(
        counts
            .keys()
            .all(|mishap| Mishap::HARMLESS.contains(mishap))
    );
    assert_eq!(mirror.went_back(), Vec::<String>::new());
    println!(
        "{counts:?}, then {} lists, {} errors",
        mirror.lists(),
        mirror.errors().len()
    );
}

#[test]
fn only_what_was_asked_for_happens() {
    let server = ApiServer::start();
    let some = [Mishap::Cut, Mishap::Compact, Mishap::Stale];
    let chaos = Chaos::new(1, Duration::from_secs(1)).only(&some);
    let counts = chaos.pause(Duration::from_millis(20)).run(&server);
    assert!(!counts.is_empty());
    assert!(counts.keys().all(|mishap| some.contains(mishap)));
}
