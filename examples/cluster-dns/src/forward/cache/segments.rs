//! Order of eviction: a segmented LRU list.
//!
//! With one LRU list, a program that walks through a million names, such as a mail filter or an
//! attacker, evicts every name that the cluster uses. With two, its names stay on probation and
//! evict each other, because nobody asks for them again.
//!
//! The lists are linked by indexes of the slab, not by pointers: that needs no `unsafe`, and
//! half of the memory.

/// Index of a node in the slab of the cache.
pub(super) type Index = u32;

/// End of a list. The slab never has so many nodes that one gets this index. An `Option<u32>` would
/// take twice the memory.
const NONE: Index = Index::MAX;

/// Part of the capacity that entries with a hit may take, in percent. With 100, popular entries
/// could fill the cache, and a new name would be evicted by the next one before it gets its hit.
const PROTECTED_PERCENT: usize = 80;

/// Neighbors of a node in its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    previous: Index,
    next: Index,
    is_protected: bool,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            previous: NONE,
            next: NONE,
            is_protected: false,
        }
    }
}

/// Access to the links of a node, which must exist.
pub(super) trait Nodes {
    /// Returns the links of the node.
    fn links(&mut self, at: Index) -> &mut Links;
}

/// Two LRU lists: entries without a hit, and entries with one.
///
/// New entries are on probation, and a hit protects an entry. Entries on probation are
/// evicted first, so that names that are asked once never displace popular ones.
/// Every operation takes constant time.
#[derive(Debug)]
pub(super) struct Segments {
    probation: List,
    protected: List,
    most_protected: usize,
}

impl Segments {
    pub(super) fn new(capacity: usize) -> Self {
        // Divided first, and the remainder separately: `capacity * 80` overflows for the largest
        // capacities, and a division alone would make the part of 50 entries 0.
        let most_protected =
            capacity / 100 * PROTECTED_PERCENT + capacity % 100 * PROTECTED_PERCENT / 100;
        Self {
            probation: List::default(),
            protected: List::default(),
            most_protected,
        }
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.probation.len + self.protected.len
    }

    /// Adds a new entry on probation, or one that falls back.
    pub(super) fn insert(&mut self, nodes: &mut impl Nodes, at: Index) {
        // Needed for an entry that falls back; a new one is not protected.
        nodes.links(at).is_protected = false;
        self.probation.push(nodes, at);
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, nodes: &mut impl Nodes, at: Index) {
        if nodes.links(at).is_protected {
            self.protected.unlink(nodes, at);
        } else {
            self.probation.unlink(nodes, at);
        }
    }

    /// Protects an entry after a hit.
    pub(super) fn hit(&mut self, nodes: &mut impl Nodes, at: Index) {
        // The usual case: the most popular name is asked again. Nothing moves.
        if self.protected.first == at {
            return;
        }
        // While the flag still says where the entry is.
        self.remove(nodes, at);
        nodes.links(at).is_protected = true;
        self.protected.push(nodes, at);
        // The one that was not asked for longest goes back on probation, as its newest entry: it gets
        // a second chance before those that were asked once.
        if self.protected.len > self.most_protected
            && let Some(last) = self.protected.last()
        {
            // With a capacity of 1 no entry may be protected, and this is the entry itself.
            self.protected.unlink(nodes, last);
            self.insert(nodes, last);
        }
    }

    /// Returns the entry to evict next. A protected one only if all are: that happens if the memory
    /// is full before the capacity is.
    pub(super) fn victim(&self) -> Option<Index> {
        // Entries on probation may have all left, by their age or by a flush.
        self.probation.last().or_else(|| self.protected.last())
    }
}

/// A doubly linked list, the newest entry first.
#[derive(Debug)]
struct List {
    first: Index,
    last: Index,
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
            len: 0,
        }
    }
}

impl List {
    fn last(&self) -> Option<Index> {
        (self.last != NONE).then_some(self.last)
    }

    fn push(&mut self, nodes: &mut impl Nodes, at: Index) {
        let first = self.first;
        let links = nodes.links(at);
        // Both, as the node has the neighbors of the list that it comes from.
        links.previous = NONE;
        links.next = first;
        if first == NONE {
            self.last = at;
        } else {
            nodes.links(first).previous = at;
        }
        self.first = at;
        self.len += 1;
    }

    fn unlink(&mut self, nodes: &mut impl Nodes, at: Index) {
        let Links { previous, next, .. } = *nodes.links(at);
        if previous == NONE {
            self.first = next;
        } else {
            nodes.links(previous).next = next;
        }
        if next == NONE {
            self.last = previous;
        } else {
            nodes.links(next).previous = previous;
        }
        self.len -= 1;
    }
}
