//! Generations of the ruleset.

/// A ruleset generation ID. Every commit increments it.
///
/// Default: 0, which no ruleset has. A batch that requires generation 0 requires none.
///
/// Exhaustive: a generation is one number.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Generation(pub u32);

impl Generation {
    /// Returns the generation after one more commit.
    ///
    /// The kernel skips 0.
    #[must_use]
    pub fn next(self) -> Self {
        match self.0.wrapping_add(1) {
            0 => Self(1),
            next => Self(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_after_the_highest_is_one() {
        assert_eq!(Generation(u32::MAX).next(), Generation(1));
        assert_eq!(Generation(u32::MAX - 1).next(), Generation(u32::MAX));
        assert_eq!(Generation(1).next(), Generation(2));
    }
}
