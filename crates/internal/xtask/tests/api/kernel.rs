//! State of the kernel according to `nft monitor`, independent of the proxy's code.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testkit::netns::Netns;
use testkit::nft;
use testkit::scoped::Process;

use crate::cluster::until;

/// Interval of reading the output of `nft monitor`.
const TICK: Duration = Duration::from_millis(2);

/// Names of the maps from Services to endpoints, without the number of endpoints that may
/// follow.
const BACKENDS: [&str; 2] = ["backends", "nodeport-backends"];

/// Map of Services with one endpoint, whose keys have no slot.
const SINGLE: &str = "single-backends";

/// Prefix of the names of marker tables, which mark a point in time.
const MARK: &str = "mark-";

/// A monitor of the tables of a namespace.
#[derive(Debug)]
pub(crate) struct KernelMonitor {
    observed: Arc<Mutex<Observed>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    marks: AtomicUsize,
}

/// State after the notifications so far.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Elements of sets and maps by family, set and key.
    elements: BTreeMap<(String, String, String), String>,
    /// Facts before the current commit.
    former: BTreeSet<Fact>,
    /// Removed facts with the time of their removal, in order.
    pub(crate) lost: Vec<(Instant, Fact)>,
    /// Notifications of deletions.
    pub(crate) deletions: Vec<String>,
    /// Number of commits.
    pub(crate) commits: usize,
    /// Number of added facts.
    pub(crate) gained: usize,
    /// Number of the last marker table.
    mark: usize,
}

/// An address or an endpoint of a Service.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Fact {
    /// Service: `10.96.0.10`, `10.96.0.10 . tcp . 80` or `tcp . 30080`.
    pub(crate) service: String,
    /// Endpoint, such as `10.244.1.11 . 8080`; empty for an address.
    pub(crate) endpoint: String,
}

impl KernelMonitor {
    /// Starts `nft monitor` in a namespace without tables.
    pub(crate) fn listen(netns: &Netns) -> Self {
        let monitor = Process::start(netns, Command::new("nft").arg("monitor")).unwrap();
        let (observed, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (shared, stopped) = (Arc::clone(&observed), Arc::clone(&stop));
        let thread = thread::spawn(move || read(&monitor, &shared, &stopped));
        let kernel = Self {
            observed,
            stop,
            thread: Some(thread),
            marks: AtomicUsize::new(0),
        };
        // nft does not report changes before it listens.
        until("nft monitor listens", || {
            kernel.mark(netns);
            kernel.inspect(|observed| observed.mark > 0)
        });
        kernel
    }

    /// Waits until all changes so far have been reported.
    pub(crate) fn catch_up(&self, netns: &Netns) {
        let mark = self.mark(netns);
        until("nft reports all changes", || {
            self.inspect(|observed| observed.mark >= mark)
        });
    }

    /// Creates and deletes a marker table, and returns its number.
    fn mark(&self, netns: &Netns) -> usize {
        let mark = 1 + self.marks.fetch_add(1, Ordering::Relaxed);
        // A single commit of both would have no effect and no notification.
        for verb in ["add", "delete"] {
            let name = format!("{MARK}{mark}");
            netns.run(|| nft::succeeds(&[verb, "table", "inet", &name], ""));
        }
        mark
    }

    /// Calls `inspect` with the current state.
    pub(crate) fn inspect<T>(&self, inspect: impl FnOnce(&Observed) -> T) -> T {
        inspect(&self.observed.lock().unwrap())
    }

    /// Returns whether a Service has the address or the endpoint `key`.
    pub(crate) fn has(&self, key: &str) -> bool {
        let matches = |fact: &Fact| fact.endpoint == key || fact.service == key;
        self.inspect(|observed| observed.facts().iter().any(matches))
    }
}

impl Drop for KernelMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Observed {
    /// Returns the addresses and endpoints of all Services.
    fn facts(&self) -> BTreeSet<Fact> {
        let elements = self.elements.iter();
        let facts = elements.filter_map(|((_, set, key), value)| {
            if set == "active-cluster-ips" {
                return Some(Fact {
                    service: key.clone(),
                    endpoint: String::new(),
                });
            }
            if set == SINGLE {
                return Some(Fact {
                    service: key.clone(),
                    endpoint: value.clone(),
                });
            }
            let (service, _slot) = key.rsplit_once(" . ")?;
            let digits = |letter: char| letter.is_ascii_digit() || letter == '-';
            let name = set.trim_end_matches(digits);
            BACKENDS.contains(&name).then(|| Fact {
                service: service.to_owned(),
                endpoint: value.clone(),
            })
        });
        facts.collect()
    }

    /// Applies a line such as `add element ip kube-proxy active-cluster-ips { 10.96.0.10 }`.
    fn apply(&mut self, line: &str) {
        if line.starts_with("# new generation") {
            return self.end_commit();
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

    /// Ends a commit. A fact that the commit removes and adds again is not lost.
    fn end_commit(&mut self) {
        let facts = self.facts();
        self.commits += 1;
        self.gained += facts.difference(&self.former).count();
        let now = Instant::now();
        let lost = self.former.difference(&facts).cloned();
        self.lost.extend(lost.map(|fact| (now, fact)));
        self.former = facts;
    }
}

/// Reads notifications until `stop` is set.
fn read(monitor: &Process, observed: &Mutex<Observed>, stop: &AtomicBool) {
    let mut rest = String::new();
    while !stop.load(Ordering::Relaxed) {
        rest += &monitor.take_output();
        while let Some((line, after)) = rest.split_once('\n') {
            observed.lock().unwrap().apply(line.trim());
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
