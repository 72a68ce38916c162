//! What several processes did with a store, and whether that can be.
//!
//! A process writes down when it asks for something, and when it has the
//! answer; what the store did, it did in between.
//! So an item is surely one's own from the answer that says so until the
//! question that frees it, and possibly from the question on until the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// A time, in nanoseconds of a clock that all processes share.
pub(crate) type Time = u64;

/// What is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Question {
    Allocate,
    Reserve(IpAddr),
    Release(IpAddr),
}

/// What the answer was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Taken(IpAddr),
    Freed,
    /// The item asked for is taken.
    Allocated,
    /// Every item is taken.
    Full,
    /// Nothing has changed, for sure.
    Failed,
    /// It is not known what has changed; also of who ended before the answer.
    Unknown,
}

/// A question and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) question: Question,
    pub(crate) asked: Time,
    pub(crate) answer: Answer,
    /// The end of time if there was none.
    pub(crate) answered: Time,
    /// How often the change was planned.
    pub(crate) attempts: usize,
}

/// That a process had an item.
#[derive(Clone, Copy, Debug)]
struct Holding {
    process: usize,
    /// The question after which it possibly had it.
    asked: Time,
    /// The answer after which it surely had it.
    answered: Time,
    /// The question until which it surely had it.
    released: Time,
    /// The answer until which it possibly had it.
    freed: Time,
}

/// What all processes did, in the order of each.
#[derive(Debug, Default)]
pub(crate) struct History(pub(crate) Vec<Vec<Operation>>);

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocate => f.write_str("allocate -"),
            Self::Reserve(item) => write!(f, "reserve {item}"),
            Self::Release(item) => write!(f, "release {item}"),
        }
    }
}

