//! The figures of an outcome that are compared.

use std::fmt;

use super::case::Load;
use crate::load::outcome::Outcome;

/// A figure of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// The rate: more is better.
    Rate,
    /// The longest latency of all operations in milliseconds.
    MaxLatency,
    /// The average latency of a kind of operation in milliseconds.
    Average(&'static str),
    /// The longest latency of a kind of operation in milliseconds.
    Max(&'static str),
}

impl Figure {
    /// Returns the figures of a load.
    pub(crate) fn of(load: Load) -> &'static [Self] {
        match load {
            Load::Dbench => &[
                Self::Rate,
                Self::MaxLatency,
                Self::Average("Flush"),
                Self::Max("Flush"),
                Self::Average("Rename"),
                Self::Max("Rename"),
            ],
            Load::Fio => &[Self::Rate, Self::Average("fsync"), Self::Max("fsync")],
            Load::Fsmark => &[Self::Rate],
        }
    }

    /// Returns the figure of an outcome, if it has it.
    pub(crate) fn get(self, outcome: &Outcome) -> Option<f64> {
        match self {
            Self::Rate => Some(outcome.rate),
            Self::MaxLatency => outcome.max_latency(),
            Self::Average(name) => outcome.operation(name).map(|figures| figures.average),
            Self::Max(name) => outcome.operation(name).map(|figures| figures.max),
        }
    }

    /// Returns how many times as good `to` is as `from`.
    pub(crate) fn gain(self, from: f64, to: f64) -> f64 {
        if self == Self::Rate { to / from } else { from / to }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate => f.write_str("rate"),
            Self::MaxLatency => f.write_str("max latency, ms"),
            Self::Average(name) => write!(f, "{name} average, ms"),
            Self::Max(name) => write!(f, "{name} max, ms"),
        }
    }
}
