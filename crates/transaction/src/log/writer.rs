//! The logs of the running transaction, and changes of them.
//!
//! 1. A log is created by its first change. All changes are made under one lock, by a
//!    [`LogWriter`].
//! 2. A change that fails marks the transaction.
//! 3. A log is written only if the superblock that it belongs to has all features that are in use.

#[cfg(feature = "experiments")]
mod experiments;

use std::collections::BTreeMap;

use userbtrfs_btree::{Edit, ItemEdit, Root, Tree};
use userbtrfs_format::{ItemKind, Key, Logical, RootFlags, RootInode, RootItem, TreeId};
use userbtrfs_sync::atomic::{AtomicUsize, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex, MutexGuard};
use uuid::Uuid;

use super::blocks::{DroppedBlocks, LogBlocks, LogSource};
use super::checksums::{self, LoggedChecksums};
use super::commits::{LogCommits, PendingIo};
use super::full_commit::{FullCommitReason, LogFailure};
#[cfg(feature = "experiments")]
use super::range_locks::RangeLocks;
use super::stats::{Counts, LogStats};
use crate::commit::Handle;
use crate::context::TransactionContext;
use crate::error::{Error, Result};
use crate::space::{Reservation, ReservePolicy, bytes_for_items};

/// Items that are changed with one reservation.
const ITEMS_AT_ONCE: usize = 32;

/// The nodes above the leaves may need more than is reserved for each item: this much, in items.
const ITEMS_FOR_WAY: u64 = 4;

/// The logs of the running transaction.
pub(crate) struct SubvolumeLogs {
    pub(super) context: Arc<TransactionContext>,
    trees: Mutex<LogTrees>,
    pub(super) blocks: LogBlocks,
    pub(super) commits: LogCommits<LogFailure>,
    /// 0, or one more than the index of the reason in [`FullCommitReason::ALL`].
    mark: AtomicUsize,
    pub(super) counts: Counts,
    chunk_tree_uuid: Uuid,
    #[cfg(feature = "experiments")]
    locked_checksums: RangeLocks,
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

/// The number of a log commit: of the changes of logs since the log commit before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogTransId {
    pub(super) transaction: u64,
    pub(super) number: u64,
}

/// Data in flight that a log commit refers to.
#[must_use = "the log commit fails without it"]
pub struct PendingIoToken<'a>(pub(super) PendingIo<'a, LogFailure>);

/// Exclusive access to the logs of a transaction.
pub struct LogWriter<'a> {
    logs: &'a SubvolumeLogs,
    generation: u64,
    trees: MutexGuard<'a, LogTrees>,
}

