//! The transactions of a filesystem that is open for writing.
//!
//! 1. Trees are changed through it alone: it allocates the blocks, and counts their references.
//! 2. What the running transaction changed is in memory until its commit; nothing on the disk that
//!    the last superblock leads to is overwritten before the next one is durable.
//! 3. After a failure nothing is written any more, and every later change returns the reason.

use userbtrfs_btree::{
    Backref, BlockRefs, BlockSource, Extent, NoSpace, ReadAhead, RefChange, SourceError, Tree,
};
use userbtrfs_format::{BlockFlags, DevReplaceItem, Header, ItemKind, Key, Logical, TreeId};
use userbtrfs_sync::{Arc, Class, Mutex, OnceLock};
use userbtrfs_volume::Volume;

use crate::checksums::PendingChecksums;
use crate::commit::{
    ChangedRoots, CommitCounts, CommitTrigger, FlushScope, Handle, HandleKind, TransactionHooks,
    TransactionState, Worker,
};
use crate::damage::Damage;
use crate::editor::Editor;
use crate::error::{Error, Result};
use crate::log::SubvolumeLogs;
use crate::mountable;
use crate::refs::{self, DelayedRefs};
use crate::roots::TreeRoots;
use crate::space::discard::Discarded;
use crate::space::high_water::{HighWater, HighWaterRise};
use crate::space::tickets::ReserveTickets;
use crate::space::{Space, SpaceKind};

/// The object id of the item that records a balance (-4).
const BALANCE: u64 = u64::MAX - 3;

/// The item of a device replacement, in the device tree.
const REPLACEMENT: Key = Key::new(0, ItemKind::DEV_REPLACE, 0);

/// States of a replacement that is not in progress: never started, finished, cancelled.
const REPLACEMENT_RESTS: [u64; 3] = [0, 2, 3];

/// Options of a [`TransactionManager`].
#[derive(Clone, Debug)]
pub struct TransactionOptions {
    /// The longest time between a change and its commit, in seconds; 0 for no limit.
    pub commit_seconds: u64,
    /// Bytes of changed tree blocks above which some are written before their commit.
    pub dirty_max: usize,
    /// Discards freed space on the device, once it is free.
    pub discard: bool,
    /// Commits only in [`TransactionManager::commit`]: not in time, nor for memory or space; nor
    /// are changes merged in the background.
    pub only_asked: bool,
    /// Uses tree logs; without them each sync commits.
    pub log: bool,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self {
            commit_seconds: 30,
            dirty_max: 64 << 20,
            discard: false,
            only_asked: false,
            log: true,
        }
    }
}

/// The running transaction, the commit, and all that they change.
pub struct TransactionManager {
    pub(crate) tree_roots: Arc<TreeRoots>,
    pub(crate) space: Space,
    pub(crate) tickets: ReserveTickets,
    pub(crate) refs: DelayedRefs,
    pub(crate) checksums: PendingChecksums,
    pub(crate) transaction_state: TransactionState,
    pub(crate) commits: CommitCounts,
    pub(crate) logs: SubvolumeLogs,
    pub(crate) changed: Mutex<ChangedRoots>,
    pub(crate) hooks: OnceLock<Vec<Arc<dyn TransactionHooks>>>,
    pub(crate) discarded: Discarded,
    pub(crate) options: TransactionOptions,
    pub(crate) worker: Worker,
    pub(crate) high_water: HighWater,
}

impl TransactionManager {
    /// Opens the trees and the space of a volume that is open for writing. Nothing is written yet.
    ///
    /// Fails, with a reason, if there is a running balance, a relocation tree or a device
    /// replacement. A free space tree that is not valid is rebuilt by the first commit.
    pub fn open(tree_roots: Arc<TreeRoots>, options: TransactionOptions) -> Result<Arc<Self>> {
        assert!(tree_roots.store().volume().is_writable(), "the volume is open for writing");
        check_writable(&tree_roots)?;
        let space = Space::load(&tree_roots)?;
        // Tree blocks are allocated under locks, where nothing can be read.
        for kind in [SpaceKind::Metadata, SpaceKind::System] {
            space.ensure_loaded(&tree_roots, kind, u64::MAX)?;
        }
        let checksum_size = tree_roots.store().volume().geometry().checksum_kind.size();
        let next = tree_roots.store().volume().superblock().generation + 1;
        let logs = SubvolumeLogs::new(&tree_roots)?;
        let transactions = Arc::new(Self {
            tree_roots,
            space,
            tickets: ReserveTickets::new(),
            refs: DelayedRefs::default(),
            checksums: PendingChecksums::new(checksum_size),
            transaction_state: TransactionState::new(next),
            commits: CommitCounts::default(),
            logs,
            changed: Mutex::new(Class::ChangedRoots, ChangedRoots::default()),
            hooks: OnceLock::new(),
            discarded: Discarded::default(),
            options,
            worker: Worker::new(),
            high_water: HighWater::default(),
        });
        Ok(transactions)
    }

