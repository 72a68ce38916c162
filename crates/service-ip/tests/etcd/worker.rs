//! A process that allocates and releases at random, and writes down what it does.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use vipline_service_ip::{Error, Etcd, EtcdCluster, Range, Registry, ServiceRef};

use crate::history::{Answer, Question, Time};
use crate::server::{ADDRESS, Addressing, KEY, random, range};

/// How many items it has at most; all of them together want more than there
/// are.
const MOST: usize = 6;

/// How many items it takes at least, however slow the machine is.
const LEAST: usize = 20;

/// How long it waits when etcd is not there; at most when others are faster, and
/// longer each time.
const PAUSE: Duration = Duration::from_millis(10);

/// What a worker is told.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// Where it writes down what it does.
    pub(crate) file: PathBuf,
    /// When it ends.
    pub(crate) end: Time,
    /// What its random numbers follow from.
    pub(crate) seed: u64,
}

impl Task {
    /// Reads what [`Task::text`] wrote.
    pub(crate) fn parse(text: &str) -> Self {
        let mut words = text.splitn(3, ' ');
        let mut next = || words.next().unwrap();
        let (end, seed) = (next().parse().unwrap(), next().parse().unwrap());
        let file = next().into();
        Self { file, end, seed }
    }

    /// Returns it as a text.
    pub(crate) fn text(&self) -> String {
        format!("{} {} {}", self.end, self.seed, self.file.display())
    }
}

/// Returns the time, on a clock that all processes share.
pub(crate) fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = Time::try_from(time.tv_sec).unwrap();
    seconds * 1_000_000_000 + Time::try_from(time.tv_nsec).unwrap()
}

/// Allocates and releases until the end, and often enough.
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
        owner: ServiceRef::new("default", &format!("service-{}", task.seed)),
        log: log(&task.file),
        random: Box::new(random(task.seed)),
    };
    let mut mine = Vec::new();
    let mut taken = 0;
    while now() < task.end || taken < LEAST {
        let question = worker.choose(&mine);
        let answer = worker.ask(question);
        match (question, answer) {
            (_, Answer::Taken(item)) => {
                mine.push(item);
                taken += 1;
            }
            (Question::Release(item), Answer::Freed | Answer::Unknown) => {
                mine.retain(|other| *other != item);
            }
            _ => {}
        }
        if matches!(answer, Answer::Failed | Answer::Unknown) {
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
    owner: ServiceRef,
    log: File,
    random: Box<dyn FnMut() -> u64>,
}

impl Worker {
    fn choose(&mut self, mine: &[IpAddr]) -> Question {
        let mut below = |limit: usize| usize::try_from((self.random)() % limit as u64).unwrap();
        if !mine.is_empty() && (mine.len() >= MOST || below(3) == 0) {
            return Question::Release(mine[below(mine.len())]);
        }
        let count = usize::try_from(range().len()).unwrap();
        match below(3) {
            0 => Question::Reserve(range().item(below(count) as u128).unwrap()),
            _ => Question::Allocate,
        }
    }

    /// Writes down what it asks, asks, and writes down the answer.
    fn ask(&mut self, question: Question) -> Answer {
        let Self {
            registry,
            owner,
            log,
            random,
        } = self;
        let mut attempts = 0;
        write(log, &format!("ask {} {question}\n", now()));
        let outcome = registry.change(|draft| {
            attempts += 1;
            Ok(match question {
                Question::Allocate => Answer::Taken(draft.allocate(owner, &mut **random)?),
                Question::Reserve(item) => {
                    draft.reserve(item, owner)?;
                    Answer::Taken(item)
                }
                Question::Release(item) => {
                    assert!(draft.release(item, owner)?, "{item} is its own");
                    Answer::Freed
                }
            })
        });
        let answer = match outcome {
            Ok(answer) => answer,
            Err(Error::Allocation(error)) if error.is_full() => Answer::Full,
            Err(Error::Allocation(error)) if error.is_allocated() => Answer::Allocated,
            Err(Error::Store(_)) => Answer::Failed,
            Err(Error::Unknown(_)) => Answer::Unknown,
            Err(error) => panic!("{error}"),
        };
        write(log, &format!("got {} {attempts} {answer}\n", now()));
        answer
    }
}

/// Writes a line at once: who reads it later finds all of it or nothing.
fn write(log: &mut File, line: &str) {
    log.write_all(line.as_bytes()).unwrap();
}
