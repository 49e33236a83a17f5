//! The behaviours that an experiment restores; docs/seeds.md describes each.
//!
//! 1. A filesystem has at most one experiment, from when it is opened.
//! 2. Each is correct: what an fsync keeps does not depend on it.
//! 3. Only the feature `experiments` compiles it, and only testkit and bench ask for that:
//!    `cargo xtask tidy` checks it.

use std::fmt;
use std::str::FromStr;

/// A behaviour of before one of the seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Experiment {
    /// An fsync does not begin to log while the previous transaction is being written.
    S0,
    /// A rename or link that concerns a logged inode or directory writes the log before it returns.
    S1,
    /// Each fsync locks its ranges of checksums, and deletes them from the log before it adds them.
    S2,
    /// Logging a file flushes its delayed items, searches the log, and logs the rest of its leaf.
    S3,
    /// The tree lock spins or sleeps by the state of its holder, and a release wakes all threads.
    S4,
}

/// The error for a name that no experiment has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such experiment: {0:?} (s0, s1, s2, s3 or s4)")]
pub struct NoSuchExperiment(String);

impl Experiment {
    /// All experiments.
    pub const ALL: [Self; 5] = [Self::S0, Self::S1, Self::S2, Self::S3, Self::S4];

    /// Returns the name: `s0` and so on.
    pub fn name(self) -> &'static str {
        match self {
            Self::S0 => "s0",
            Self::S1 => "s1",
            Self::S2 => "s2",
            Self::S3 => "s3",
            Self::S4 => "s4",
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Experiment {
    type Err = NoSuchExperiment;

    fn from_str(name: &str) -> Result<Self, NoSuchExperiment> {
        let found = Self::ALL.into_iter().find(|experiment| experiment.name() == name);
        found.ok_or_else(|| NoSuchExperiment(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_experiment_is_found_by_its_name() {
        for experiment in Experiment::ALL {
            assert_eq!(experiment.to_string().parse(), Ok(experiment));
        }
        assert!("s5".parse::<Experiment>().is_err());
    }
}
