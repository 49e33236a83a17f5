//! Tree logs, which make changes durable before their transaction is committed.
//!
//! | file          | holds                                                          |
//! |---------------|----------------------------------------------------------------|
//! | `commits`     | log commits: which fsyncs share one, and which thread leads it |
//! | `commit`      | writing one: nodes, flush, superblock                          |
//! | `blocks`      | the tree blocks of logs                                        |
//! | `checksums`   | checksums in a log                                             |
//! | `full_commit` | why a transaction is committed instead                         |
//! | `stats`       | counters                                                       |
//!
//! 1. A log is a tree of one subvolume and one transaction, N. It and the tree of the log roots,
//!    which leads to all logs, are changed under one lock, by threads that have a handle of N.
//! 2. Its nodes are of generation N and of owner TREE_LOG; neither the extent tree nor the free
//!    space tree has them. A node that was submitted to the device is not overwritten as long as a
//!    superblock may lead to it.
//! 3. The superblock that leads to a log is the one of N - 1, which is durable before.
//! 4. If a log may be incomplete or wrong, N is marked before the lock is released: none of its
//!    logs is written any more, and a thread that needs durability commits N. The first reason is
//!    kept.
//! 5. The commit of N drops its logs: blocks that were written are pinned, the rest are freed.
//!    N + 1 begins without logs and without a mark.
//!
//! A *group* is a log commit: the changes of logs that are written together. This module does not
//! know what is logged, nor when.

mod blocks;
mod checksums;
mod commit;
mod commits;
mod full_commit;
#[cfg(all(test, loom))]
mod loom_models;
mod stats;

use std::collections::BTreeMap;

use userbtrfs_btree::{Edit, Root, Tree};
use userbtrfs_format::{Key, Logical, TreeId};
use userbtrfs_sync::atomic::{AtomicUsize, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex, MutexGuard};
use uuid::Uuid;

use self::blocks::{Dropped, LogBlocks, LogSource};
use self::checksums::LoggedChecksums;
use self::commits::LogCommits;
use self::stats::Counts;
use crate::commit::Handle;
use crate::error::{Error, Result};
use crate::manager::TransactionManager;
use crate::roots::TreeRoots;
use crate::space::{Reservation, ReservePolicy, bytes_for_items};

pub use commit::{LogSyncPhase, LogSyncer, PendingIoToken};
pub use full_commit::{FullCommitReason, LogFailure};
pub use stats::LogStats;

/// Items that are changed with one reservation.
const ITEMS_AT_ONCE: usize = 32;

/// The nodes above the leaves may need more than is reserved for each item: this much, in items.
const ITEMS_FOR_WAY: u64 = 4;

/// The logs of the running transaction.
pub(crate) struct SubvolumeLogs {
    trees: Mutex<LogTrees>,
    blocks: LogBlocks,
    groups: LogCommits<LogFailure>,
    /// 0, or one more than the index of the reason in [`FullCommitReason::ALL`].
    mark: AtomicUsize,
    counts: Counts,
    chunk_tree_uuid: Uuid,
}

/// The log trees of the running transaction.
#[derive(Default)]
struct LogTrees {
    /// The tree of the log roots.
    roots: Option<Arc<Tree>>,
    logs: BTreeMap<TreeId, SubvolumeLog>,
}

/// The log of a subvolume.
struct SubvolumeLog {
    tree: Arc<Tree>,
    /// The root in the tree of the log roots, if it is there.
    listed: Option<Root>,
    checksums: LoggedChecksums,
}

/// A group: the changes of logs between one log commit and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogTransId {
    transaction: u64,
    number: u64,
}

/// Exclusive access to the logs of a transaction.
pub struct LogWriter<'a> {
    transactions: &'a TransactionManager,
    generation: u64,
    trees: MutexGuard<'a, LogTrees>,
}

