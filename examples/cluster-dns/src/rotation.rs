//! The order of the records of an answer.

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of rotations.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    calls: AtomicU64,
}

impl Rotation {
    /// Returns the number of places by which the records of the next answer rotate.
    ///
    /// A resolver sends 2 or 4 queries per look-up, for `A` and `AAAA`. The finalizer of
    /// SplitMix64 mixes the number of the call, so that the queries of one type see all
    /// rotations equally often, regardless of the queries between them.
    pub(crate) fn next(&self) -> usize {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let mut mixed = call.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        // The upper bits fit on all platforms.
        usize::try_from(mixed >> 48).unwrap_or_default()
    }
}
