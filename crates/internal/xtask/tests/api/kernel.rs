//! What the kernel has, as `nft monitor` tells it: an independent reader.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testkit::leftovers::Process;
use testkit::netns::Netns;
use testkit::nft;

use crate::cluster::until;

/// How often it is looked what was told.
const TICK: Duration = Duration::from_millis(2);

/// The maps from Services to their endpoints.
const BACKENDS: [&str; 2] = ["backends", "nodeport-backends"];

/// What the names of tables begin with that only mark a point in time.
const MARK: &str = "mark-";

/// A listener to all that happens to the tables of a namespace.
#[derive(Debug)]
pub(crate) struct Kernel {
    told: Arc<Mutex<Told>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    marks: AtomicUsize,
}

/// What has been told up to now.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// What is in sets and maps: by family, set and key.
    elements: BTreeMap<(String, String, String), String>,
    /// What Services had before the commit that is told now.
    former: BTreeSet<Fact>,
    /// What Services lost, in the order of time.
    pub(crate) lost: Vec<(Instant, Fact)>,
    /// What was deleted, whatever it was.
    pub(crate) deletions: Vec<String>,
    /// How many commits there were.
    pub(crate) commits: usize,
    /// How many times Services got something.
    pub(crate) gained: usize,
    /// The last mark.
    mark: usize,
}

/// Something that a Service has: an address, or an endpoint.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Fact {
    /// Whose it is: `10.96.0.10`, `10.96.0.10 . tcp . 80` or `tcp . 30080`.
    pub(crate) service: String,
    /// `10.244.1.11 . 8080`; empty for an address.
    pub(crate) endpoint: String,
}

impl Kernel {
    /// Listens in a namespace that has no tables yet.
    pub(crate) fn listen(netns: &Netns) -> Self {
        let monitor = Process::start(netns, Command::new("nft").arg("monitor")).unwrap();
        let (told, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (heard, stopped) = (Arc::clone(&told), Arc::clone(&stop));
        let thread = thread::spawn(move || hear(&monitor, &heard, &stopped));
        let kernel = Self {
            told,
            stop,
            thread: Some(thread),
            marks: AtomicUsize::new(0),
        };
        // What happened before it listened would never be told.
        until("nft listens", || {
            kernel.mark(netns);
            kernel.look(|told| told.mark > 0)
        });
        kernel
    }

    /// Waits until everything was told that has happened up to now.
    pub(crate) fn catch_up(&self, netns: &Netns) {
        let mark = self.mark(netns);
        until("nft tells what happened", || {
            self.look(|told| told.mark >= mark)
        });
    }

    /// Makes and removes a table that is nobody's, and returns its number.
    fn mark(&self, netns: &Netns) -> usize {
        let mark = 1 + self.marks.fetch_add(1, Ordering::Relaxed);
        // In a commit each, for together they are nothing.
        for verb in ["add", "delete"] {
            let name = format!("{MARK}{mark}");
            netns.run(|| nft::succeeds(&[verb, "table", "inet", &name], ""));
        }
        mark
    }

    /// Looks at what was told.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Told) -> T) -> T {
        look(&self.told.lock().unwrap())
    }

    /// Tells whether Services have an endpoint, or one of them an address.
    pub(crate) fn has(&self, text: &str) -> bool {
        let is_it = |fact: &Fact| fact.endpoint == text || fact.service == text;
        self.look(|told| told.facts().iter().any(is_it))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Told {
    /// Returns what Services have.
    fn facts(&self) -> BTreeSet<Fact> {
        let elements = self.elements.iter();
        let facts = elements.filter_map(|((_, set, key), value)| {
            if set == "active-cluster-ips" {
                return Some(Fact {
                    service: key.clone(),
                    endpoint: String::new(),
                });
            }
            let (service, _slot) = key.rsplit_once(" . ")?;
            BACKENDS.contains(&&**set).then(|| Fact {
                service: service.to_owned(),
                endpoint: value.clone(),
            })
        });
        facts.collect()
    }

    /// Takes a line such as `add element ip kube-proxy active-cluster-ips { 10.96.0.10 }`.
    fn take(&mut self, line: &str) {
        if line.starts_with("# new generation") {
            return self.end();
        }
        let words: Vec<&str> = line.split(' ').collect();
        match *words {
            [_, "table", "inet", name] => {
                let mark = name.strip_prefix(MARK).and_then(|mark| mark.parse().ok());
                self.mark = mark.unwrap_or(self.mark);
            }
            ["add", "element", family, _, set, ..] => {
                let (key, value) = element(line);
                self.elements
                    .insert((family.to_owned(), set.to_owned(), key), value);
            }
            ["delete", "element", family, _, set, ..] => {
                let (key, _) = element(line);
                self.elements
                    .remove(&(family.to_owned(), set.to_owned(), key));
                self.deletions.push(line.to_owned());
            }
            ["delete", kind, family, _, ref name @ ..] => {
                let is_its = |of: &(String, String, String)| {
                    of.0 == family && (kind == "table" || name.first() == Some(&&*of.1))
                };
                if matches!(kind, "table" | "set" | "map") {
                    self.elements.retain(|of, _| !is_its(of));
                }
                self.deletions.push(line.to_owned());
            }
            _ => {}
        }
    }

    /// Takes the end of a commit: what it replaced by the same is not lost.
    fn end(&mut self) {
        let facts = self.facts();
        self.commits += 1;
        self.gained += facts.difference(&self.former).count();
        let now = Instant::now();
        let lost = self.former.difference(&facts).cloned();
        self.lost.extend(lost.map(|fact| (now, fact)));
        self.former = facts;
    }
}

/// Reads lines until told to stop.
fn hear(monitor: &Process, told: &Mutex<Told>, stop: &AtomicBool) {
    let mut rest = String::new();
    while !stop.load(Ordering::Relaxed) {
        rest += &monitor.news();
        while let Some((line, after)) = rest.split_once('\n') {
            told.lock().unwrap().take(line.trim());
            rest = after.to_owned();
        }
        thread::sleep(TICK);
    }
}

/// Returns key and value of `… { KEY : VALUE }`.
fn element(line: &str) -> (String, String) {
    let inside = line
        .split_once("{ ")
        .and_then(|(_, inside)| inside.strip_suffix(" }"));
    let inside = inside.unwrap_or_else(|| panic!("not an element: {line}"));
    let (key, value) = inside.split_once(" : ").unwrap_or((inside, ""));
    (key.to_owned(), value.to_owned())
}
