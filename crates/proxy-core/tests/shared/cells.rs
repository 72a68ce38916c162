//! Cells of the packet matrix and their comparison with observed traffic.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use testkit::lab::{Host, Lab};
use testkit::traffic::{Probe, Protocol};

use crate::rules::Rules;
use crate::stage::{Destination, Source, Stage, WAYS, Way};

/// Timeout for requests that must fail.
const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

/// Timeout for requests that must be answered, with a margin for a busy machine.
const LONG_TIMEOUT: Duration = Duration::from_secs(15);

/// Initial TCP retransmission timeout.
///
/// The client ignores a rejection that arrives while it still sends the first packet.
const RETRANSMISSION: Duration = Duration::from_secs(1);

/// Number of cells that are checked concurrently.
const CONCURRENCY: usize = 16;

/// The same in a guest, where datagrams get lost under higher load.
const CONCURRENCY_IN_GUEST: usize = 4;

/// Source, destination, and the expected observation for each Service of the table.
pub(crate) type Row<const N: usize> = (Source, Destination, [&'static str; N]);

/// Cases in which modes differ. A cell that names a case expects the first observation
/// in mode nftables, the second in mode iptables with IPv4, and the third in mode
/// iptables with IPv6. The last column is the reason.
#[rustfmt::skip]
const DIFFERENCES: [(&str, [&str; 3], &str); 11] = [
    ("localhost",                  ["REJECT", "all M",    "REJECT"], "node ports on loopback addresses need sysctl route_localnet, which IPv6 lacks"),
    ("localhost, none",            ["node",   "REJECT",   "REJECT"], "a node port without endpoints is rejected on all local addresses"),
    ("localhost, no local",        ["node",   "remote M", "DROP"],   "a node port without local endpoints is dropped on local addresses that do not serve node ports"),
    ("localhost, remote",          ["node",   "remote M", "node"],   "as `localhost`: an endpoint exists"),
    ("undefined port",             ["REJECT", "world",    "world"],  "only the ports of Services have rules"),
    ("unallocated",                ["DROP",   "world",    "world"],  "no rule matches the cluster IP networks"),
    ("from node, none",            ["REJECT", "world",    "world"],  "OUTPUT rejects only cluster IPs"),
    ("ranges, none",               ["DROP",   "REJECT",   "REJECT"], "source ranges are checked on the path to an endpoint, and none exists"),
    ("from node, ranges, none",    ["DROP",   "world",    "world"],  "for both of the previous reasons"),
    ("forwarded, marked",          ["DROP",   "all M",    "all M"],  "FORWARD accepts marked packets regardless of its policy"),
    ("health check",               ["DROP",   "node",     "node"],   "INPUT accepts health check ports regardless of its policy"),
];

/// Returns the expected observation of a cell.
fn expected(rules: Rules, family: usize, cell: &'static str) -> &'static str {
    let mut differences = DIFFERENCES.iter();
    match (differences.find(|(case, ..)| *case == cell), rules) {
        // Mode ipvs has its own matrix.
        (None, _) | (_, Rules::Ipvs) => cell,
        (Some((_, [nftables, ..], _)), Rules::Nftables) => nftables,
        (Some((_, [_, iptables @ ..], _)), Rules::Iptables(_) | Rules::IptablesNetlink) => {
            iptables[family]
        }
    }
}

/// A request and its expected observation.
pub(crate) struct Cell<'a> {
    from: &'a Host,
    pub(crate) probe: Probe,
    expected: &'static str,
}

/// Returns one cell per family and protocol.
pub(crate) fn cells_of_request<'a>(
    stage: &Stage,
    from: &'a Host,
    probe: impl Fn(Way) -> Probe,
    cell: &'static str,
) -> [Cell<'a>; 4] {
    WAYS.map(|way| Cell {
        from,
        probe: probe(way),
        expected: expected(stage.rules, way.family, cell),
    })
}

/// Compares observations with the rows. Services are numbered from 1.
pub(crate) fn compare<const N: usize>(stage: &Stage, rows: &[Row<N>]) {
    let cells = rows.iter().flat_map(|&(from, to, expected)| {
        let numbered = (1..).zip(expected);
        numbered.flat_map(move |(number, cell)| cells(stage, number, from, to, cell))
    });
    check_cells(stage, cells);
}

/// Compares observations of one Service with the rows.
pub(crate) fn compare_service(
    stage: &Stage,
    number: u16,
    rows: &[(Source, Destination, &'static str)],
) {
    let rows = rows.iter();
    check_cells(
        stage,
        rows.flat_map(|&(from, to, cell)| cells(stage, number, from, to, cell)),
    );
}

/// Sends requests from the endpoint on the node to its own Service. The endpoint must
/// see the address of the node as the client, and the remote endpoint must see the
/// address of the endpoint.
pub(crate) fn compare_hairpin(stage: &Stage, ways_in: &[(Destination, u16)]) {
    let (itself, _) = stage.near();
    for way in WAYS {
        let node = Lab::GATEWAYS[way.family];
        for &(to, number) in ways_in {
            let probe = stage.probe(Source::Pod, to, number, way);
            let answers: Vec<_> = (0..40)
                .map(|_| probe.once(&itself.netns).expect("an endpoint answers"))
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

/// Returns the cells of a source, a destination and a Service.
pub(crate) fn cells<'a>(
    stage: &'a Stage,
    number: u16,
    from: Source,
    to: Destination,
    cell: &'static str,
) -> [Cell<'a>; 4] {
    let probe = |way| stage.probe(from, to, number, way);
    cells_of_request(stage, stage.host(from), probe, cell)
}

/// Checks all cells. Cells of host `world` are checked one at a time, because `world`
/// does not record its clients.
pub(crate) fn check_cells<'a>(stage: &'a Stage, cells: impl IntoIterator<Item = Cell<'a>>) {
    let cells = cells.into_iter().filter(Cell::is_observable);
    let (of_world, others): (Vec<_>, Vec<_>) = cells.partition(|cell| cell.expected == "world");
    let concurrency = match stage.rules {
        Rules::Ipvs => CONCURRENCY_IN_GUEST,
        _ => CONCURRENCY,
    };
    let mut wrong = mismatches(stage, concurrency, &others);
    wrong.extend(mismatches(stage, 1, &of_world));
    wrong.sort();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Checks several cells concurrently, because most time is spent waiting. Returns a
/// line for each cell with another observation than expected.
fn mismatches(stage: &Stage, concurrency: usize, cells: &[Cell<'_>]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..concurrency {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let seen = stage.observe(cell.from, cell.probe_with_timeout());
                    if seen != cell.expected {
                        let line = format!("{cell} {seen}");
                        wrong.lock().expect("no worker panics").push(line);
                    }
                }
            });
        }
    });
    wrong.into_inner().expect("no worker panics")
}

impl Cell<'_> {
    /// Returns whether the test can distinguish `REJECT` from `DROP`: datagrams from
    /// the node itself fail in the same way in both cases.
    fn is_observable(&self) -> bool {
        let fails = ["REJECT", "DROP"].contains(&self.expected);
        !(fails && self.from.name == "node" && self.probe.protocol == Protocol::Udp)
    }

    /// Returns the request with a timeout: long for expected answers and rejections,
    /// short for expected silence.
    fn probe_with_timeout(&self) -> Probe {
        match (self.expected, self.probe.protocol) {
            ("DROP" | "world", Protocol::Udp) => self.probe.timeout(SHORT_TIMEOUT),
            ("DROP", Protocol::Tcp) => self.probe.timeout(SHORT_TIMEOUT + RETRANSMISSION),
            _ => self.probe.timeout(LONG_TIMEOUT),
        }
    }
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Probe {
            protocol, target, ..
        } = self.probe;
        write!(
            f,
            "{} to {target} by {protocol}: expected {}, seen",
            self.from.name, self.expected
        )
    }
}
