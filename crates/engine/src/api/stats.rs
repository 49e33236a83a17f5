//! The counters of an open filesystem.

use userbtrfs_btree::CacheStats;
use userbtrfs_transaction::{Commits, Discards, LogStats, RelocationStats};
use userbtrfs_volume::MirrorStats;

use super::Filesystem;
use crate::log::{Log, SyncStats};

/// Counters of an open filesystem.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The cache of tree nodes.
    pub nodes: CacheStats,
    /// The space that was discarded on the device: see [`OpenOptions::discard`].
    ///
    /// [`OpenOptions::discard`]: super::OpenOptions::discard
    pub discards: Discards,
    /// The committed transactions.
    pub commits: Commits,
    /// The syncs of files and directories.
    pub syncs: SyncStats,
    /// The log commits, and the reasons for full commits in their place.
    pub log: LogStats,
    /// The bad mirrors that were found, and repaired if the filesystem is writable.
    pub copies: MirrorStats,
    /// The changes that are only in memory now.
    pub dirty: DirtyStats,
    /// The bytes that resizes moved, and those that the running one has still to move.
    pub relocation: RelocationStats,
}

/// The amount of changes that are only in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyStats {
    /// Bytes of file data that are dirty or under writeback.
    pub data: u64,
    /// Bytes of dirty tree nodes, and about the memory of changes that are not in trees yet.
    pub metadata: u64,
}

impl Filesystem {
    /// Returns the counters since it was opened.
    pub fn stats(&self) -> Stats {
        let store = self.inner.tree_roots().store();
        let read =
            Stats { nodes: store.stats(), copies: self.volume().copy_stats(), ..Stats::default() };
        let Some(transactions) = &self.inner.transactions else { return read };
        Stats {
            discards: transactions.discards(),
            commits: transactions.commits(),
            syncs: self.inner.log.as_ref().map(Log::sync_stats).unwrap_or_default(),
            log: transactions.log_stats(),
            relocation: transactions.relocation_stats(),
            dirty: DirtyStats {
                data: self.inner.writer.as_ref().map_or(0, |writer| writer.unfinished_bytes()),
                metadata: u64::try_from(store.dirty_bytes() + self.inner.nodes.delayed_bytes())
                    .unwrap_or(u64::MAX),
            },
            ..read
        }
    }
}
