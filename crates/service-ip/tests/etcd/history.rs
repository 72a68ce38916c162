//! History of the operations of several processes, and its consistency check.
//!
//! A process logs the times of each request and of its response. The store applies
//! the operation in between.
//! A process certainly owns an item from the response of the allocation until the
//! request of the release. It possibly owns the item from the request of the
//! allocation until the response of the release.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// Time in nanoseconds of a clock shared by all processes.
pub(crate) type Time = u64;

/// A request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Request {
    Allocate,
    Reserve(IpAddr),
    Release(IpAddr),
}

/// A response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Response {
    Taken(IpAddr),
    Freed,
    /// The requested item is already allocated.
    Allocated,
    /// All items are allocated.
    Full,
    /// The request was certainly not applied.
    Failed,
    /// The outcome is unknown, or the process was killed before the response.
    Unknown,
}

/// A request with its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) request: Request,
    pub(crate) asked: Time,
    pub(crate) response: Response,
    /// `Time::MAX` without a response.
    pub(crate) responded: Time,
    /// Number of attempts.
    pub(crate) attempts: usize,
}

/// Ownership of an item by a process.
#[derive(Clone, Copy, Debug)]
struct Holding {
    process: usize,
    /// Request of the allocation.
    asked: Time,
    /// Response of the allocation.
    responded: Time,
    /// Request of the release.
    released: Time,
    /// Response of the release.
    freed: Time,
}

/// Operations of all processes, in the order of each process.
#[derive(Debug, Default)]
pub(crate) struct History(pub(crate) Vec<Vec<Operation>>);

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocate => f.write_str("allocate -"),
            Self::Reserve(item) => write!(f, "reserve {item}"),
            Self::Release(item) => write!(f, "release {item}"),
        }
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(item) => write!(f, "taken {item}"),
            Self::Freed => f.write_str("freed -"),
            Self::Allocated => f.write_str("allocated -"),
            Self::Full => f.write_str("full -"),
            Self::Failed => f.write_str("failed -"),
            Self::Unknown => f.write_str("unknown -"),
        }
    }
}

/// Parses the log of a process: two lines per operation, of which the last one may be
/// missing.
///
/// ```text
/// ask 1000 reserve 10.0.0.7
/// got 2000 1 taken 10.0.0.7
/// ```
pub(crate) fn parse(text: &str) -> Vec<Operation> {
    let mut operations: Vec<Operation> = Vec::new();
    // An incomplete line is ignored.
    for line in text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let item = |text: &str| text.parse().unwrap_or_else(|_| panic!("{line}"));
        match words[..] {
            ["ask", time, what, of] => operations.push(Operation {
                request: match what {
                    "allocate" => Request::Allocate,
                    "reserve" => Request::Reserve(item(of)),
                    "release" => Request::Release(item(of)),
                    _ => panic!("{line}"),
                },
                asked: time.parse().unwrap(),
                response: Response::Unknown,
                responded: Time::MAX,
                attempts: 0,
            }),
            ["got", time, attempts, what, of] => {
                let last = operations.last_mut().unwrap();
                last.responded = time.parse().unwrap();
                last.attempts = attempts.parse().unwrap();
                last.response = match what {
                    "taken" => Response::Taken(item(of)),
                    "freed" => Response::Freed,
                    "allocated" => Response::Allocated,
                    "full" => Response::Full,
                    "failed" => Response::Failed,
                    "unknown" => Response::Unknown,
                    _ => panic!("{line}"),
                };
            }
            _ => panic!("{line}"),
        }
    }
    operations
}

