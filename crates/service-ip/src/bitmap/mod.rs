//! A set of numbers with constant-time search for a free number.
//!
//! Kubernetes scans a bitmap bit by bit from a random place. That is fast while the range is
//! empty, and slow when it matters: at 99 % of a /16, 12 µs against 27 ns here, and 0.15 ms if
//! only the static band is free (benches/README.md, which also has the price: 1.02 to 1.05
//! times as long in an empty range). So the bits have an index above them, as in a page table:
//!
//! ```text
//! upper[1]                   1 word: is upper[0] full?
//! upper[0]      1000…        16 words: is the word below full?  (bit 0: word 0 is full)
//! bottom        1111… 1101…  1,024 words: is the number taken?
//! ```
//!
//! For example: in this /16, the first free number from 5. Word 0 has none at or after 5, so
//! the search goes up, finds in `upper[0]` that the next word that is not full is word 1, and
//! down again, where the first free bit is 2: number 64 + 2. That is at most seven words,
//! because each of two levels is visited on the way up, maybe twice, and on the way down.
//!
//! What must stay true:
//!
//! - A bit of a level is set if and only if its word in the level below is full, `u64::MAX`.
//! - Bits beyond the length are never set. So the last word is never full unless the length
//!   is a multiple of 64, and a search of a full set ends at a number beyond the length,
//!   which the callers compare.
//!
//! A /64 has too many words, so large sets keep those that are not empty in a tree. All levels
//! were an enum of both at first. With a type parameter instead, a small set has only `usize`
//! arithmetic and no choice at each access; the bench `service_ip` holds that.

use std::collections::BTreeMap;
use std::iter;

use crate::Random;

/// Bits of a word.
const BITS: u32 = u64::BITS;

/// Maximum length of a bitmap that also stores empty words: 128 KiB of them. It is the largest
/// range for which Kubernetes has a bitmap, an IPv4 /12.
const MAX_DENSE_LEN: u128 = 1 << 20;

/// A set of numbers below a fixed length.
///
/// The bottom level has a bit for each number. Each upper level has a bit for each
/// word of the level below, which is set if the word is full. The search for a free
/// number takes at most two words per level, and usually one word.
/// The memory of a large bitmap depends only on the numbers in the set.
#[derive(Clone, Debug)]
pub struct Bitmap {
    len: u128,
    count: u128,
    levels: Levels,
}

/// The levels of a bitmap. Small bitmaps use `usize` numbers.
#[derive(Clone, Debug)]
enum Levels {
    /// All words.
    Dense(Tree<Vec<u64>>),
    /// Non-empty words only.
    Sparse(Tree<BTreeMap<u128, u64>>),
}

/// The words of all levels. Numbers beyond the length are free.
#[derive(Clone, Debug)]
struct Tree<W> {
    bottom: W,
    /// The upper levels, in ascending order.
    upper: Vec<W>,
}

/// The words of a level.
trait Words {
    type Number: Number;

    /// Returns the given number of empty words.
    fn new(words: u128) -> Self;

    fn get(&self, word: Self::Number) -> u64;

    fn put(&mut self, word: Self::Number, bits: u64);
}

/// The number of a word, or of a bit.
trait Number: Copy + Ord {
    /// Returns the number of the word, and the mask of the bit within the word.
    fn place(self) -> (Self, u64);

    /// Returns the number of the lowest set bit of `bits` within this word.
    fn first(self, bits: u64) -> Self;

    fn next(self) -> Self;

    /// Returns a random number within `from..to`, or `None` for an empty range.
    fn any(from: Self, to: Self, random: &mut Random<'_>) -> Option<Self>;
}

impl Bitmap {
    /// Returns an empty set of numbers within `0..len`.
    #[must_use]
    pub fn new(len: u128) -> Self {
        let levels = if len <= MAX_DENSE_LEN {
            Levels::Dense(Tree::new(len))
        } else {
            Levels::Sparse(Tree::new(len))
        };
        Self {
            len,
            count: 0,
            levels,
        }
    }

