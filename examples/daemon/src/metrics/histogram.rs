//! Histograms.

use std::time::Duration;

/// Counts of values by size.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Upper bounds of the buckets, ascending.
    bounds: &'static [f64],
    /// Number of values per bucket, not cumulative. The last bucket is
    /// unbounded.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// Creates an empty histogram.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    /// Adds a value.
    pub fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += value;
    }

    /// Adds a time in seconds.
    pub fn observe_time(&mut self, time: Duration) {
        self.observe(time.as_secs_f64());
    }

    /// Returns the bounds with their cumulative counts.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(&self.counts).scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((bound, *sum))
        })
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all values.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_every_bucket_with_a_higher_bound() {
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
