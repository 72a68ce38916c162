//! Wakeups and requests of an idle proxy, and of a proxy without an API server.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use testkit::scoped::Process;

use crate::cluster::{Cluster, service_with_endpoints};

/// Duration of an observation.
const OBSERVATION: Duration = Duration::from_secs(5);

/// Number of tasks that connect to the API: one for each kind of objects, and one for
/// Events.
const API_TASKS: usize = 5;

/// Returns the number of voluntary context switches of a process.
fn waits(process: &Process) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.pid())).unwrap();
    // A thread may end meanwhile.
    let statuses =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    let waits = statuses.map(|status| {
        let line = |line: &str| {
            line.strip_prefix("voluntary_ctxt_switches:")?
                .trim()
                .parse()
                .ok()
        };
        status.lines().find_map(line).unwrap_or(0_u64)
    });
    waits.sum()
}

#[test]
fn an_idle_proxy_sleeps() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    let proxy = cluster.start();
    // Threads of the start phase end meanwhile.
    thread::sleep(OBSERVATION);
    let (before, requests) = (waits(&proxy), cluster.server.requests().len());
    thread::sleep(OBSERVATION);
    let woken = waits(&proxy).saturating_sub(before);
    println!("woken {woken} times in {OBSERVATION:?}");
    assert!(woken <= 2 * OBSERVATION.as_secs(), "{woken}");
    assert_eq!(cluster.server.requests().len(), requests);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn an_unreachable_api_is_retried_with_a_backoff() {
    let cluster = Cluster::new();
    let address = cluster.server.address();
    let listener = cluster
        .netns
        .run(|| TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let dead = listener.local_addr().unwrap();
    let text = cluster
        .server
        .kubeconfig()
        .replace(&address.to_string(), &dead.to_string());
    fs::write(cluster.kubeconfig(), text).unwrap();
    let attempts = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&attempts);
    // The thread ends with the test process.
    thread::spawn(move || {
        for connection in listener.incoming() {
            drop(connection);
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let proxy = cluster.start_unsynced("");
    thread::sleep(2 * OBSERVATION);
    let attempts = attempts.load(Ordering::Relaxed);
    println!("{attempts} connection attempts in {:?}", 2 * OBSERVATION);
    // Attempts start at once and after waits of at least 0.5, 1, 2 and 4 seconds.
    assert!(
        attempts > API_TASKS && attempts <= 5 * API_TASKS,
        "{attempts}"
    );
    assert!(proxy.terminate().unwrap().success());
}
