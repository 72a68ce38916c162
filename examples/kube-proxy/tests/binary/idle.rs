//! What the program does when there is nothing to do, or nobody to ask.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use testkit::leftovers::Process;

use crate::cluster::{Cluster, served};

/// For how long it is looked at.
const WHILE: Duration = Duration::from_secs(5);

/// How many tasks ask the API: one for each kind of objects, and one for Events.
const ASKING: usize = 5;

/// Returns how often the threads of a process have waited.
fn waits(process: &Process) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.pid())).unwrap();
    let statuses = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")));
    let waits = statuses.map(|status| {
        let status = status.unwrap();
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
fn a_proxy_with_nothing_to_do_sleeps() {
    let cluster = Cluster::with(served("web", "10.96.0.10", 1));
    let proxy = cluster.start();
    // Threads that were needed only at the start end meanwhile.
    thread::sleep(WHILE);
    let (before, requests) = (waits(&proxy), cluster.server.requests().len());
    thread::sleep(WHILE);
    let woken = waits(&proxy).saturating_sub(before);
    println!("woken {woken} times in {WHILE:?}");
    assert!(woken <= 2 * WHILE.as_secs(), "{woken}");
    assert_eq!(cluster.server.requests().len(), requests);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn an_api_that_is_away_is_asked_ever_less() {
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
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // It ends with the program: nobody else has the listener.
    thread::spawn(move || {
        for connection in listener.incoming() {
            drop(connection);
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let proxy = cluster.start_unsynced("");
    thread::sleep(2 * WHILE);
    let asked = asked.load(Ordering::Relaxed);
    println!("asked {asked} times in {:?}", 2 * WHILE);
    // At once, and after waits of 0.5, 1, 2 and 4 seconds at least.
    assert!(asked > ASKING && asked <= 5 * ASKING, "{asked}");
    assert!(proxy.terminate().unwrap().success());
}