impl SubvolumeLogs {
    pub(crate) fn new(tree_roots: &TreeRoots) -> Result<Self> {
        let first = tree_roots.roots().search(tree_roots.store(), &Key::MIN)?;
        Ok(Self {
            trees: Mutex::new(Class::LogRoot, LogTrees::default()),
            blocks: LogBlocks::new(),
            groups: LogCommits::new(LogFailure::Commit(FullCommitReason::Failed)),
            mark: AtomicUsize::new(0),
            counts: Counts::default(),
            chunk_tree_uuid: first.leaf.header().chunk_tree_uuid,
        })
    }

    /// Returns true if the running transaction has no logs and is not marked.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.check().is_ok()
    }

    /// Returns a lower bound of the number of blocks that the commit frees.
    pub(crate) fn freeable(&self) -> u64 {
        self.blocks.freeable()
    }

    fn check(&self) -> Result<(), FullCommitReason> {
        let mark = self.mark.load(Ordering::Acquire).checked_sub(1);
        mark.map_or(Ok(()), |index| Err(FullCommitReason::ALL[index]))
    }

    /// Marks the transaction; returns the first reason.
    fn mark(&self, reason: FullCommitReason) -> FullCommitReason {
        let own = 1 + reason.index();
        match self.mark.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                self.counts.commit_required(reason);
                reason
            }
            Err(first) => FullCommitReason::ALL[first - 1],
        }
    }
}

impl TransactionManager {
    /// Locks the logs of the handle's transaction for changes. The error is the reason why the
    /// transaction must be committed instead.
    pub fn logs<'a>(&'a self, handle: &'a Handle<'a>) -> Result<LogWriter<'a>, FullCommitReason> {
        if !self.options.log {
            return Err(self.logs.mark(FullCommitReason::Disabled));
        }
        self.logs.check()?;
        let trees = self.logs.trees.lock();
        self.logs.check()?;
        Ok(LogWriter { transactions: self, generation: handle.generation(), trees })
    }

    /// Marks the handle's transaction: its logs are not used any more, and a sync commits it. Only
    /// the first reason of a transaction is counted.
    pub fn require_commit(&self, _handle: &Handle<'_>, reason: FullCommitReason) {
        self.logs.mark(reason);
    }

    /// Returns the counters of logs since the filesystem was opened.
    pub fn log_stats(&self) -> LogStats {
        self.logs.counts.get()
    }

    /// Drops the logs of a transaction that has no open handles any more.
    pub(crate) fn drop_logs(&self) -> Result<()> {
        *self.logs.trees.lock() = LogTrees::default();
        let len = u64::from(self.volume().geometry().nodesize);
        let Dropped { free, pinned } = self.logs.blocks.take();
        for &logical in free.iter().chain(&pinned) {
            self.tree_roots.store().discard(logical);
        }
        free.iter().try_for_each(|&logical| self.space.give_back(logical, len))?;
        pinned.iter().try_for_each(|&logical| self.space.pin(logical, len))?;
        self.logs.groups.renew();
        self.logs.mark.store(0, Ordering::Release);
        Ok(())
    }

    fn log_source(&self, generation: u64) -> LogSource<'_> {
        let nodesize = u64::from(self.volume().geometry().nodesize);
        LogSource { space: &self.space, blocks: &self.logs.blocks, generation, nodesize }
    }
}

impl<'a> LogWriter<'a> {
    /// The number of the transaction.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The log of a subvolume, if it has one in this transaction.
    pub fn tree(&self, subvolume: TreeId) -> Option<&Arc<Tree>> {
        self.trees.logs.get(&subvolume).map(|log| &log.tree)
    }

    /// Returns an error if the transaction has been aborted.
    pub fn check(&self) -> Result<(), FullCommitReason> {
        self.transactions.transaction_state.check().map_err(|_| FullCommitReason::Failed)
    }

    /// The subvolumes that have a log in this transaction.
    pub fn subvolumes(&self) -> Vec<TreeId> {
        self.trees.logs.keys().copied().collect()
    }

    /// Returns the group that contains the changes made so far.
    pub fn group(&self) -> LogTransId {
        let number = self.transactions.logs.groups.collecting();
        LogTransId { transaction: self.generation, number }
    }

