//! Several processes change one range while processes and etcd are killed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, thread};

use rustix::process::Signal;
use testkit::scoped::{Directory, Process};
use vipline_service_ip::{Finding, OwnerRef, Pool, Range, Repair, ServiceItems};

use crate::history::{History, Response, parse};
use crate::server::{Addressing, Server, range};
use crate::worker::{self, Task, now};

/// Environment variable with the parameters of a worker process.
const TASK: &str = "VIPLINE_TEST_WORKER";

/// Environment variable with the duration of the test in seconds. The default is 12.
const SECONDS: &str = "VIPLINE_LINEARIZABILITY_SECONDS";

/// Number of workers, and number of killed workers.
const WORKERS: usize = 8;
const KILLED: usize = 2;

/// Maximum time for workers to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// A disturbance.
#[derive(Clone, Copy, Debug)]
enum Event {
    KillWorker(usize),
    RestartEtcd,
}

#[test]
fn no_item_is_allocated_twice_and_repair_releases_leaked_items() {
    if let Ok(task) = env::var(TASK) {
        return worker::run(&Task::parse(&task));
    }
    let seconds = env::var(SECONDS).map_or(12, |text| text.parse().expect(SECONDS));
    let length = Duration::from_secs(seconds);
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    println!("{WORKERS} workers for {seconds} s, seed {seed}");
    let mut server = Server::start();
    let folder = Directory::new().unwrap();
    let end = now() + u64::try_from(length.as_nanos()).unwrap();
    let tasks: Vec<Task> = (0..WORKERS)
        .map(|number| Task {
            file: folder.path().join(format!("{number}.log")),
            end,
            seed: u64::from(seed) + number as u64,
        })
        .collect();
    let workers = tasks.iter().map(|task| start(&server, task)).collect();
    disturb(&mut server, workers, length, seed.into());

    let texts = tasks.iter().map(|task| fs::read_to_string(&task.file));
    let history = History(texts.map(|text| parse(&text.unwrap())).collect());
    describe(&history, length);
    let items: Vec<IpAddr> = (0..range().len())
        .filter_map(|number| range().item(number))
        .collect();
    assert_eq!(history.contradictions(&items), [""; 0]);
    server.inside(|| repair(&history, &mut server.registry()));
}

fn start(server: &Server, task: &Task) -> Process {
    let test = "linearizability::no_item_is_allocated_twice_and_repair_releases_leaked_items";
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(TASK, task.text());
    Process::start(&server.netns, &mut command).unwrap()
}

/// Kills workers and etcd at random moments, and waits for the others.
fn disturb(server: &mut Server, workers: Vec<Process>, length: Duration, seed: u64) {
    let start = Instant::now();
    let mut random = crate::server::random(seed);
    let mut events: Vec<(Duration, Event)> = (0..KILLED)
        .map(Event::KillWorker)
        .chain([Event::RestartEtcd])
        .map(|event| {
            // Not before a worker has started, and not after the end.
            let part = 10 + u32::try_from(random() % 80).unwrap();
            (length * part / 100, event)
        })
        .collect();
    events.sort_by_key(|(time, _)| *time);
    for (time, event) in events {
        thread::sleep(time.saturating_sub(start.elapsed()));
        println!("after {:.2?}: {event:?}", start.elapsed());
        match event {
            Event::KillWorker(number) => workers[number].signal(Signal::KILL).unwrap(),
            Event::RestartEtcd => {
                server.kill();
                server.run();
            }
        }
    }
    for (number, mut worker) in workers.into_iter().enumerate() {
        let status = loop {
            if let Some(status) = worker.try_wait().unwrap() {
                break status;
            }
            let patience = length + PATIENCE;
            assert!(start.elapsed() < patience, "worker {number} does not end");
            thread::sleep(Duration::from_millis(20));
        };
        let may_fail = number < KILLED;
        assert!(
            status.success() || may_fail,
            "{number}: {}",
            worker.output()
        );
    }
}

/// Prints statistics and checks minimum numbers of operations.
fn describe(history: &History, length: Duration) {
    let count = |is: fn(Response) -> bool| {
        let all = history.operations();
        all.filter(|operation| is(operation.response)).count()
    };
    let taken = count(|response| matches!(response, Response::Taken(_)));
    let freed = count(|response| response == Response::Freed);
    let full = count(|response| response == Response::Full);
    let allocated = count(|response| response == Response::Allocated);
    let unknown = count(|response| response == Response::Unknown);
    let failed = count(|response| response == Response::Failed);
    let done = history.operations().count();
    let attempts = || history.operations().map(|operation| operation.attempts);
    let (sum, most): (usize, usize) = (attempts().sum(), attempts().max().unwrap());
    println!(
        "{done} operations, {:.0} a second: {taken} allocated, {freed} released, {full} rejected as full, \
         {allocated} refused as taken, {failed} failed, {unknown} unknown; \
         {:.2} attempts each, {most} at most",
        done as f64 / length.as_secs_f64(),
        sum as f64 / done as f64,
    );
    // Each worker must reach its minimum, which requires releases.
    assert!(taken >= 100 && freed >= 50);
}

/// Checks the final state in etcd, and that repair releases all leaked items.
fn repair(history: &History, registry: &mut Addressing) {
    let held = |workers: std::ops::Range<usize>| -> BTreeSet<IpAddr> {
        workers.flat_map(|worker| history.held(worker)).collect()
    };
    let taken: BTreeSet<IpAddr> = registry.refresh().unwrap().pool.items().collect();
    // Items of killed workers stay allocated.
    let lost: Vec<_> = held(0..WORKERS).difference(&taken).copied().collect();
    assert!(lost.is_empty(), "owned, but not allocated: {lost:?}");
    let kept = held(KILLED..WORKERS);
    let leaks: BTreeSet<IpAddr> = taken.difference(&kept).copied().collect();
    println!(
        "{} allocated at the end: {} owned, {} leaked, {} by killed workers",
        taken.len(),
        kept.len(),
        leaks.len(),
        held(0..KILLED).len(),
    );
    let services = || {
        let all = (KILLED..WORKERS).map(|worker| {
            let owner = OwnerRef::service("default", &format!("service-{worker}"));
            ServiceItems::new(owner, history.held(worker))
        });
        all.collect()
    };
    let mut repair = Repair::new();
    let mut freed = BTreeSet::new();
    for pass in 1..=3 {
        let findings = repair.pass(registry, services).unwrap();
        for finding in &findings {
            match finding {
                Finding::Leaked { item, .. } if pass == 3 => assert!(freed.insert(*item)),
                Finding::PossibleLeak { item, .. } if pass < 3 => assert!(leaks.contains(item)),
                _ => panic!("in pass {pass}: {finding}"),
            }
        }
    }
    assert_eq!(freed, leaks);
    let taken: BTreeSet<IpAddr> = registry.refresh().unwrap().pool.items().collect();
    assert_eq!(taken, kept);
    println!("{} repaired", freed.len());
}
