//! A set of numbers that finds a free one at once.

use std::collections::BTreeMap;

/// Bits of a word.
const BITS: u32 = u64::BITS;

/// Up to how many numbers all words are kept, the empty ones too.
const DENSE: u128 = 1 << 20;

/// Numbers below a length, of which some are taken.
///
/// The first level has a bit for each number, each other level one for every
/// word of the level below that is full: a free number is found in as many
/// steps as there are levels, mostly in one.
/// Large ones need memory only for what is taken.
#[derive(Clone, Debug)]
pub struct Bitmap {
    len: u128,
    count: u128,
    levels: Vec<Level>,
}

/// The words of a level.
#[derive(Clone, Debug)]
enum Level {
    /// All of them.
    Dense(Vec<u64>),
    /// Those that are not empty.
    Sparse(BTreeMap<u128, u64>),
}

impl Bitmap {
    /// Returns one of numbers from 0 to `len` - 1, none of them taken.
    #[must_use]
    pub fn new(len: u128) -> Self {
        let mut levels = Vec::new();
        let mut bits = len;
        while bits > 0 {
            let words = bits.div_ceil(u128::from(BITS));
            levels.push(Level::new(words, len <= DENSE));
            bits = if words > 1 { words } else { 0 };
        }
        Self {
            len,
            count: 0,
            levels,
        }
    }

    /// Returns how many numbers there are, taken or not.
    #[must_use]
    pub const fn len(&self) -> u128 {
        self.len
    }

    /// Tells whether no number is taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns how many numbers are taken.
    #[must_use]
    pub const fn count(&self) -> u128 {
        self.count
    }

    /// Tells whether a number is taken.
    #[must_use]
    pub fn contains(&self, number: u128) -> bool {
        let (word, bit) = place(number);
        self.levels
            .first()
            .is_some_and(|level| level.get(word) & bit != 0)
    }

    /// Takes a number, and tells whether it was there and free.
    pub fn insert(&mut self, number: u128) -> bool {
        if number >= self.len || self.contains(number) {
            return false;
        }
        let mut number = number;
        for level in &mut self.levels {
            let (word, bit) = place(number);
            if level.set(word, bit) != u64::MAX {
                break;
            }
            number = word;
        }
        self.count += 1;
        true
    }

    /// Frees a number, and tells whether it was taken.
    pub fn remove(&mut self, number: u128) -> bool {
        if !self.contains(number) {
            return false;
        }
        let mut number = number;
        for level in &mut self.levels {
            let (word, bit) = place(number);
            if level.clear(word, bit) != u64::MAX {
                break;
            }
            number = word;
        }
        self.count -= 1;
        true
    }

    /// Returns the first free number from `from` on.
    #[must_use]
    pub fn next_free(&self, from: u128) -> Option<u128> {
        let mut number = from;
        let mut height = 0;
        let mut bits = self.len;
        // Up to where a word has a free place further on.
        let found = loop {
            let level = self.levels.get(height)?;
            if number >= bits {
                return None;
            }
            let (word, bit) = place(number);
            let free = !level.get(word) & bit.wrapping_neg();
            if free != 0 {
                break at(word, free);
            }
            number = word + 1;
            height += 1;
            bits = bits.div_ceil(u128::from(BITS));
        };
        // And down into the first that is not full.
        let below = self.levels.iter().take(height).rev();
        let free = below.fold(found, |word, level| at(word, !level.get(word)));
        (free < self.len).then_some(free)
    }

    /// Returns the numbers taken from `from` on, in order.
    pub fn iter_from(&self, from: u128) -> impl Iterator<Item = u128> + '_ {
        let (first, bit) = place(from);
        let level = self.levels.first();
        let words = level.into_iter().flat_map(move |level| level.from(first));
        words.flat_map(move |(word, bits)| {
            let bits = if word == first {
                bits & bit.wrapping_neg()
            } else {
                bits
            };
            (0..BITS)
                .filter(move |shift| bits >> shift & 1 == 1)
                .map(move |shift| (word << BITS.trailing_zeros()) | u128::from(shift))
        })
    }

    /// Returns all numbers taken, in order.
    pub fn iter(&self) -> impl Iterator<Item = u128> + '_ {
        self.iter_from(0)
    }
}

