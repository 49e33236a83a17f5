//! The change of counters in an interval.

use std::time::Duration;

use super::snapshot::{Counters, Snapshot};

/// The counters at the start and at the end of an interval.
pub(super) struct Change<'a> {
    pub(super) before: &'a Snapshot,
    pub(super) now: &'a Snapshot,
    pub(super) time: Duration,
}

/// A counter with its change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate<'a> {
    pub(super) name: &'a str,
    pub(super) per_second: f64,
    pub(super) total: u64,
}

impl<'a> Change<'a> {
    /// Returns the value of a counter now; zero if the server does not have it.
    pub(super) fn value(&self, name: &str) -> u64 {
        value(&self.now.counters, name)
    }

    /// Returns by how much a counter grew.
    pub(super) fn growth(&self, name: &str) -> u64 {
        self.value(name).saturating_sub(value(&self.before.counters, name))
    }

    /// Returns by how much a counter grew in a second.
    pub(super) fn rate(&self, name: &str) -> f64 {
        self.per_second(self.growth(name))
    }

    /// Returns the counters that are not zero in a part of the snapshot; those first that grew the
    /// most, then those with the highest values.
    pub(super) fn rates(&self, part: impl Fn(&'a Snapshot) -> &'a Counters) -> Vec<Rate<'a>> {
        let before = part(self.before);
        let rows = part(self.now).iter().filter(|(_, total)| **total > 0);
        let rows = rows.map(|(name, &total)| {
            let growth = total.saturating_sub(value(before, name));
            Rate { name, per_second: self.per_second(growth), total }
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|a, b| {
            b.per_second.total_cmp(&a.per_second).then_with(|| b.total.cmp(&a.total))
        });
        rows
    }

    fn per_second(&self, growth: u64) -> f64 {
        ratio(growth, 1).unwrap_or(0.0) / self.time.as_secs_f64().max(0.001)
    }
}

fn value(counters: &Counters, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

/// Returns a quotient; `None` if the divisor is zero.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn ratio(dividend: u64, divisor: u64) -> Option<f64> {
    (divisor > 0).then(|| dividend as f64 / divisor as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(rows: &[(&str, u64)]) -> Snapshot {
        let counters: Counters = rows.iter().map(|(name, it)| ((*name).to_owned(), *it)).collect();
        Snapshot { requests: counters.clone(), counters, ..Snapshot::default() }
    }

    #[test]
    fn rates_are_by_second_and_sorted() {
        let before = snapshot(&[("a", 10), ("b", 100), ("d", 5)]);
        let now = snapshot(&[("a", 30), ("b", 100), ("c", 0), ("d", 5), ("e", 8)]);
        let change = Change { before: &before, now: &now, time: Duration::from_secs(2) };
        assert_eq!((change.growth("a"), change.value("a")), (20, 30));
        assert!((change.rate("a") - 10.0).abs() < 1e-9);
        assert_eq!(change.growth("none"), 0);
        let rates = change.rates(|of| &of.requests);
        let names: Vec<_> = rates.iter().map(|rate| rate.name).collect();
        assert_eq!(names, ["a", "e", "b", "d"]);
        assert_eq!(rates[0], Rate { name: "a", per_second: 10.0, total: 30 });
    }

    #[test]
    fn counter_that_fell_has_no_rate() {
        let [before, now] = [snapshot(&[("a", 10)]), snapshot(&[("a", 3)])];
        let change = Change { before: &before, now: &now, time: Duration::ZERO };
        assert_eq!((change.growth("a"), ratio(3, 0)), (0, None));
        assert!(change.rate("a").abs() < 1e-9);
    }
}