    /// Registers the hooks of the crates above, once, and starts to commit in the background.
    ///
    /// # Errors
    /// [`Error::NoThread`] if the background thread cannot be started.
    ///
    /// # Panics
    /// If hooks were registered before.
    pub fn register(self: &Arc<Self>, hooks: Vec<Arc<dyn TransactionHooks>>) -> Result<()> {
        assert!(self.hooks.set(hooks).is_ok(), "hooks are named once");
        if !self.options.only_asked {
            self.worker.start(self).map_err(Error::NoThread)?;
        }
        Ok(())
    }

    /// The trees.
    pub fn tree_roots(&self) -> &Arc<TreeRoots> {
        &self.tree_roots
    }

    /// The volume below.
    pub fn volume(&self) -> &Arc<Volume> {
        self.tree_roots.store().volume()
    }

    /// The block groups and reservations.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Returns true if the extent tree has a tree block at this address that transaction
    /// `generation` wrote, as of the transaction before the running one: a block that is listed
    /// does not become free while the caller is in the running one.
    pub fn lists_block(&self, logical: Logical, level: u8, generation: u64) -> Result<bool> {
        refs::lists_block(&self.tree_roots, logical, level, generation)
    }

    /// Returns true if a range lies in one extent, as of the same transaction.
    pub fn lists_range(&self, logical: Logical, len: u64) -> Result<bool> {
        refs::lists_range(&self.tree_roots, logical, len)
    }

    /// The number of the running transaction.
    pub fn generation(&self) -> u64 {
        self.transaction_state.generation()
    }

    /// Returns the largest steps since the last call.
    pub fn take_high_water(&self) -> HighWaterRise {
        self.high_water.take()
    }

    /// Joins the running transaction; waits while it is being closed.
    #[track_caller]
    pub fn start(&self, kind: HandleKind) -> Result<Handle<'_>> {
        Ok(Handle::new(self, self.transaction_state.join(kind.into())?))
    }

    /// Ends all writing, for this reason.
    pub fn fail(&self, why: &str) {
        self.transaction_state.fail(why);
        self.aborted();
    }

    /// Ends all writing at once, like a power cut: writes in flight may still reach the device, and
    /// no write begins after it.
    pub fn shut_down(&self) {
        // Record the shutdown first, so that later errors report it, not the failed write.
        self.transaction_state.shut_down();
        self.volume().stop_writing();
        self.aborted();
    }

    fn aborted(&self) {
        self.space.abort();
        self.hooks().for_each(|hook| hook.aborted());
    }

    /// Returns an error if something failed.
    pub fn check(&self) -> Result<()> {
        Ok(self.transaction_state.check()?)
    }

    /// Registers a callback that runs once if a failure after this call ends all writing; not on a
    /// shutdown. It may run with locks held, so it must only pass the error on. Panics if called
    /// twice.
    pub fn on_failure(&self, tell: impl Fn(Error) + Send + Sync + 'static) {
        self.transaction_state.on_failure(move |failed| tell(failed.into()));
    }

    pub(crate) fn hooks(&self) -> impl Iterator<Item = &Arc<dyn TransactionHooks>> {
        self.hooks.get().into_iter().flatten()
    }

    /// Merges changes that are delayed in memory into the trees; releases what was reserved for
    /// them. If too much memory is still used that only a commit frees, a commit is requested, or
    /// even awaited.
    pub fn merge_pending(&self) -> Result<()> {
        self.merge_now(FlushScope::All)
    }

    /// Like [`TransactionManager::merge_pending`], except for changes that are better merged with
    /// more.
    pub fn merge_most(&self) -> Result<()> {
        self.merge_now(FlushScope::Most)
    }

    fn merge_now(&self, what: FlushScope) -> Result<()> {
        let handle = self.start(HandleKind::Writing)?;
        self.merge(&handle, what)?;
        drop(handle);
        if self.options.only_asked {
            return Ok(());
        }
        let (dirty, max) = (self.tree_roots.store().dirty_bytes(), self.options.dirty_max);
        if dirty > 2 * max {
            return self.commit_for(CommitTrigger::Memory);
        }
        if self.refs.bytes() > max / 2 {
            self.worker.request_commit();
        }
        Ok(())
    }

    /// Merges delayed changes. A failure half-way cannot be undone, and fails the filesystem.
    pub(crate) fn merge(&self, handle: &Handle<'_>, what: FlushScope) -> Result<()> {
        let generation = handle.generation();
        let editor = Editor { tree_roots: &self.tree_roots, source: self, generation };
        // The hooks, which hold the reservations for these, are called after them.
        let merged = self
            .checksums
            .merge(&editor)
            .and_then(|()| self.hooks().try_for_each(|other| other.merge(handle, what)))
            .and_then(|()| handle.finish_writeout());
        merged.inspect_err(|error| self.fail(&error.to_string()))
    }

    /// Requests a merge soon, without waiting.
    pub fn request_merge(&self) {
        self.worker.request_merge();
    }

    /// Commits, and opens the image to the next writer. No other thread uses the manager any more.
    pub fn close(&self) -> Result<()> {
        self.volume().closing();
        self.worker.stop();
        self.commit()
    }
}

