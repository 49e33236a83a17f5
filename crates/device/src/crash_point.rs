//! Named points in the crates above, at which tests cut the power.
//!
//! 1. All points are in one list, [`CrashPoint`]. docs/design/transactions.md has a table of them,
//!    and a test of testkit reaches each and judges the images that a cut there leaves.
//! 2. A point is reported to the device by [`crash_point`](crate::crash_point). So a test selects
//!    points for one filesystem, whatever else runs in the process.
//! 3. Only the feature `crash-points` compiles the reports in, and only testkit asks for it:
//!    `cargo xtask tidy` checks that.

/// Defines the points and [`CrashPoint::ALL`] from one list.
macro_rules! crash_points {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A point at which a test may cut the power: no later write reaches the image.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum CrashPoint {
            $($(#[doc = $doc])+ $name,)+
        }

        impl CrashPoint {
            /// All points, each operation's in the order in which it reaches them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

crash_points! {
    /// A commit dropped the logs of its transaction, in memory.
    CommitLogsDropped,
    /// A commit flushed all delayed items into the trees in memory.
    CommitItemsFlushed,
    /// A commit ran the delayed refs for the first time; block groups and root items are old.
    CommitRefsRun,
    /// A commit wrote all space items and root items into the trees in memory.
    CommitTreesFinal,
    /// The next transaction runs; no block of the committed one is written except early leaves.
    CommitUnblocked,
    /// All blocks of a commit are written, and no flush followed.
    CommitNodesWritten,
    /// All blocks of a commit are durable, and its superblock is not written.
    CommitBeforeSuperblock,
    /// The primary superblock of a commit is durable, and its mirrors are not written.
    CommitBetweenSuperblocks,
    /// All superblock copies of a commit are written; what it freed is still pinned.
    CommitAfterSuperblock,
    /// The freed space of a commit is discarded, if that is enabled, and still pinned.
    CommitDiscarded,
    /// A commit is completed: the space that it freed may be allocated.
    CommitCompleted,
    /// The nodes of a log commit are sealed, and not submitted.
    LogSealed,
    /// The nodes of a log commit and the leader's data are written, and no flush followed.
    LogNodesWritten,
    /// All that a log commit refers to is durable, and its superblock is not written.
    LogBeforeSuperblock,
    /// The superblock of a log commit is durable; blocks that its logs dropped are not reusable.
    LogAfterSuperblock,
    /// A log commit is done, and its members still wait.
    LogBeforeWake,
    /// A replay took the extents of all logs out of the free space, and changed no inode.
    ReplayExtentsTaken,
    /// A replay made all changes of one log, in memory.
    ReplayLogDone,
    /// A replay made all changes, and its commit has not begun.
    ReplayBeforeCommit,
    /// The commit of a replay is durable: no superblock leads to the logs any more.
    ReplayAfterCommit,
    /// A large file without a name is listed as an orphan, and no step of its deletion began.
    OrphanListed,
    /// A step of the deletion of an orphan removed some of its extents.
    OrphanStep,
    /// The last step deleted the orphan, as a delayed item.
    OrphanDeleted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_the_design_document_has_each_point_once() {
        let document = include_str!("../../../docs/design/transactions.md");
        let row = |line: &str| Some(line.strip_prefix("| `")?.split_once("` |")?.0.to_owned());
        let rows: Vec<_> = document.lines().filter_map(row).collect();
        for point in CrashPoint::ALL {
            let name = format!("{point:?}");
            let count = rows.iter().filter(|row| **row == name).count();
            assert_eq!(count, 1, "rows of {name}");
        }
    }
}