impl SubvolumeLogs {
    pub(crate) fn new(context: Arc<TransactionContext>) -> Result<Self> {
        let tree_roots = &context.tree_roots;
        let first = tree_roots.roots().search(tree_roots.store(), &Key::MIN)?;
        let chunk_tree_uuid = first.leaf.header().chunk_tree_uuid;
        Ok(Self {
            context,
            trees: Mutex::new(Class::LogRoot, LogTrees::default()),
            blocks: LogBlocks::new(),
            commits: LogCommits::new(LogFailure::Commit(FullCommitReason::Failed)),
            mark: AtomicUsize::new(0),
            counts: Counts::default(),
            chunk_tree_uuid,
            #[cfg(feature = "experiments")]
            locked_checksums: RangeLocks::new(),
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

    /// Returns the reason if the transaction is marked.
    pub(crate) fn check(&self) -> Result<(), FullCommitReason> {
        let mark = self.mark.load(Ordering::Acquire).checked_sub(1);
        mark.map_or(Ok(()), |index| Err(FullCommitReason::ALL[index]))
    }

    /// Marks the transaction; returns the first reason.
    pub(crate) fn mark(&self, reason: FullCommitReason) -> FullCommitReason {
        let own = 1 + reason.index();
        match self.mark.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                self.counts.commit_required(reason);
                reason
            }
            Err(first) => FullCommitReason::ALL[first - 1],
        }
    }

    /// Locks the logs of the handle's transaction for changes. The error is the reason why the
    /// transaction must be committed instead.
    pub(crate) fn writer<'a>(
        &'a self,
        handle: &'a Handle<'a>,
    ) -> Result<LogWriter<'a>, FullCommitReason> {
        if !self.context.options.log {
            return Err(self.mark(FullCommitReason::Disabled));
        }
        if !self.context.volume().has_added_incompat() {
            return Err(self.mark(FullCommitReason::Feature));
        }
        self.check()?;
        #[cfg(feature = "experiments")]
        self.wait_for_previous(handle)?;
        let trees = self.trees.lock();
        self.check()?;
        Ok(LogWriter { logs: self, generation: handle.generation(), trees })
    }

    /// Returns the counters of logs since the filesystem was opened.
    pub(crate) fn stats(&self) -> LogStats {
        self.counts.get()
    }

    /// Drops the logs of a transaction that has no open handles any more.
    pub(crate) fn drop_all(&self) -> Result<()> {
        *self.trees.lock() = LogTrees::default();
        let len = u64::from(self.context.nodesize());
        let DroppedBlocks { free, pinned } = self.blocks.take();
        let store = self.context.tree_roots.store();
        free.iter().chain(&pinned).for_each(|&logical| store.discard(logical));
        let space = &self.context.space;
        free.iter().try_for_each(|&logical| space.give_back(logical, len))?;
        pinned.iter().try_for_each(|&logical| space.pin(logical, len))?;
        self.commits.renew();
        self.mark.store(0, Ordering::Release);
        Ok(())
    }

    fn source(&self, generation: u64) -> LogSource<'_> {
        let nodesize = u64::from(self.context.nodesize());
        LogSource { space: &self.context.space, blocks: &self.blocks, generation, nodesize }
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
        self.logs.context.state.check().map_err(|_| FullCommitReason::Failed)
    }

    /// The subvolumes that have a log in this transaction.
    pub fn subvolumes(&self) -> Vec<TreeId> {
        self.trees.logs.keys().copied().collect()
    }

    /// Returns the number of the log commit that contains the changes made so far.
    pub fn log_transid(&self) -> LogTransId {
        let number = self.logs.commits.collecting();
        LogTransId { transaction: self.generation, number }
    }

    /// Registers pending I/O of data that the log commit refers to: see
    /// [`finish_io`](crate::LogSyncer::finish_io).
    pub fn pending_io(&self) -> PendingIoToken<'a> {
        PendingIoToken(self.logs.commits.pending_io())
    }

    /// Marks the transaction, because its log is incomplete.
    pub fn force_full_commit(&self, reason: FullCommitReason) {
        self.logs.mark(reason);
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
        changed.map_err(|error| self.logs.mark((&error).into()))
    }

    /// Returns true if the log of a subvolume has checksums of all sectors between two addresses.
    pub fn has_checksums(&self, subvolume: TreeId, start: Logical, end: Logical) -> bool {
        #[cfg(feature = "experiments")]
        if self.replaces_checksums() {
            return false;
        }
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
        let form = checksums::form(self.logs.context.volume().geometry());
        #[cfg(feature = "experiments")]
        if self.replaces_checksums() {
            return self.replace_checksums(subvolume, logical, stored, form);
        }
        let mut new = match self.log(subvolume) {
            Ok(log) => log.checksums.add(logical, stored, form),
            Err(error) => return Err(self.logs.mark((&error).into())),
        };
        self.apply(subvolume, &mut new)
    }

    fn log(&mut self, subvolume: TreeId) -> Result<&mut SubvolumeLog> {
        if !self.trees.logs.contains_key(&subvolume) {
            let tree = self.create()?;
            let checksums = LoggedChecksums::default();
            self.trees.logs.insert(subvolume, SubvolumeLog { tree, listed: None, checksums });
        }
        Ok(self.trees.logs.get_mut(&subvolume).expect("it is there"))
    }

    /// Creates a tree.
    fn create(&self) -> Result<Arc<Tree>> {
        let SubvolumeLogs { context, chunk_tree_uuid, .. } = self.logs;
        let _reserved = self.reserve(0)?;
        let source = self.logs.source(self.generation);
        let made =
            Tree::create(TreeId::TREE_LOG, context.tree_roots.store(), &source, *chunk_tree_uuid);
        Ok(Arc::new(made.map_err(|_| Error::NoSpace)?))
    }

    /// Changes items of one of the trees in chunks, so that little is reserved at once.
    fn change<E: Edit>(&self, tree: &Tree, edits: &mut [E]) -> Result<()> {
        let source = self.logs.source(self.generation);
        for edits in edits.chunks_mut(ITEMS_AT_ONCE) {
            // Released after each chunk: the blocks it used are accounted as allocated by then.
            let _reserved = self.reserve(edits.len())?;
            tree.apply(self.logs.context.tree_roots.store(), &source, edits)?;
        }
        Ok(())
    }

    /// Reserves space to change `items` items, without flushing to free some.
    fn reserve(&self, items: usize) -> Result<Reservation> {
        let items = ITEMS_FOR_WAY + items as u64;
        let bytes = bytes_for_items(items, self.logs.context.nodesize());
        self.logs.context.reserve_now(bytes, 0, ReservePolicy::Normal).ok_or(Error::NoSpace)
    }

    /// Returns the root of the tree of the log roots; `None` if there is no log.
    pub(super) fn root(&self) -> Option<Root> {
        self.trees.roots.as_ref().map(|tree| tree.root())
    }

    /// Updates the tree of the log roots to lead to each log as it is.
    pub(super) fn list_roots(&mut self) -> Result<()> {
        let moved = |(id, log): (&TreeId, &SubvolumeLog)| {
            let root = log.tree.root();
            (log.listed != Some(root)).then_some((*id, root))
        };
        let moved: Vec<_> = self.trees.logs.iter().filter_map(moved).collect();
        if moved.is_empty() {
            return Ok(());
        }
        let roots = match &self.trees.roots {
            Some(roots) => Arc::clone(roots),
            None => self.create()?,
        };
        self.trees.roots = Some(Arc::clone(&roots));
        let mut edits: Vec<_> = moved.iter().map(|&(id, root)| root_edit(id, root)).collect();
        self.change(&roots, &mut edits)?;
        for (id, root) in moved {
            self.trees.logs.get_mut(&id).expect("just seen").listed = Some(root);
        }
        Ok(())
    }
}

/// Returns the item that leads to the log of a subvolume, with the other values that Linux writes.
fn root_edit(subvolume: TreeId, root: Root) -> ItemEdit {
    let key = Key::new(TreeId::TREE_LOG.0, ItemKind::ROOT_ITEM, subvolume.0);
    let directory =
        RootInode { generation: 1, size: 3, nlink: 1, mode: 0o40755, ..Default::default() };
    let item = RootItem {
        generation: root.generation,
        root_dirid: 0,
        logical: root.logical,
        level: root.level,
        byte_limit: 0,
        bytes_used: 0,
        last_snapshot: 0,
        flags: RootFlags::empty(),
        refs: 0,
        drop_progress: Key::MIN,
        drop_level: 0,
        generation_v2: Some(root.generation),
        inode: directory,
        extended: None,
    };
    ItemEdit::Put(key, item.encode())
}
