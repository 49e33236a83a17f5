//! Latencies of operations: count, sum, maximum, and a distribution.
//!
//! The distribution counts latencies in buckets: eight in each power of two nanoseconds. So an
//! upper bound that is read from it is less than an eighth too high.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The number of bits that divide a power of two into buckets.
const FINE: u32 = 3;

/// The latencies of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Latencies {
    count: u64,
    sum: Duration,
    max: Duration,
    /// The number of latencies in each bucket, by the upper bound of the bucket in nanoseconds.
    buckets: BTreeMap<u64, u64>,
}

impl Latencies {
    /// Adds one latency.
    pub(crate) fn add(&mut self, latency: Duration) {
        self.count += 1;
        self.sum += latency;
        self.max = self.max.max(latency);
        *self.buckets.entry(upper_bound(latency)).or_default() += 1;
    }

    /// Adds all latencies of another one.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        for (bound, count) in &other.buckets {
            *self.buckets.entry(*bound).or_default() += count;
        }
    }

    /// Returns the number of operations.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the average; zero if there are none.
    pub(crate) fn average(&self) -> Duration {
        let count = u128::from(self.count.max(1));
        let nanoseconds = u64::try_from(self.sum.as_nanos() / count);
        Duration::from_nanos(nanoseconds.expect("an average is no longer than its maximum"))
    }

    /// Returns the maximum; zero if there are none.
    pub(crate) fn max(&self) -> Duration {
        self.max
    }

    /// Returns the distribution: for each bucket its upper bound, and the part of all latencies
    /// that are no longer.
    pub(crate) fn distribution(&self) -> Vec<(Duration, f64)> {
        let mut below = 0;
        let point = |(bound, count): (&u64, &u64)| {
            below += count;
            (Duration::from_nanos(*bound).min(self.max), ratio(below, self.count))
        };
        self.buckets.iter().map(point).collect()
    }
}

/// Returns the upper bound of the bucket of a latency, in nanoseconds.
fn upper_bound(latency: Duration) -> u64 {
    let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
    let shift = nanoseconds.checked_ilog2().unwrap_or(0).saturating_sub(FINE);
    nanoseconds.saturating_add((1 << shift) - 1) >> shift << shift
}

#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
fn ratio(part: u64, all: u64) -> f64 {
    part as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nanoseconds: &[u64]) -> Latencies {
        let mut latencies = Latencies::default();
        for ns in nanoseconds {
            latencies.add(Duration::from_nanos(*ns));
        }
        latencies
    }

    #[test]
    fn average_and_maximum_are_of_all_latencies() {
        let mut all = of(&[1, 2]);
        all.merge(&of(&[9]));
        assert_eq!(all, of(&[1, 2, 9]));
        assert_eq!(all.count(), 3);
        assert_eq!(all.average(), Duration::from_nanos(4));
        assert_eq!(all.max(), Duration::from_nanos(9));
        assert_eq!(Latencies::default().average(), Duration::ZERO);
    }

    #[test]
    fn bucket_contains_its_latency_and_is_narrow() {
        for nanoseconds in (0..5000).chain([1 << 40, (1 << 40) + 1, u64::MAX]) {
            let bound = upper_bound(Duration::from_nanos(nanoseconds));
            assert!(bound >= nanoseconds || bound == u64::MAX >> 60 << 60, "{nanoseconds}");
            assert!(bound - bound.min(nanoseconds) <= nanoseconds / 8, "{nanoseconds} {bound}");
        }
    }

    #[test]
    fn distribution_ends_with_all_at_the_maximum() {
        let distribution = of(&[1000, 1000, 2000, 9001]).distribution();
        assert_eq!(distribution.first(), Some(&(Duration::from_nanos(1024), 0.5)));
        assert_eq!(distribution.last(), Some(&(Duration::from_nanos(9001), 1.0)));
        assert_eq!(distribution.len(), 3);
    }
}