/// Refuses filesystems in the middle of an operation that only Linux can continue, and those that
/// Linux does not mount.
fn check_writable(tree_roots: &TreeRoots) -> Result<()> {
    mountable::check_roots(tree_roots)?;
    let roots = tree_roots.roots();
    if has(tree_roots, roots, Key::new(BALANCE, ItemKind::TEMPORARY_ITEM, 0))? {
        return Err(Error::Unwritable("a balance is running"));
    }
    if has(tree_roots, roots, Key::new(TreeId::TREE_RELOC.0, ItemKind::ROOT_ITEM, 0))? {
        return Err(Error::Unwritable("a relocation is running"));
    }
    if replaces_device(tree_roots)? {
        return Err(Error::Unwritable("a device is being replaced"));
    }
    Ok(())
}

/// Returns true if a tree has an item of this object and kind.
fn has(tree_roots: &TreeRoots, tree: &Tree, key: Key) -> Result<bool> {
    let cursor = tree_roots.cursor(tree, &key, ReadAhead::Off)?;
    let of = |key: Key| (key.objectid, key.kind);
    Ok(cursor.item().is_some_and(|item| of(item.key) == of(key)))
}

/// Returns true if a device replacement is in progress.
fn replaces_device(tree_roots: &TreeRoots) -> Result<bool> {
    let tree = tree_roots.tree(TreeId::DEV)?;
    let cursor = tree_roots.cursor(&tree, &REPLACEMENT, ReadAhead::Off)?;
    let found = cursor.item().filter(|item| item.key == REPLACEMENT);
    let state =
        found.map(|item| DevReplaceItem::parse(item.data).expect("verified with its block").state);
    Ok(state.is_some_and(|state| !REPLACEMENT_RESTS.contains(&state)))
}

impl BlockSource for TransactionManager {
    fn generation(&self) -> u64 {
        self.transaction_state.generation()
    }

    fn allocate(&self, tree: TreeId, level: u8, near: Logical) -> Result<Logical, NoSpace> {
        let kind = if tree == TreeId::CHUNK { SpaceKind::System } else { SpaceKind::Metadata };
        let logical = self.space.allocate_block(kind, near)?;
        self.refs.allocated(logical, level, tree);
        Ok(logical)
    }

    fn free(&self, tree: TreeId, block: &Header) {
        let &Header { logical, level, generation, flags, .. } = block;
        let unwritten = generation == self.generation() && !flags.contains(BlockFlags::WRITTEN);
        if unwritten && self.refs.forget(logical) {
            let len = u64::from(self.volume().geometry().nodesize);
            self.space.give_back(logical, len).expect("it was allocated by this transaction");
            return;
        }
        let extent = Extent::Block { logical, level };
        self.refs.change(&RefChange { add: false, extent, backref: Backref::Tree(tree) });
    }

    fn sharing(&self, block: Logical) -> Option<BlockRefs> {
        self.refs.sharing(block)
    }

    fn load_refs(&self, logical: Logical, level: u8) -> Result<(), SourceError> {
        let found = refs::lookup(&self.tree_roots, &Extent::Block { logical, level });
        let missing = || Error::from(Damage::NoExtent(logical));
        let sharing = found.and_then(|found| found.ok_or_else(missing)).map_err(Box::new)?;
        self.refs.learn(logical, sharing);
        Ok(())
    }

    fn reference(&self, change: RefChange) {
        self.refs.change(&change);
    }

    fn set_full_backref(&self, block: Logical, level: u8) {
        self.refs.set_full_backref(block, level);
    }

    fn root_changed(&self, tree: &Tree) {
        self.changed.lock().change(tree.id());
    }
}
