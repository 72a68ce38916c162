//! A process that allocates and releases items at random, and logs its operations.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use vipline_service_ip::{Error, Etcd, EtcdCluster, OwnerRef, Range, Registry};

use crate::history::{Request, Response, Time};
use crate::server::{ADDRESS, Addressing, KEY, random, range};

/// Maximum number of items of a worker. All workers together exceed the range.
const MOST: usize = 6;

/// Minimum number of allocations of a worker.
const LEAST: usize = 20;

/// Wait after an error of etcd, and maximum backoff after conflicts.
const PAUSE: Duration = Duration::from_millis(10);

/// Parameters of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// Path of the log.
    pub(crate) file: PathBuf,
    /// End time.
    pub(crate) end: Time,
    /// Seed of the random numbers.
    pub(crate) seed: u64,
}

impl Task {
    /// Parses the output of [`Task::text`].
    pub(crate) fn parse(text: &str) -> Self {
        let mut words = text.splitn(3, ' ');
        let mut next = || words.next().unwrap();
        let (end, seed) = (next().parse().unwrap(), next().parse().unwrap());
        let file = next().into();
        Self { file, end, seed }
    }

    /// Encodes the parameters.
    pub(crate) fn text(&self) -> String {
        format!("{} {} {}", self.end, self.seed, self.file.display())
    }
}

/// Returns the time of a clock shared by all processes.
pub(crate) fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = Time::try_from(time.tv_sec).unwrap();
    seconds * 1_000_000_000 + Time::try_from(time.tv_nsec).unwrap()
}

/// Allocates and releases items until the end time and the minimum number.
pub(crate) fn run(task: &Task) {
    let endpoint = format!("http://{ADDRESS}");
    let cluster = EtcdCluster::new(&[&endpoint], Duration::from_secs(10));
    let store = Etcd::new(&cluster, KEY, range()).unwrap();
    let mut chance = random(task.seed + 1);
    let pause = move |attempts: usize| {
        let longest = PAUSE * (1 << attempts.min(4));
        let part = u32::try_from(chance() % 1000).unwrap();
        thread::sleep(longest * part / 1000);
    };
    let mut worker = Worker {
        registry: Registry::new(store).with_backoff(pause),
        owner: OwnerRef::service("default", &format!("service-{}", task.seed)),
        log: log(&task.file),
        random: Box::new(random(task.seed)),
    };
    let mut mine = Vec::new();
    let mut taken = 0;
    while now() < task.end || taken < LEAST {
        let request = worker.choose(&mine);
        let response = worker.ask(request);
        match (request, response) {
            (_, Response::Taken(item)) => {
                mine.push(item);
                taken += 1;
            }
            (Request::Release(item), Response::Freed | Response::Unknown) => {
                mine.retain(|other| *other != item);
            }
            _ => {}
        }
        if matches!(response, Response::Failed | Response::Unknown) {
            thread::sleep(PAUSE);
        }
    }
}

fn log(path: &Path) -> File {
    OpenOptions::new()
        .append(true)
        .create_new(true)
        .open(path)
        .unwrap()
}

struct Worker {
    registry: Addressing,
    owner: OwnerRef,
    log: File,
    random: Box<dyn FnMut() -> u64>,
}

impl Worker {
    fn choose(&mut self, mine: &[IpAddr]) -> Request {
        let mut below = |limit: usize| usize::try_from((self.random)() % limit as u64).unwrap();
        if !mine.is_empty() && (mine.len() >= MOST || below(3) == 0) {
            return Request::Release(mine[below(mine.len())]);
        }
        let count = usize::try_from(range().len()).unwrap();
        match below(3) {
            0 => Request::Reserve(range().item(below(count) as u128).unwrap()),
            _ => Request::Allocate,
        }
    }

    /// Logs a request, sends it, and logs the response.
    fn ask(&mut self, request: Request) -> Response {
        let Self {
            registry,
            owner,
            log,
            random,
        } = self;
        let mut attempts = 0;
        write(log, &format!("ask {} {request}\n", now()));
        let outcome = registry.change(|draft| {
            attempts += 1;
            Ok(match request {
                Request::Allocate => Response::Taken(draft.allocate(owner, &mut **random)?),
                Request::Reserve(item) => {
                    draft.reserve(item, owner)?;
                    Response::Taken(item)
                }
                Request::Release(item) => {
                    assert!(draft.release(item, owner)?, "the worker owns {item}");
                    Response::Freed
                }
            })
        });
        let response = match outcome {
            Ok(response) => response,
            Err(Error::Allocation(error)) if error.is_full() => Response::Full,
            Err(Error::Allocation(error)) if error.is_allocated() => Response::Allocated,
            Err(Error::Store(_)) => Response::Failed,
            Err(Error::Unknown(_)) => Response::Unknown,
            Err(error) => panic!("{error}"),
        };
        write(log, &format!("got {} {attempts} {response}\n", now()));
        response
    }
}

/// Writes a line with one system call.
fn write(log: &mut File, line: &str) {
    log.write_all(line.as_bytes()).unwrap();
}
