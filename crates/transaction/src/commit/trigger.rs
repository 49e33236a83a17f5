//! Who had transactions committed.

use userbtrfs_sync::atomic::{AtomicU64, Ordering};

/// Who had a transaction committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommitTrigger {
    /// Whoever asked for it, or closed the filesystem.
    Asked,
    /// A sync that was not logged: [`FullCommitReason`](crate::FullCommitReason) says why.
    Sync,
    /// Its time was over.
    Age,
    /// What it changed took too much memory.
    Memory,
    /// Space that it freed was wanted.
    Space,
}

impl CommitTrigger {
    /// All causes.
    pub const ALL: [Self; 5] = [Self::Asked, Self::Sync, Self::Age, Self::Memory, Self::Space];

    /// Its place among all.
    fn index(self) -> usize {
        Self::ALL.iter().position(|&cause| cause == self).expect("all are listed")
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked for",
            Self::Sync => "for a sync",
            Self::Age => "for age",
            Self::Memory => "for memory",
            Self::Space => "for space",
        }
    }
}

/// How many transactions were committed since the filesystem was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commits([u64; CommitTrigger::ALL.len()]);

impl Commits {
    /// How many for this cause. One that several had a cause for counts for the first.
    pub fn by(&self, cause: CommitTrigger) -> u64 {
        self.0[cause.index()]
    }
}

/// The same, while it is counted.
#[derive(Default)]
pub(crate) struct CommitCounts([AtomicU64; CommitTrigger::ALL.len()]);

impl CommitCounts {
    pub(crate) fn count(&self, cause: CommitTrigger) {
        self.0[cause.index()].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Commits {
        Commits(self.0.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }
}
