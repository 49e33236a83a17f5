//! Causes of commits.

use userbtrfs_sync::atomic::{AtomicU64, Ordering};

/// The cause of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommitTrigger {
    /// A caller asked for it, or closed the filesystem.
    Asked,
    /// A sync that was not logged: see [`FullCommitReason`](crate::FullCommitReason).
    Sync,
    /// The commit interval was over.
    Age,
    /// Its changes took too much memory.
    Memory,
    /// Space that it freed was needed.
    Space,
}

impl CommitTrigger {
    /// All causes.
    pub const ALL: [Self; 5] = [Self::Asked, Self::Sync, Self::Age, Self::Memory, Self::Space];

    /// Returns its index in [`Self::ALL`].
    fn index(self) -> usize {
        Self::ALL.iter().position(|&cause| cause == self).expect("all are listed")
    }

    /// Returns its name.
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
    /// Returns the number of commits for this cause. A commit with several causes counts for the
    /// first.
    pub fn by(&self, cause: CommitTrigger) -> u64 {
        self.0[cause.index()]
    }
}

/// The counters behind [`Commits`].
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
