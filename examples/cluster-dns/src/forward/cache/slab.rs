//! Entries of the cache by index.
//!
//! The map of names and the eviction lists refer to the same entry, and both must find it in
//! constant time. Here it has an index that does not change as long as it lives: a vector of nodes,
//! in which a removed node leaves a gap for the next one. After `insert` of a, b, c and `remove` of
//! b the nodes are `[a, -, c]`, and d gets index 1.
//!
//! The vector never becomes shorter, so an emptied cache keeps the memory of its nodes (not that of
//! their answers), as much as the capacities permit.
//!
//! What must stay true: nobody keeps the index of a removed node. Its index soon is another entry,
//! and a query for one name would get the answer of another one. `Cache::remove` takes it out of the
//! map and of the list in one go.

use std::sync::Arc;
use std::time::Duration;

use super::segments::{Index, Links, Nodes};
use super::{AnswerType, NewEntry};
use crate::forward::answer::Answer;

/// A cached answer and its state.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) answer: Answer,
    /// Group to which the entry belongs.
    pub(super) answer_type: AnswerType,
    /// Time at which it was stored. The age decides whether it is fresh, and TTLs are less by it.
    pub(super) stored: Duration,
    pub(super) lifetime: Duration,
    pub(super) is_failure: bool,
    /// Bytes that count against the memory of the cache. Kept, so that exactly what was added is
    /// subtracted.
    pub(super) memory: usize,
    /// Hits since the entry was stored.
    pub(super) hits: u32,
    /// Whether the upstreams failed after the end of the lifetime.
    pub(super) refresh_failed: bool,
    /// Time before which no refresh begins.
    pub(super) next_refresh: Duration,
}

impl Entry {
    pub(super) fn new(new: NewEntry, memory: usize, now: Duration) -> Self {
        Self {
            answer: new.answer,
            answer_type: new.answer_type,
            stored: now,
            lifetime: new.lifetime,
            is_failure: new.is_failure,
            memory,
            hits: 0,
            refresh_failed: false,
            // The first refresh may begin as soon as it is due.
            next_refresh: Duration::ZERO,
        }
    }
}

#[derive(Debug)]
struct Node {
    /// The same allocation as the key in the map: eviction starts from a node, and needs the key to
    /// remove it from the map.
    key: Arc<[u8]>,
    entry: Entry,
    links: Links,
}

/// Nodes with constant indexes, and a list of free indexes.
#[derive(Debug, Default)]
pub(super) struct Slab {
    nodes: Vec<Option<Node>>,
    free: Vec<Index>,
}

impl Slab {
    /// Stores an entry and returns its index.
    pub(super) fn insert(&mut self, key: Arc<[u8]>, entry: Entry) -> Index {
        let node = Some(Node {
            key,
            entry,
            links: Links::default(),
        });
        // A gap first. Otherwise the vector would grow with each entry that was ever stored.
        if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        self.nodes.push(node);
        Index::try_from(self.nodes.len() - 1).expect("capacities are far below 2^32 entries")
    }

    /// Removes a node and returns its key.
    pub(super) fn remove(&mut self, at: Index) -> Arc<[u8]> {
        let node = self.nodes[at as usize]
            .take()
            .expect("indexes of removed nodes are not kept");
        self.free.push(at);
        node.key
    }

    /// Returns the entry of a node, which must exist.
    pub(super) fn entry(&mut self, at: Index) -> &mut Entry {
        &mut self.node(at).entry
    }

    fn node(&mut self, at: Index) -> &mut Node {
        self.nodes[at as usize]
            .as_mut()
            .expect("indexes of removed nodes are not kept")
    }
}

impl Nodes for Slab {
    fn links(&mut self, at: Index) -> &mut Links {
        &mut self.node(at).links
    }
}
