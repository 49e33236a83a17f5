//! Tree logs: what makes changes durable that are not committed yet.
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
//! 1. A log is a tree of one subvolume and one transaction, N. It is changed, like the tree of the
//!    log roots, which leads to all of them, under one lock, by who is in N.
//! 2. Its nodes are of generation N and of owner TREE_LOG; neither the extent tree nor the free
//!    space tree knows them. None that is on its way to the device is overwritten as long as a
//!    superblock may lead to it.
//! 3. The superblock that leads to a log is the one of N - 1, which is durable before.
//! 4. Where anything is in doubt, N is marked, before the lock is left: none of its logs is written
//!    any more, and who wants something durable commits N. The first reason stays.
//! 5. With the commit of N its logs are gone: what was written is pinned, the rest is free. N + 1
//!    begins without logs and without a mark.
//!
//! What it does not do: it does not know what is logged, nor when.

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

/// What the blocks above the leaves may take beyond what is reserved for each item, as so many
/// items.
const ITEMS_FOR_WAY: u64 = 4;

/// The logs of the running transaction.
pub(crate) struct SubvolumeLogs {
    trees: Mutex<LogTrees>,
    blocks: LogBlocks,
    groups: LogCommits<LogFailure>,
    /// 0, or one more than the place of a reason among all.
    mark: AtomicUsize,
    counts: Counts,
    chunk_tree_uuid: Uuid,
}

/// The trees.
#[derive(Default)]
struct LogTrees {
    /// The tree of the log roots.
    roots: Option<Arc<Tree>>,
    logs: BTreeMap<TreeId, SubvolumeLog>,
}

/// The log of a subvolume.
struct SubvolumeLog {
    tree: Arc<Tree>,
    /// The root that the tree of the log roots leads to.
    listed: Option<Root>,
    sums: LoggedChecksums,
}

/// What is written together: changes of logs between one writing and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogTransId {
    transaction: u64,
    number: u64,
}

/// The right to change the logs of a transaction, one thread at a time.
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

    /// Whether the running transaction has no logs, and is not marked.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.check().is_ok()
    }

    /// How many blocks the commit frees, at least.
    pub(crate) fn freeable(&self) -> u64 {
        self.blocks.freeable()
    }

    fn check(&self) -> Result<(), FullCommitReason> {
        let mark = self.mark.load(Ordering::Acquire).checked_sub(1);
        mark.map_or(Ok(()), |index| Err(FullCommitReason::ALL[index]))
    }

    /// Marks the transaction; gives the first reason.
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
    /// The right to change the logs of the handle's transaction; waits while another thread has it.
    /// An error says why the transaction must be committed instead.
    pub fn logs<'a>(&'a self, handle: &'a Handle<'a>) -> Result<LogWriter<'a>, FullCommitReason> {
        if !self.options.log {
            return Err(self.logs.mark(FullCommitReason::Disabled));
        }
        self.logs.check()?;
        let trees = self.logs.trees.lock();
        self.logs.check()?;
        Ok(LogWriter { transactions: self, generation: handle.generation(), trees })
    }

    /// From now on the logs of the handle's transaction are good for nothing: what is to be durable
    /// is committed. The first reason of a transaction is counted.
    pub fn require_commit(&self, _handle: &Handle<'_>, reason: FullCommitReason) {
        self.logs.mark(reason);
    }

    /// What was done with logs since the filesystem was opened.
    pub fn log_stats(&self) -> LogStats {
        self.logs.counts.get()
    }

    /// Drops the logs of a transaction that nobody is in any more.
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

    /// Whether the transaction may still become durable: not where who changes it has failed.
    pub fn check(&self) -> Result<(), FullCommitReason> {
        self.transactions.transaction_state.check().map_err(|_| FullCommitReason::Failed)
    }

    /// The subvolumes that have a log in this transaction.
    pub fn subvolumes(&self) -> Vec<TreeId> {
        self.trees.logs.keys().copied().collect()
    }

    /// The group that is written with what was changed so far.
    pub fn group(&self) -> LogTransId {
        let number = self.transactions.logs.groups.collecting();
        LogTransId { transaction: self.generation, number }
    }

    /// Promises that data will be there of which the group speaks: see [`LogSyncer::land`].
    pub fn pending_io(&self) -> PendingIoToken<'a> {
        PendingIoToken(self.transactions.logs.groups.pending_io())
    }

    /// Marks the transaction: what was put into the log is not all that belongs there.
    pub fn force_full_commit(&self, reason: FullCommitReason) {
        self.transactions.logs.mark(reason);
    }

    /// Changes items of the log of a subvolume, which is made if there is none; the keys of `edits`
    /// ascend strictly. Where it fails, the transaction is marked.
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

    /// Whether the log of a subvolume has checksums of all sectors between two addresses.
    pub fn has_checksums(&self, subvolume: TreeId, start: Logical, end: Logical) -> bool {
        self.trees.logs.get(&subvolume).is_some_and(|log| log.sums.has(start.0, end.0))
    }

    /// Puts checksums of sectors from `logical` on into the log of a subvolume, one after the other
    /// as they are stored. Sectors that have one there are passed over: what was freed in a
    /// transaction is not given out again in it, so it is the same.
    pub fn add_checksums(
        &mut self,
        subvolume: TreeId,
        logical: Logical,
        stored: &[u8],
    ) -> Result<(), FullCommitReason> {
        let form = checksums::form(self.transactions.volume().geometry());
        let mut new = match self.log(subvolume) {
            Ok(log) => log.sums.add(logical, stored, form),
            Err(error) => return Err(self.transactions.logs.mark((&error).into())),
        };
        self.apply(subvolume, &mut new)
    }

    fn log(&mut self, subvolume: TreeId) -> Result<&mut SubvolumeLog> {
        if !self.trees.logs.contains_key(&subvolume) {
            let (tree, sums) = (self.create()?, LoggedChecksums::default());
            self.trees.logs.insert(subvolume, SubvolumeLog { tree, listed: None, sums });
        }
        Ok(self.trees.logs.get_mut(&subvolume).expect("it is there"))
    }

    /// Makes a tree.
    fn create(&self) -> Result<Arc<Tree>> {
        let TransactionManager { logs, tree_roots, .. } = self.transactions;
        let _reserved = self.reserve(0)?;
        let source = self.transactions.log_source(self.generation);
        let made =
            Tree::create(TreeId::TREE_LOG, tree_roots.store(), &source, logs.chunk_tree_uuid);
        Ok(Arc::new(made.map_err(|_| Error::NoSpace)?))
    }

    /// Changes items of one of the trees, some at a time, so that little is reserved at once.
    fn change<E: Edit>(&self, tree: &Tree, edits: &mut [E]) -> Result<()> {
        let source = self.transactions.log_source(self.generation);
        for edits in edits.chunks_mut(ITEMS_AT_ONCE) {
            // What it does not use, and what it used, is counted otherwise from then on.
            let _reserved = self.reserve(edits.len())?;
            tree.apply(self.transactions.tree_roots.store(), &source, edits)?;
        }
        Ok(())
    }

    /// Reserves space for changes of so many items, without making any.
    fn reserve(&self, items: usize) -> Result<Reservation> {
        let items = ITEMS_FOR_WAY + items as u64;
        let bytes = bytes_for_items(items, self.transactions.volume().geometry().nodesize);
        self.transactions.reserve_now(bytes, 0, ReservePolicy::Ordinary).ok_or(Error::NoSpace)
    }
}