impl fmt::Display for Answer {
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

/// Reads what a process has written: for each operation a line before and one
/// after, of which the last may be missing.
///
/// ```text
/// ask 1000 reserve 10.0.0.7
/// got 2000 1 taken 10.0.0.7
/// ```
pub(crate) fn parse(text: &str) -> Vec<Operation> {
    let mut operations: Vec<Operation> = Vec::new();
    // A line that was not written to its end was not written.
    for line in text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let item = |text: &str| text.parse().unwrap_or_else(|_| panic!("{line}"));
        match words[..] {
            ["ask", time, what, of] => operations.push(Operation {
                question: match what {
                    "allocate" => Question::Allocate,
                    "reserve" => Question::Reserve(item(of)),
                    "release" => Question::Release(item(of)),
                    _ => panic!("{line}"),
                },
                asked: time.parse().unwrap(),
                answer: Answer::Unknown,
                answered: Time::MAX,
                attempts: 0,
            }),
            ["got", time, attempts, what, of] => {
                let last = operations.last_mut().unwrap();
                last.answered = time.parse().unwrap();
                last.attempts = attempts.parse().unwrap();
                last.answer = match what {
                    "taken" => Answer::Taken(item(of)),
                    "freed" => Answer::Freed,
                    "allocated" => Answer::Allocated,
                    "full" => Answer::Full,
                    "failed" => Answer::Failed,
                    "unknown" => Answer::Unknown,
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

    /// Returns what a process has in the end.
    pub(crate) fn held(&self, process: usize) -> BTreeSet<IpAddr> {
        let mut held = BTreeSet::new();
        for operation in &self.0[process] {
            match (operation.question, operation.answer) {
                (_, Answer::Taken(item)) => assert!(held.insert(item), "{operation:?}"),
                // Nobody frees again what may be another's by now.
                (Question::Release(item), Answer::Freed | Answer::Unknown) => {
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
                match (operation.question, operation.answer) {
                    (_, Answer::Taken(item)) => {
                        holdings.entry(item).or_default().push(Holding {
                            process,
                            asked: operation.asked,
                            answered: operation.answered,
                            released: Time::MAX,
                            freed: Time::MAX,
                        });
                    }
                    (Question::Release(item), answer) => {
                        let all = holdings.get_mut(&item).into_iter().flatten();
                        let last = all.rev().find(|holding| holding.process == process);
                        let last = last.unwrap_or_else(|| panic!("{operation:?}"));
                        match answer {
                            Answer::Failed => {}
                            Answer::Freed => {
                                last.released = operation.asked;
                                last.freed = operation.answered;
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

    /// Returns what cannot be if no item is given twice.
    pub(crate) fn contradictions(&self, items: &[IpAddr]) -> Vec<String> {
        let mut found = Vec::new();
        let mut holdings = self.holdings();
        for (item, holdings) in &mut holdings {
            holdings.sort_by_key(|holding| holding.answered);
            for pair in holdings.windows(2) {
                if pair[0].released > pair[1].answered {
                    found.push(format!("{item} is given twice: {pair:?}"));
                }
            }
        }
        let unknown: Vec<&Operation> = self
            .operations()
            .filter(|operation| operation.answer == Answer::Unknown)
            .collect();
        for operation in self.operations() {
            let before = || {
                let all = unknown.iter();
                all.filter(|other| other.asked < operation.answered)
            };
            // What somebody may have taken without knowing may be anything.
            let is_spoiled = before().any(|other| other.question == Question::Allocate);
            let is_free = |item: &IpAddr| {
                !before().any(|other| other.question == Question::Reserve(*item))
                    && !holdings.get(item).into_iter().flatten().any(|holding| {
                        holding.asked < operation.answered && operation.asked < holding.freed
                    })
            };
            let free = match (operation.answer, operation.question) {
                _ if is_spoiled => None,
                (Answer::Full, _) => items.iter().find(|item| is_free(item)).copied(),
                (Answer::Allocated, Question::Reserve(item)) => Some(item).filter(is_free),
                _ => None,
            };
            if let Some(item) = free {
                found.push(format!("{item} was free: {operation:?}"));
            }
        }
        found
    }
}

/// Returns what is wrong with what processes have written.
fn judge(texts: &[&str]) -> Vec<String> {
    let history = History(texts.iter().map(|text| parse(text)).collect());
    let items = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
    history.contradictions(&items)
}

#[test]
fn what_is_given_on_after_it_was_freed_is_fine() {
    let one = "ask 10 allocate -\ngot 20 1 taken 10.0.0.1\n\
        ask 30 release 10.0.0.1\ngot 40 1 freed -\n";
    // It has been freed by the question, and the answer is on its way.
    let other = "ask 31 reserve 10.0.0.1\ngot 32 1 taken 10.0.0.1\nask 50 rel";
    assert_eq!(judge(&[one, other]), [""; 0]);
    let history = History(vec![parse(one), parse(other)]);
    assert!(history.held(0).is_empty());
    assert_eq!(history.held(1).len(), 1);
}

#[test]
fn what_two_have_at_once_is_found() {
    let one = "ask 10 allocate -\ngot 20 1 taken 10.0.0.1\n\
        ask 30 release 10.0.0.1\ngot 40 1 freed -\n";
    let other = "ask 21 reserve 10.0.0.1\ngot 29 1 taken 10.0.0.1\n";
    let found = judge(&[one, other]);
    assert!(found.len() == 1 && found[0].starts_with("10.0.0.1 is given twice"));
    let never_freed = "ask 10 allocate -\ngot 20 1 taken 10.0.0.1\n";
    assert_eq!(judge(&[never_freed, other]).len(), 1);
    let failed = "ask 10 allocate -\ngot 20 1 taken 10.0.0.1\n\
        ask 22 release 10.0.0.1\ngot 23 1 failed -\n";
    assert_eq!(judge(&[failed, other]).len(), 1);
}

#[test]
fn a_refusal_of_what_is_free_is_found() {
    let both = "ask 10 allocate -\ngot 20 1 taken 10.0.0.1\n\
        ask 30 allocate -\ngot 40 1 taken 10.0.0.2\n";
    for (other, contradictions) in [
        ("ask 35 allocate -\ngot 50 1 full -\n", 0),
        ("ask 21 allocate -\ngot 29 1 full -\n", 1),
        ("ask 5 reserve 10.0.0.1\ngot 15 1 allocated -\n", 0),
        ("ask 5 reserve 10.0.0.1\ngot 9 1 allocated -\n", 1),
        ("ask 25 reserve 10.0.0.2\ngot 29 1 allocated -\n", 1),
    ] {
        assert_eq!(judge(&[both, other]).len(), contradictions, "{other}");
        // Somebody was killed who may have taken it.
        assert_eq!(judge(&[both, other, "ask 1 allocate -\n"]), [""; 0]);
    }
}