    /// Registers pending I/O of data that the group refers to: see [`LogSyncer::finish_io`].
    pub fn pending_io(&self) -> PendingIoToken<'a> {
        PendingIoToken(self.transactions.logs.groups.pending_io())
    }

    /// Marks the transaction, because its log is incomplete.
    pub fn force_full_commit(&self, reason: FullCommitReason) {
        self.transactions.logs.mark(reason);
    }

    /// Changes items of the log of a subvolume, which is created if there is none; the keys of
    /// `edits` ascend strictly. If it fails, the transaction is marked.
    pub fn apply<E: Edit>(
        &mut self,
        subvolume: TreeId,
        edits: &mut [E],
    ) -> Result<(), FullCommitReason> {
        if edits.is_empty() {
            return Ok(());
        }
        let changed = self.log(subvolume).map(|log| Arc::clone(&log.tree));
        let changed = changed.and_then(|tree| self.change(&tree, edits));
        changed.map_err(|error| self.transactions.logs.mark((&error).into()))
    }

    /// Returns true if the log of a subvolume has checksums of all sectors between two addresses.
    pub fn has_checksums(&self, subvolume: TreeId, start: Logical, end: Logical) -> bool {
        self.trees.logs.get(&subvolume).is_some_and(|log| log.checksums.has(start.0, end.0))
    }

    /// Adds checksums of consecutive sectors from `logical` on, in stored form, to the log of a
    /// subvolume. Sectors that have one there are skipped: space that is freed in a transaction is
    /// not reallocated in it, so the checksum is the same.
    pub fn add_checksums(
        &mut self,
        subvolume: TreeId,
        logical: Logical,
        stored: &[u8],
    ) -> Result<(), FullCommitReason> {
        let form = checksums::form(self.transactions.volume().geometry());
        let mut new = match self.log(subvolume) {
            Ok(log) => log.checksums.add(logical, stored, form),
            Err(error) => return Err(self.transactions.logs.mark((&error).into())),
        };
        self.apply(subvolume, &mut new)
    }

    fn log(&mut self, subvolume: TreeId) -> Result<&mut SubvolumeLog> {
        if !self.trees.logs.contains_key(&subvolume) {
            let (tree, checksums) = (self.create()?, LoggedChecksums::default());
            self.trees.logs.insert(subvolume, SubvolumeLog { tree, listed: None, checksums });
        }
        Ok(self.trees.logs.get_mut(&subvolume).expect("it is there"))
    }

    /// Creates a tree.
    fn create(&self) -> Result<Arc<Tree>> {
        let TransactionManager { logs, tree_roots, .. } = self.transactions;
        let _reserved = self.reserve(0)?;
        let source = self.transactions.log_source(self.generation);
        let made =
            Tree::create(TreeId::TREE_LOG, tree_roots.store(), &source, logs.chunk_tree_uuid);
        Ok(Arc::new(made.map_err(|_| Error::NoSpace)?))
    }

    /// Changes items of one of the trees in chunks, so that little is reserved at once.
    fn change<E: Edit>(&self, tree: &Tree, edits: &mut [E]) -> Result<()> {
        let source = self.transactions.log_source(self.generation);
        for edits in edits.chunks_mut(ITEMS_AT_ONCE) {
            // Released after each chunk: the blocks it used are accounted as allocated by then.
            let _reserved = self.reserve(edits.len())?;
            tree.apply(self.transactions.tree_roots.store(), &source, edits)?;
        }
        Ok(())
    }

    /// Reserves space to change `items` items, without flushing to free some.
    fn reserve(&self, items: usize) -> Result<Reservation> {
        let items = ITEMS_FOR_WAY + items as u64;
        let bytes = bytes_for_items(items, self.transactions.volume().geometry().nodesize);
        self.transactions.reserve_now(bytes, 0, ReservePolicy::Normal).ok_or(Error::NoSpace)
    }
}