    /// Returns the length: the upper bound of the numbers.
    #[must_use]
    pub const fn len(&self) -> u128 {
        self.len
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of elements.
    #[must_use]
    pub const fn count(&self) -> u128 {
        self.count
    }

    /// Returns whether the set contains a number.
    #[must_use]
    #[inline]
    pub fn contains(&self, number: u128) -> bool {
        number < self.len
            && match &self.levels {
                Levels::Dense(tree) => tree.contains(narrow(number)),
                Levels::Sparse(tree) => tree.contains(number),
            }
    }

    /// Inserts a number. Returns whether it is below the length and was free.
    #[inline]
    pub fn insert(&mut self, number: u128) -> bool {
        let was_free = number < self.len
            && match &mut self.levels {
                Levels::Dense(tree) => tree.insert(narrow(number)),
                Levels::Sparse(tree) => tree.insert(number),
            };
        self.count += u128::from(was_free);
        was_free
    }

    /// Inserts and returns a free number within `from..to`.
    ///
    /// The search starts at a random number and wraps around.
    // Inlined with the cold cases outside, because an allocation takes only 14 ns.
    #[inline(always)]
    pub(crate) fn take(&mut self, from: u128, to: u128, random: &mut Random<'_>) -> Option<u128> {
        debug_assert!(to <= self.len, "the length is {}", self.len);
        let taken = match &mut self.levels {
            Levels::Dense(tree) => tree.take(narrow(from), narrow(to), random)? as u128,
            Levels::Sparse(tree) => take_sparse(tree, from, to, random)?,
        };
        self.count += 1;
        Some(taken)
    }

    /// Removes a number. Returns whether the set contained it.
    #[inline]
    pub fn remove(&mut self, number: u128) -> bool {
        let was_taken = number < self.len
            && match &mut self.levels {
                Levels::Dense(tree) => tree.remove(narrow(number)),
                Levels::Sparse(tree) => tree.remove(number),
            };
        self.count -= u128::from(was_taken);
        was_taken
    }

    /// Returns the first free number at or after `from`.
    #[must_use]
    #[inline]
    pub fn next_free(&self, from: u128) -> Option<u128> {
        if from >= self.len {
            return None;
        }
        let free = match &self.levels {
            Levels::Dense(tree) => tree.next_free(narrow(from)) as u128,
            Levels::Sparse(tree) => tree.next_free(from),
        };
        (free < self.len).then_some(free)
    }

    /// Returns the elements at or after `from`, in ascending order.
    pub fn iter_from(&self, from: u128) -> impl Iterator<Item = u128> + '_ {
        let (first, bit) = from.place();
        self.words_from(first).flat_map(move |(word, bits)| {
            // `-bit` are the bits from `bit` on: only the first word begins in its middle.
            let mut bits = if word == first {
                bits & bit.wrapping_neg()
            } else {
                bits
            };
            iter::from_fn(move || {
                let number = (bits != 0).then(|| word.first(bits))?;
                // Clears the lowest set bit, which was just returned.
                bits &= bits - 1;
                Some(number)
            })
        })
    }

    /// Returns all elements, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u128> + '_ {
        self.iter_from(0)
    }

    /// Returns the words of the bottom level at or after `first`, in ascending order. Empty words
    /// may be skipped, which the caller does not see: they have no bits.
    fn words_from(&self, first: u128) -> Box<dyn Iterator<Item = (u128, u64)> + '_> {
        match &self.levels {
            Levels::Dense(tree) => {
                let words = (0..).zip(tree.bottom.iter().copied());
                // A `first` beyond the end may not fit in `usize`; `skip` needs only to pass all.
                Box::new(words.skip(narrow(first.min(MAX_DENSE_LEN))))
            }
            Levels::Sparse(tree) => {
                let words = tree.bottom.range(first..);
                Box::new(words.map(|(word, bits)| (*word, *bits)))
            }
        }
    }
}

