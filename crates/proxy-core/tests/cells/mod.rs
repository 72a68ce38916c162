//! Cells of the packet matrix, and how they are judged.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use testkit::lab::{Host, Lab};
use testkit::traffic::{Ask, Protocol};

use crate::rules::Rules;
use crate::stage::{Destination, Source, Stage, WAYS, Way};

/// How long something is waited for that does not happen.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long something is waited for that does happen, though a machine may have
/// much else to do.
const MUCH_PATIENCE: Duration = Duration::from_secs(15);

/// How long a client waits until it sends the first packet again.
///
/// A refusal that comes while the first packet is being sent is lost on it.
const SECOND_PACKET: Duration = Duration::from_secs(1);

/// How many cells are judged at a time.
const JUDGES: usize = 16;

/// How many are in a guest, where datagrams get lost when there is too much to do.
const JUDGES_OF_GUESTS: usize = 4;

/// Where from, where to, and what happens with each Service of the table.
pub(crate) type Row<const N: usize> = (Source, Destination, [&'static str; N]);

/// Where modes differ: a cell that names one of these cases is what is seen in
/// mode nftables, and in mode iptables in IPv4 and in IPv6.
#[rustfmt::skip]
const DIFFERENCES: [(&str, [&str; 3], &str); 11] = [
    ("localhost",                  ["REJECT", "all M",    "REJECT"], "node ports are served on 127.0.0.0/8 by routes to it, which IPv6 has not"),
    ("localhost, nobody",          ["node",   "REJECT",   "REJECT"], "a node port without endpoints is refused on all local addresses"),
    ("localhost, abroad",          ["node",   "remote M", "DROP"],   "a node port without local endpoints is dropped on all local addresses that are not served"),
    ("localhost, far",             ["node",   "remote M", "node"],   "as localhost: there is an endpoint"),
    ("undefined port",             ["REJECT", "world",    "world"],  "there are rules for the ports of Services alone"),
    ("unallocated",                ["DROP",   "world",    "world"],  "networks of cluster IPs are not looked at"),
    ("from node, nobody",          ["REJECT", "world",    "world"],  "nothing is refused in OUTPUT but cluster IPs"),
    ("guarded, nobody",            ["DROP",   "REJECT",   "REJECT"], "networks are told apart on the way to endpoints, and there is none"),
    ("from node, guarded, nobody", ["DROP",   "world",    "world"],  "for both reasons"),
    ("forwarded, marked",          ["DROP",   "all M",    "all M"],  "what is marked is accepted in FORWARD, whatever its policy"),
    ("health check",               ["DROP",   "node",     "node"],   "ports of health checks are accepted in INPUT, whatever its policy"),
];

/// Returns what is to be seen of a cell.
fn expected(rules: Rules, family: usize, cell: &'static str) -> &'static str {
    let mut differences = DIFFERENCES.iter();
    match (differences.find(|(case, ..)| *case == cell), rules) {
        // Mode ipvs has tables of its own.
        (None, _) | (_, Rules::Ipvs) => cell,
        (Some((_, [nftables, ..], _)), Rules::Nftables) => nftables,
        (Some((_, [_, iptables @ ..], _)), Rules::Iptables(_)) => iptables[family],
    }
}

/// A question, and what is to be seen of its answers.
pub(crate) struct Cell<'a> {
    from: &'a Host,
    pub(crate) ask: Ask,
    expected: &'static str,
}

/// Returns the cells of a question in each way.
pub(crate) fn in_each_way<'a>(
    stage: &Stage,
    from: &'a Host,
    ask: impl Fn(Way) -> Ask,
    cell: &'static str,
) -> [Cell<'a>; 4] {
    WAYS.map(|way| Cell {
        from,
        ask: ask(way),
        expected: expected(stage.rules, way.family, cell),
    })
}

/// Compares what happens with the rows, Services being numbered from 1.
pub(crate) fn compare<const N: usize>(stage: &Stage, rows: &[Row<N>]) {
    let cells = rows.iter().flat_map(|&(from, to, expected)| {
        let numbered = (1..).zip(expected);
        numbered.flat_map(move |(number, cell)| cells(stage, number, from, to, cell))
    });
    judge(stage, cells);
}

/// Compares what happens with one Service.
pub(crate) fn compare_service(
    stage: &Stage,
    number: u16,
    rows: &[(Source, Destination, &'static str)],
) {
    let rows = rows.iter();
    judge(
        stage,
        rows.flat_map(|&(from, to, cell)| cells(stage, number, from, to, cell)),
    );
}

/// Has the endpoint on the node ask for itself and for the other one: it sees
/// the node, and the other one sees it.
pub(crate) fn compare_hairpin(stage: &Stage, ways_in: &[(Destination, u16)]) {
    let (itself, _) = stage.near();
    for way in WAYS {
        let node = Lab::GATEWAYS[way.family];
        for &(to, number) in ways_in {
            let ask = stage.ask(Source::Pod, to, number, way);
            let answers: Vec<_> = (0..40)
                .map(|_| ask.once(&itself.netns).expect("it is served"))
                .collect();
            let (near, far): (Vec<_>, Vec<_>) = answers
                .iter()
                .partition(|answer| answer.server == itself.name);
            assert!(!near.is_empty() && !far.is_empty(), "{way:?} {to:?}");
            let own = itself.addresses()[way.family];
            assert!(near.iter().all(|answer| answer.client == node), "{near:?}");
            assert!(far.iter().all(|answer| answer.client == own), "{far:?}");
        }
    }
}

/// Returns the cells of a source and a destination with one Service.
pub(crate) fn cells<'a>(
    stage: &'a Stage,
    number: u16,
    from: Source,
    to: Destination,
    cell: &'static str,
) -> [Cell<'a>; 4] {
    let ask = |way| stage.ask(from, to, number, way);
    in_each_way(stage, stage.host(from), ask, cell)
}

/// Judges all cells; those of the world apart and one by one, for it cannot tell
/// who asked it.
pub(crate) fn judge<'a>(stage: &'a Stage, cells: impl IntoIterator<Item = Cell<'a>>) {
    let cells = cells.into_iter().filter(Cell::is_told);
    let (worldly, others): (Vec<_>, Vec<_>) = cells.partition(|cell| cell.expected == "world");
    let judges = match stage.rules {
        Rules::Ipvs => JUDGES_OF_GUESTS,
        _ => JUDGES,
    };
    let mut wrong = wrong_of(stage, judges, &others);
    wrong.extend(wrong_of(stage, 1, &worldly));
    wrong.sort();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Judges some cells at a time, since most of the time is spent waiting, and
/// returns what is said of those where something else is seen.
fn wrong_of(stage: &Stage, judges: usize, cells: &[Cell<'_>]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..judges {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let seen = stage.seen(cell.from, cell.patient_ask());
                    if seen != cell.expected {
                        let line = format!("{cell} {seen}");
                        wrong.lock().expect("no judge panics").push(line);
                    }
                }
            });
        }
    });
    wrong.into_inner().expect("no judge panics")
}

impl Cell<'_> {
    /// Tells whether a failure can be told from the other: a node's own datagrams
    /// fail in the same way whether they are refused or dropped.
    fn is_told(&self) -> bool {
        let fails = ["REJECT", "DROP"].contains(&self.expected);
        !(fails && self.from.name == "node" && self.ask.protocol == Protocol::Udp)
    }

    /// Waits long for an answer, and shortly for what is not to come, but not less
    /// than a refusal takes.
    fn patient_ask(&self) -> Ask {
        match (self.expected, self.ask.protocol) {
            ("DROP" | "world", Protocol::Udp) => self.ask.patience(PATIENCE),
            ("DROP", Protocol::Tcp) => self.ask.patience(PATIENCE + SECOND_PACKET),
            _ => self.ask.patience(MUCH_PATIENCE),
        }
    }
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ask {
            protocol, target, ..
        } = self.ask;
        write!(
            f,
            "{} to {target} by {protocol}: expected {}, seen",
            self.from.name, self.expected
        )
    }
}
