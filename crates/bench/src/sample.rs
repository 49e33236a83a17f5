//! One turn of a target, timed in three parts; and what many turns have in common.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

/// The time that one turn took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// What was asked for.
    pub(crate) work: Duration,
    /// Making its result durable, where it makes something.
    pub(crate) sync: Option<Duration>,
    /// Attaching and mounting before, unmounting and detaching after, where it is mounted.
    pub(crate) mount: Option<Duration>,
    /// The most memory that this process took, in bytes, where that is measured.
    pub(crate) peak: Option<u64>,
    /// Bytes that reached the device, where that is measured.
    pub(crate) written: Option<u64>,
}

impl Sample {
    /// A turn that was nothing but work.
    pub(crate) fn of_work(work: Duration) -> Self {
        Self { work, ..Self::default() }
    }
}

/// How long something takes, with what it gives.
pub(crate) fn timed<T>(act: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let start = Instant::now();
    let value = act()?;
    Ok((start.elapsed(), value))
}

/// Several times, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Half of them are not above it.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// What these times, at least one, have in common.
    pub(crate) fn of(times: impl IntoIterator<Item = Duration>) -> Self {
        let mut seconds: Vec<f64> = times.into_iter().map(|time| time.as_secs_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        let (first, last) = (seconds.first(), seconds.last());
        Self {
            median: f64::midpoint(seconds[(seconds.len() - 1) / 2], seconds[seconds.len() / 2]),
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