impl History {
    /// Returns all operations.
    pub(crate) fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.0.iter().flatten()
    }

    /// Returns the items of a process at the end.
    pub(crate) fn held(&self, process: usize) -> BTreeSet<IpAddr> {
        let mut held = BTreeSet::new();
        for operation in &self.0[process] {
            match (operation.request, operation.response) {
                (_, Response::Taken(item)) => assert!(held.insert(item), "{operation:?}"),
                // An item with an unknown release may belong to another process.
                (Request::Release(item), Response::Freed | Response::Unknown) => {
                    held.remove(&item);
                }
                _ => {}
            }
        }
        held
    }

    fn holdings(&self) -> BTreeMap<IpAddr, Vec<Holding>> {
        let mut holdings: BTreeMap<IpAddr, Vec<Holding>> = BTreeMap::new();
        for (process, operations) in self.0.iter().enumerate() {
            for operation in operations {
                match (operation.request, operation.response) {
                    (_, Response::Taken(item)) => {
                        holdings.entry(item).or_default().push(Holding {
                            process,
                            asked: operation.asked,
                            responded: operation.responded,
                            released: Time::MAX,
                            freed: Time::MAX,
                        });
                    }
                    (Request::Release(item), response) => {
                        let all = holdings.get_mut(&item).into_iter().flatten();
                        let last = all.rev().find(|holding| holding.process == process);
                        let last = last.unwrap_or_else(|| panic!("{operation:?}"));
                        match response {
                            Response::Failed => {}
                            Response::Freed => {
                                last.released = operation.asked;
                                last.freed = operation.responded;
                            }
                            _ => last.released = operation.asked,
                        }
                    }
                    _ => {}
                }
            }
        }
        holdings
    }

    /// Returns all contradictions to exclusive ownership.
    pub(crate) fn contradictions(&self, items: &[IpAddr]) -> Vec<String> {
        let mut found = Vec::new();
        let mut holdings = self.holdings();
        for (item, holdings) in &mut holdings {
            holdings.sort_by_key(|holding| holding.responded);
            for pair in holdings.windows(2) {
                if pair[0].released > pair[1].responded {
                    found.push(format!("{item} is given twice: {pair:?}"));
                }
            }
        }
        let unknown: Vec<&Operation> = self
            .operations()
            .filter(|operation| operation.response == Response::Unknown)
            .collect();
        for operation in self.operations() {
            let before = || {
                let all = unknown.iter();
                all.filter(|other| other.asked < operation.responded)
            };
            // An allocation with an unknown outcome may have allocated any item.
            let is_spoiled = before().any(|other| other.request == Request::Allocate);
            let is_free = |item: &IpAddr| {
                !before().any(|other| other.request == Request::Reserve(*item))
                    && !holdings.get(item).into_iter().flatten().any(|holding| {
                        holding.asked < operation.responded && operation.asked < holding.freed
                    })
            };
            let free = match (operation.response, operation.request) {
                _ if is_spoiled => None,
                (Response::Full, _) => items.iter().find(|item| is_free(item)).copied(),
                (Response::Allocated, Request::Reserve(item)) => Some(item).filter(is_free),
                _ => None,
            };
            if let Some(item) = free {
                found.push(format!("{item} was free: {operation:?}"));
            }
        }
        found
    }
}

/// Returns the contradictions in the logs of processes.
fn contradictions_of(texts: &[&str]) -> Vec<String> {
    let history = History(texts.iter().map(|text| parse(text)).collect());
    let items = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
    history.contradictions(&items)
}

#[test]
fn an_allocation_after_a_release_is_consistent() {
    let one = "ask 10 allocate -\ngot 20 1 taken 10.0.0.1\n\
        ask 30 release 10.0.0.1\ngot 40 1 freed -\n";
    // The item may be free before the response of the release arrives.
    let other = "ask 31 reserve 10.0.0.1\ngot 32 1 taken 10.0.0.1\nask 50 rel";
    assert_eq!(contradictions_of(&[one, other]), [""; 0]);
    let history = History(vec![parse(one), parse(other)]);
    assert!(history.held(0).is_empty());
    assert_eq!(history.held(1).len(), 1);
}

#[test]
fn concurrent_ownership_is_detected() {
    let one = "ask 10 allocate -\ngot 20 1 taken 10.0.0.1\n\
        ask 30 release 10.0.0.1\ngot 40 1 freed -\n";
    let other = "ask 21 reserve 10.0.0.1\ngot 29 1 taken 10.0.0.1\n";
    let found = contradictions_of(&[one, other]);
    assert!(found.len() == 1 && found[0].starts_with("10.0.0.1 is given twice"));
    let never_freed = "ask 10 allocate -\ngot 20 1 taken 10.0.0.1\n";
    assert_eq!(contradictions_of(&[never_freed, other]).len(), 1);
    let failed = "ask 10 allocate -\ngot 20 1 taken 10.0.0.1\n\
        ask 22 release 10.0.0.1\ngot 23 1 failed -\n";
    assert_eq!(contradictions_of(&[failed, other]).len(), 1);
}

#[test]
fn a_rejection_of_a_free_item_is_detected() {
    let both = "ask 10 allocate -\ngot 20 1 taken 10.0.0.1\n\
        ask 30 allocate -\ngot 40 1 taken 10.0.0.2\n";
    for (other, contradictions) in [
        ("ask 35 allocate -\ngot 50 1 full -\n", 0),
        ("ask 21 allocate -\ngot 29 1 full -\n", 1),
        ("ask 5 reserve 10.0.0.1\ngot 15 1 allocated -\n", 0),
        ("ask 5 reserve 10.0.0.1\ngot 9 1 allocated -\n", 1),
        ("ask 25 reserve 10.0.0.2\ngot 29 1 allocated -\n", 1),
    ] {
        assert_eq!(
            contradictions_of(&[both, other]).len(),
            contradictions,
            "{other}"
        );
        // A killed process may have allocated the item.
        assert_eq!(
            contradictions_of(&[both, other, "ask 1 allocate -\n"]),
            [""; 0]
        );
    }
}
