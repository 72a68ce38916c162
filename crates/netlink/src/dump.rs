//! Results of dumps, and their repetition.

/// Result of a dump.
///
/// Exhaustive: a dump is complete or interrupted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "an interrupted dump may lack objects or contain duplicates"]
pub enum Dump<T> {
    /// The dump is a consistent snapshot.
    Complete(T),
    /// Every attempt was interrupted by changes (`NLM_F_DUMP_INTR`); this is the
    /// result of the last one.
    Interrupted(T),
}

impl<T> Dump<T> {
    /// Repeats a dump until it is complete, up to `attempts` attempts in total, at least
    /// one.
    ///
    /// Returns the last result. A client that detects further inconsistencies, such as
    /// changes between several dumps, returns [`Interrupted`](Self::Interrupted) from
    /// `dump`.
    ///
    /// # Errors
    ///
    /// The first error of `dump`, which ends the repetition.
    pub fn repeat<E>(
        attempts: usize,
        mut dump: impl FnMut() -> Result<Self, E>,
    ) -> Result<Self, E> {
        for _ in 1..attempts {
            let complete @ Self::Complete(_) = dump()? else {
                continue;
            };
            return Ok(complete);
        }
        dump()
    }

    /// Returns the value of a complete dump, or `None` if the dump was interrupted.
    pub fn complete(self) -> Option<T> {
        match self {
            Self::Complete(value) => Some(value),
            Self::Interrupted(_) => None,
        }
    }

    /// Returns the value, even of an interrupted dump.
    pub fn into_inner(self) -> T {
        let (Self::Complete(value) | Self::Interrupted(value)) = self;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeats a dump whose attempt `complete` is complete, and returns the result with
    /// the number of attempts.
    fn repeat(attempts: usize, complete: usize) -> (Dump<usize>, usize) {
        let mut count = 0;
        let dump = Dump::repeat(attempts, || {
            count += 1;
            Ok::<_, ()>(match count == complete {
                true => Dump::Complete(count),
                false => Dump::Interrupted(count),
            })
        });
        (dump.unwrap(), count)
    }

    #[test]
    fn an_interrupted_dump_is_repeated_until_it_is_complete() {
        assert_eq!(repeat(10, 1), (Dump::Complete(1), 1));
        assert_eq!(repeat(10, 3), (Dump::Complete(3), 3));
        assert_eq!(repeat(10, 10), (Dump::Complete(10), 10));
    }

    #[test]
    fn the_number_of_attempts_is_limited() {
        assert_eq!(repeat(10, 11), (Dump::Interrupted(10), 10));
        assert_eq!(repeat(1, 2), (Dump::Interrupted(1), 1));
        assert_eq!(repeat(0, 2), (Dump::Interrupted(1), 1));
    }

    #[test]
    fn an_error_ends_the_repetition() {
        let mut count = 0;
        let dump = Dump::<()>::repeat(10, || {
            count += 1;
            match count {
                1 => Ok(Dump::Interrupted(())),
                _ => Err("lost"),
            }
        });
        assert_eq!((dump, count), (Err("lost"), 2));
    }

    #[test]
    fn only_a_complete_dump_has_a_complete_value() {
        assert_eq!(Dump::Complete(1).complete(), Some(1));
        assert_eq!(Dump::Interrupted(1).complete(), None);
        assert_eq!(Dump::Interrupted(1).into_inner(), 1);
    }
}