impl<W: Words> Tree<W> {
    fn new(len: u128) -> Self {
        let mut words = len.div_ceil(BITS.into());
        let bottom = W::new(words);
        let mut upper = Vec::new();
        // Up to a level of one word. A search beyond it ends, because no later word exists.
        while words > 1 {
            words = words.div_ceil(BITS.into());
            upper.push(W::new(words));
        }
        Self { bottom, upper }
    }

    fn contains(&self, number: W::Number) -> bool {
        let (word, bit) = number.place();
        self.bottom.get(word) & bit != 0
    }

    #[inline]
    fn insert(&mut self, number: W::Number) -> bool {
        let (word, bit) = number.place();
        let before = self.bottom.get(word);
        let after = before | bit;
        self.bottom.put(word, after);
        // Only when it becomes full, once in 64 insertions: the levels above know it already
        // if it was full before.
        if before != u64::MAX && after == u64::MAX {
            self.note_full(word);
        }
        before != after
    }

    #[inline(always)]
    fn take(
        &mut self,
        from: W::Number,
        to: W::Number,
        random: &mut Random<'_>,
    ) -> Option<W::Number> {
        // Random as in Kubernetes: processes that allocate at once rarely want the same number.
        let start = W::Number::any(from, to, random)?;
        let (word, bit) = start.place();
        let before = self.bottom.get(word);
        // `bit.wrapping_neg()` has the bits from `bit` on. Those before it come last, by way of
        // `take_later`.
        let free = !before & bit.wrapping_neg();
        if free == 0 {
            return self.take_later(from, start, to);
        }
        let number = word.first(free);
        // The word may reach beyond `to`, into the other band or beyond the length.
        if number >= to {
            return self.take_later(from, start, to);
        }
        // What `insert` does, without a second look at the word.
        let lowest = free & free.wrapping_neg();
        self.bottom.put(word, before | lowest);
        if before | lowest == u64::MAX {
            self.note_full(word);
        }
        Some(number)
    }

    /// Inserts the first free number after the word of `start`, otherwise from `from`.
    #[cold]
    fn take_later(
        &mut self,
        from: W::Number,
        start: W::Number,
        to: W::Number,
    ) -> Option<W::Number> {
        let later = self.take_first(start, to);
        later.or_else(|| self.take_first(from, start))
    }

    fn take_first(&mut self, from: W::Number, to: W::Number) -> Option<W::Number> {
        let number = self.next_free(from);
        (number < to && self.insert(number)).then_some(number)
    }

    #[inline]
    fn remove(&mut self, number: W::Number) -> bool {
        let (word, bit) = number.place();
        let before = self.bottom.get(word);
        let after = before & !bit;
        self.bottom.put(word, after);
        // Only a word that was full: the levels above do not tell empty words from others.
        if before == u64::MAX {
            self.note_free(word);
        }
        before != after
    }

    /// Returns the first free number at or after `from`, possibly beyond the length.
    #[inline]
    fn next_free(&self, from: W::Number) -> W::Number {
        let (word, bit) = from.place();
        let free = !self.bottom.get(word) & bit.wrapping_neg();
        match free {
            0 => self.next_free_after(word),
            free => word.first(free),
        }
    }

    /// Returns the first free number after a word.
    #[cold]
    fn next_free_after(&self, word: W::Number) -> W::Number {
        let mut found = word.next();
        let mut height = 0;
        // Ascend to a level with a later word that is not full.
        while let Some(level) = self.upper.get(height) {
            let (word, bit) = found.place();
            let free = !level.get(word) & bit.wrapping_neg();
            if free != 0 {
                found = word.first(free);
                break;
            }
            // This word of the level is full from here on; its successor is a bit of the next one.
            found = word.next();
            height += 1;
        }
        // Descend to the first word that is not full.
        for level in self.upper.iter().take(height).rev() {
            found = found.first(!level.get(found));
        }
        found.first(!self.bottom.get(found))
    }

