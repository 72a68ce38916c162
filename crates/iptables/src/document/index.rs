//! Index of chains in the lines of a table.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::iter;
use std::ops::Range;

use super::Line;

/// An index of chains by name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Index<'a> {
    chains: Vec<Chain>,
    /// Indexes into `chains`. A map of the chains themselves would be larger, since
    /// up to half of a map is empty.
    places: HashMap<&'a str, usize>,
}

impl<'a> Index<'a> {
    pub(super) fn new(lines: &[Line<'a>]) -> Self {
        let declared = lines.iter().filter(|line| matches!(line, Line::Chain(_)));
        let declared = declared.count();
        let mut index = Self {
            chains: Vec::with_capacity(declared),
            places: HashMap::with_capacity(declared),
        };
        let mut at = 0;
        // Adjacent rules of a chain are looked up once.
        for run in lines.chunk_by(is_same_chain) {
            let range = at..at + run.len();
            at = range.end;
            match run.first() {
                Some(Line::Chain(line)) => index.chain(line.name()).declared = Some(range.start),
                Some(Line::Rule(line)) => index.chain(line.chain()).push(range),
                _ => {}
            }
        }
        index
    }

    /// Returns a chain, which is created if necessary.
    fn chain(&mut self, name: &'a str) -> &mut Chain {
        let place = match self.places.entry(name) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                self.chains.push(Chain::default());
                *entry.insert(self.chains.len() - 1)
            }
        };
        self.chains.get_mut(place).expect("places are of chains")
    }

    /// Returns the chain with a name.
    pub(super) fn get(&self, name: &str) -> Option<&Chain> {
        self.chains.get(*self.places.get(name)?)
    }

    /// Returns the heap size in bytes.
    #[cfg(test)]
    pub(super) fn heap(&self) -> usize {
        // At most 7 of 8 buckets are used, and each has an extra byte.
        let buckets = (self.places.capacity() * 8 / 7).next_power_of_two();
        let more = self.chains.iter().map(|chain| chain.more.capacity());
        self.chains.capacity() * size_of::<Chain>()
            + buckets * (size_of::<(&str, usize)>() + 1)
            + more.sum::<usize>() * size_of::<Range<usize>>()
    }
}

/// The lines of a chain.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Chain {
    /// Line of the last declaration.
    pub(super) declared: Option<usize>,
    /// Range of the first rules; in a save, of all rules.
    rules: Range<usize>,
    /// Ranges of further rules, each of maximum length.
    more: Vec<Range<usize>>,
}

impl Chain {
    /// Adds a range of adjacent rules.
    fn push(&mut self, range: Range<usize>) {
        if self.rules.is_empty() {
            self.rules = range;
        } else {
            self.more.push(range);
        }
    }

    /// Returns the ranges of its rules.
    pub(super) fn ranges(&self) -> impl Iterator<Item = &Range<usize>> {
        iter::once(&self.rules).chain(&self.more)
    }
}

/// Returns whether two lines are rules of the same chain.
fn is_same_chain(one: &Line<'_>, other: &Line<'_>) -> bool {
    match (one, other) {
        (Line::Rule(one), Line::Rule(other)) => one.chain() == other.chain(),
        _ => false,
    }
}