impl Level {
    fn new(words: u128, dense: bool) -> Self {
        match usize::try_from(words) {
            Ok(words) if dense => Self::Dense(vec![0; words]),
            _ => Self::Sparse(BTreeMap::new()),
        }
    }

    fn get(&self, word: u128) -> u64 {
        match self {
            Self::Dense(words) => usize::try_from(word).ok().and_then(|word| words.get(word)),
            Self::Sparse(words) => words.get(&word),
        }
        .copied()
        .unwrap_or(0)
    }

    /// Sets a bit, and returns what the word is then.
    fn set(&mut self, word: u128, bit: u64) -> u64 {
        let bits = match self {
            Self::Dense(words) => usize::try_from(word)
                .ok()
                .and_then(|word| words.get_mut(word)),
            Self::Sparse(words) => Some(words.entry(word).or_default()),
        };
        bits.map_or(0, |bits| {
            *bits |= bit;
            *bits
        })
    }

    /// Clears a bit, and returns what the word was before.
    fn clear(&mut self, word: u128, bit: u64) -> u64 {
        match self {
            Self::Dense(words) => usize::try_from(word)
                .ok()
                .and_then(|word| words.get_mut(word))
                .map_or(0, |bits| {
                    let before = *bits;
                    *bits &= !bit;
                    before
                }),
            Self::Sparse(words) => {
                let before = words.get(&word).copied().unwrap_or(0);
                if before & !bit == 0 {
                    words.remove(&word);
                } else {
                    words.insert(word, before & !bit);
                }
                before
            }
        }
    }

    /// Returns the words that are not empty, from one on.
    fn from(&self, first: u128) -> Box<dyn Iterator<Item = (u128, u64)> + '_> {
        match self {
            Self::Dense(words) => {
                let words = (0..).zip(words.iter().copied());
                let skipped = usize::try_from(first).unwrap_or(usize::MAX);
                Box::new(words.skip(skipped).filter(|(_, bits)| *bits != 0))
            }
            Self::Sparse(words) => {
                Box::new(words.range(first..).map(|(word, bits)| (*word, *bits)))
            }
        }
    }
}

/// Returns which word a number is in, and its bit there.
const fn place(number: u128) -> (u128, u64) {
    let shift = number % BITS as u128;
    (number / BITS as u128, 1 << shift as u32)
}

/// Returns the number of the first of some bits of a word.
fn at(word: u128, bits: u64) -> u128 {
    (word << BITS.trailing_zeros()) | u128::from(bits.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_one_has_no_free_number_and_finds_one_that_is_freed() {
        for len in [1, 63, 64, 65, 4096, 4097, 262_145, DENSE + 3] {
            let mut bitmap = Bitmap::new(len);
            for number in 0..len {
                assert!(bitmap.insert(number), "{number} of {len}");
            }
            assert_eq!(bitmap.next_free(0), None, "{len}");
            assert!(!bitmap.insert(len), "{len} is outside");
            for number in [0, len / 2, len - 1] {
                assert!(bitmap.remove(number));
                assert_eq!(bitmap.next_free(0), Some(number), "{len}");
                assert_eq!(bitmap.next_free(number), Some(number), "{len}");
                assert_eq!(bitmap.next_free(number + 1), None, "{len}");
                assert!(bitmap.insert(number));
            }
            assert_eq!(bitmap.count(), len);
        }
    }

    #[test]
    fn the_largest_needs_memory_for_what_is_taken_only() {
        let mut bitmap = Bitmap::new(u128::MAX);
        assert_eq!(bitmap.next_free(u128::MAX - 1), Some(u128::MAX - 1));
        assert!(bitmap.insert(u128::MAX - 1));
        assert!(bitmap.insert(0));
        assert_eq!(bitmap.next_free(u128::MAX - 1), None);
        assert_eq!(bitmap.next_free(0), Some(1));
        assert_eq!(bitmap.iter().collect::<Vec<_>>(), [0, u128::MAX - 1]);
        assert!(bitmap.remove(0) && bitmap.remove(u128::MAX - 1));
        let words: usize = bitmap
            .levels
            .iter()
            .map(|level| level.from(0).count())
            .sum();
        assert_eq!(words, 0);
    }
}
