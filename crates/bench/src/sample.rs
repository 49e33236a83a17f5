//! The times of one turn of a target, in three parts, and statistics of many turns.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

/// The times of one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// The time of the work itself.
    pub(crate) work: Duration,
    /// The time to make the result durable, if there is one.
    pub(crate) sync: Option<Duration>,
    /// The time of attaching, mounting, unmounting and detaching, if the target is mounted.
    pub(crate) mount: Option<Duration>,
    /// The peak memory of this process in bytes, if measured.
    pub(crate) peak: Option<u64>,
    /// The number of bytes that reached the device, if measured.
    pub(crate) written: Option<u64>,
    /// The bytes that the resulting filesystem uses, if counted.
    pub(crate) stored: Option<u64>,
}

impl Sample {
    /// Returns a sample that only has the time of the work.
    pub(crate) fn of_work(work: Duration) -> Self {
        Self { work, ..Self::default() }
    }
}

/// Runs `act`; returns the time that it took, and its result.
pub(crate) fn timed<T>(act: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let start = Instant::now();
    let value = act()?;
    Ok((start.elapsed(), value))
}

/// Statistics of several times in seconds, or of other figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// Returns the statistics of these times; there must be at least one.
    pub(crate) fn of(times: impl IntoIterator<Item = Duration>) -> Self {
        Self::of_figures(times.into_iter().map(|time| time.as_secs_f64()))
    }

    /// Returns the statistics of these figures; there must be at least one.
    pub(crate) fn of_figures(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let first = figures.first();
        let last = figures.last();
        Self {
            median: f64::midpoint(figures[(figures.len() - 1) / 2], figures[figures.len() / 2]),
            min: *first.expect("at least one"),
            max: *last.expect("at least one"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let spread = |seconds: &[u64]| Spread::of(seconds.iter().map(|s| Duration::from_secs(*s)));
        assert_eq!(spread(&[9, 1, 2]), Spread { median: 2.0, min: 1.0, max: 9.0 });
        assert_eq!(spread(&[4, 1, 2, 9]), Spread { median: 3.0, min: 1.0, max: 9.0 });
    }
}
