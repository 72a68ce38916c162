//! Entries of the cache by index.

use std::sync::Arc;
use std::time::Duration;

use super::segments::{Index, Links, Nodes};
use super::{AnswerType, NewEntry};
use crate::forward::answer::Answer;

/// A cached answer and its state.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) answer: Answer,
    pub(super) answer_type: AnswerType,
    pub(super) stored: Duration,
    pub(super) lifetime: Duration,
    pub(super) is_failure: bool,
    /// Bytes that count against the memory of the cache.
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
            next_refresh: Duration::ZERO,
        }
    }
}

#[derive(Debug)]
struct Node {
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
