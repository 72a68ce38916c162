//! Reproducible random numbers.

/// A pseudorandom number generator (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a usize is no wider than 64 bits");
        usize::try_from(self.next() % end).expect("the remainder fits in usize")
    }

    /// Shuffles items.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (2..=items.len()).rev() {
            items.swap(end - 1, self.below(end));
        }
    }
}