    /// Marks a word as full in the upper levels.
    #[cold]
    fn note_full(&mut self, mut number: W::Number) {
        for level in &mut self.upper {
            let (word, bit) = number.place();
            let bits = level.get(word) | bit;
            level.put(word, bits);
            // The level above says whether this word is full, and it is not.
            if bits != u64::MAX {
                break;
            }
            number = word;
        }
    }

    /// Marks a word as not full in the upper levels.
    #[cold]
    fn note_free(&mut self, mut number: W::Number) {
        for level in &mut self.upper {
            let (word, bit) = number.place();
            let bits = level.get(word);
            level.put(word, bits & !bit);
            // It was not full before either, so the level above is right.
            if bits != u64::MAX {
                break;
            }
            number = word;
        }
    }
}

impl Words for Vec<u64> {
    type Number = usize;

    fn new(words: u128) -> Self {
        vec![0; narrow(words)]
    }

    fn get(&self, word: usize) -> u64 {
        // A search in a full set ascends beyond the last word, which then counts as free.
        <[u64]>::get(self, word).copied().unwrap_or(0)
    }

    fn put(&mut self, word: usize, bits: u64) {
        if let Some(word) = self.get_mut(word) {
            *word = bits;
        }
    }
}

impl Words for BTreeMap<u128, u64> {
    type Number = u128;

    fn new(_: u128) -> Self {
        Self::new()
    }

    // Not inlined, to keep the code for dense bitmaps short.
    #[inline(never)]
    fn get(&self, word: u128) -> u64 {
        Self::get(self, &word).copied().unwrap_or(0)
    }

    #[inline(never)]
    fn put(&mut self, word: u128, bits: u64) {
        // An empty word is not kept, so that memory follows what is allocated now.
        if bits == 0 {
            self.remove(&word);
        } else {
            self.insert(word, bits);
        }
    }
}

impl Number for usize {
    fn place(self) -> (Self, u64) {
        (self / BITS as Self, 1 << (self % BITS as Self))
    }

    fn first(self, bits: u64) -> Self {
        self * BITS as Self + bits.trailing_zeros() as Self
    }

    fn next(self) -> Self {
        self + 1
    }

    fn any(from: Self, to: Self, random: &mut Random<'_>) -> Option<Self> {
        if from >= to {
            return None;
        }
        Some(from + narrow(scale(random(), (to - from) as u64)))
    }
}

impl Number for u128 {
    fn place(self) -> (Self, u64) {
        (self / Self::from(BITS), 1 << (self % Self::from(BITS)))
    }

    fn first(self, bits: u64) -> Self {
        self * Self::from(BITS) + Self::from(bits.trailing_zeros())
    }

    fn next(self) -> Self {
        self + 1
    }

    fn any(from: Self, to: Self, random: &mut Random<'_>) -> Option<Self> {
        let size = to.checked_sub(from).filter(|size| *size > 0)?;
        Some(from + below(size, random))
    }
}

/// Returns a random number below `limit`, which must not be 0.
pub(crate) fn below(limit: u128, random: &mut Random<'_>) -> u128 {
    match u64::try_from(limit) {
        Ok(limit) => scale(random(), limit),
        // More numbers than a /64 has. A remainder prefers small ones, by a part of at most
        // `limit` / 2^128.
        Err(_) => (u128::from(random()) << 64 | u128::from(random())) % limit,
    }
}

/// Scales a random 64-bit number to `0..limit`: the upper half of a product, without a division.
const fn scale(random: u64, limit: u64) -> u128 {
    (random as u128 * limit as u128) >> 64
}

/// A function of its own, so that the inlined [`Bitmap::take`] has only the dense case.
#[inline(never)]
fn take_sparse(
    tree: &mut Tree<BTreeMap<u128, u64>>,
    from: u128,
    to: u128,
    random: &mut Random<'_>,
) -> Option<u128> {
    tree.take(from, to, random)
}

/// Converts a number of a dense bitmap, which fits in `usize`: it is at most [`MAX_DENSE_LEN`].
#[inline]
const fn narrow(number: u128) -> usize {
    number as usize
}

#[cfg(test)]
mod tests;
