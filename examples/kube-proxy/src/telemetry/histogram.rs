//! How often values were how large.

use std::time::Duration;

/// How often values were at most how large.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    /// The bounds of the buckets, ascending.
    bounds: &'static [f64],
    /// How many values fell into each bucket and into no lower one; the last
    /// bucket has no bound.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// Returns a histogram of nothing.
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    /// Counts a value.
    pub(super) fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += value;
    }

    /// Counts a time in seconds.
    pub(super) fn observe_time(&mut self, time: Duration) {
        self.observe(time.as_secs_f64());
    }

    /// Returns each bound with how many values were not above it.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(&self.counts).scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((bound, *sum))
        })
    }

    /// Returns how many values there were.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all values.
    pub(super) fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_every_bucket_that_is_not_below_it() {
        let mut histogram = Histogram::new(&[1.0, 2.0, 4.0]);
        for value in [0.5, 1.0, 1.5, 4.0, 9.0] {
            histogram.observe(value);
        }
        let buckets: Vec<_> = histogram.buckets().collect();
        let expected = [(1.0, 2), (2.0, 3), (4.0, 4), (f64::INFINITY, 5)];
        assert_eq!(buckets, expected);
        assert_eq!((histogram.count(), histogram.sum()), (5, 16.0));
    }
}
