//! A watcher under random faults.

use std::thread;
use std::time::{Duration, Instant};

use apiserver::{ApiServer, Chaos, FaultKind};

use crate::support::{Mirror, service};

const DURATION: Duration = Duration::from_secs(12);
const PAUSE: Duration = Duration::from_millis(100);

/// Creates, changes and deletes objects until `until`.
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
async fn a_watcher_has_the_state_of_the_server_after_random_faults() {
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
            .all(|mishap| FaultKind::RECOVERABLE.contains(mishap))
    );
    assert_eq!(mirror.went_back(), Vec::<String>::new());
    println!(
        "{counts:?}, then {} lists, {} errors",
        mirror.lists(),
        mirror.errors().len()
    );
}

#[test]
fn only_the_selected_faults_are_injected() {
    let server = ApiServer::start();
    let some = [FaultKind::Cut, FaultKind::Compact, FaultKind::Stale];
    let chaos = Chaos::new(1, Duration::from_secs(1)).only(&some);
    let counts = chaos.pause(Duration::from_millis(20)).run(&server);
    assert!(!counts.is_empty());
    assert!(counts.keys().all(|mishap| some.contains(mishap)));
}
