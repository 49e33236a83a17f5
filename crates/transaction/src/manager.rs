//! The transactions of a filesystem that is open for writing.
//!
//! 1. Trees are changed through it alone: it allocates the blocks, and counts their references.
//! 2. What the running transaction changed is in memory until its commit; nothing on the disk that
//!    the last superblock leads to is overwritten before the next one is durable.
//! 3. After a failure nothing is written any more, and every later change returns the reason.
//!
//! The manager composes its parts and calls them; each part is in a file of its own, and none knows
//! the manager.

use std::ops::ControlFlow;
use std::ops::Range;
use std::time::Duration;

use userbtrfs_format::{Logical, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_volume::Volume;

use crate::commit::{
    CommitCounts, CommitTrigger, Commits, Committer, DelayedFlusher, FlushScope, Handle,
    HandleKind, Hooks, Task, TransactionHooks, Worker, WorkerRequests,
};
use crate::context::TransactionContext;
use crate::drop_tree::{self, DropProgress, STEP_REFERENCES, TreeDropper};
use crate::error::{Error, Result};
use crate::log::{
    self, FullCommitReason, LogFailure, LogStats, LogSyncer, LogTransId, LogWriter, PendingIoToken,
    SubvolumeLogs,
};
use crate::mountable;
use crate::options::TransactionOptions;
use crate::refs::{self, FileExtentRef};
use crate::relocate::{AddressEpoch, GroupRelocator, PendingRelocation, RelocationStats};
use crate::roots::TreeRoots;
use crate::space::discard::{Discarder, Discards};
use crate::space::file_data::FileData;
use crate::space::flush::SpaceReserver;
use crate::space::high_water::HighWaterRise;
use crate::space::tickets::ReserveTickets;
use crate::space::{NocowGuard, Reservation, ReservePolicy, Space};
use crate::subvolume::{NewSnapshot, PendingSnapshots};

/// The running transaction, the commit, and all that they change.
pub struct TransactionManager {
    context: Arc<TransactionContext>,
    hooks: Arc<Hooks>,
    logs: Arc<SubvolumeLogs>,
    /// The snapshots that the commit of the running transaction makes.
    snapshots: Arc<PendingSnapshots>,
    /// The relocation that it makes.
    relocation: Arc<PendingRelocation>,
    discarder: Arc<Discarder>,
    committer: Arc<Committer>,
    flusher: Arc<DelayedFlusher>,
    file_data: Arc<FileData>,
    reserver: SpaceReserver,
    dropper: TreeDropper,
    requests: Arc<WorkerRequests>,
    worker: Worker,
}

/// Opening and closing.
impl TransactionManager {
    /// Opens the trees and the space of a volume that is open for writing. Nothing is written yet.
    ///
    /// Fails, with a reason, if there is a running balance, a relocation tree or a device
    /// replacement. A free space tree that is not valid is rebuilt by the first commit.
    pub fn open(tree_roots: Arc<TreeRoots>, options: TransactionOptions) -> Result<Arc<Self>> {
        assert!(tree_roots.store().volume().is_writable(), "the volume is open for writing");
        mountable::check_writable(&tree_roots)?;
        let hooks = Arc::new(Hooks::default());
        let aborted = Arc::clone(&hooks);
        let context =
            Arc::new(TransactionContext::open(tree_roots, options, move || aborted.aborted())?);
        let logs = Arc::new(SubvolumeLogs::new(Arc::clone(&context))?);
        Ok(Arc::new(Self::compose(context, hooks, logs)))
    }

    fn compose(
        context: Arc<TransactionContext>,
        hooks: Arc<Hooks>,
        logs: Arc<SubvolumeLogs>,
    ) -> Self {
        let requests = Arc::new(WorkerRequests::new());
        let discarder = Arc::new(Discarder::new(Arc::clone(&context)));
        let snapshots = Arc::new(PendingSnapshots::new());
        let relocation = Arc::new(PendingRelocation::new());
        let committer = Arc::new(Committer {
            context: Arc::clone(&context),
            hooks: Arc::clone(&hooks),
            logs: Arc::clone(&logs),
            snapshots: Arc::clone(&snapshots),
            relocation: Arc::clone(&relocation),
            discarder: Arc::clone(&discarder),
            counts: CommitCounts::default(),
        });
        let flusher = Arc::new(DelayedFlusher {
            context: Arc::clone(&context),
            hooks: Arc::clone(&hooks),
            committer: Arc::clone(&committer),
            requests: Arc::clone(&requests),
        });
        let file_data = Arc::new(FileData {
            context: Arc::clone(&context),
            discarder: Arc::clone(&discarder),
            requests: Arc::clone(&requests),
        });
        let reserver = SpaceReserver {
            context: Arc::clone(&context),
            hooks: Arc::clone(&hooks),
            logs: Arc::clone(&logs),
            committer: Arc::clone(&committer),
            flusher: Arc::clone(&flusher),
            file_data: Arc::clone(&file_data),
            tickets: ReserveTickets::new(),
        };
        let dropper = TreeDropper::new(Arc::clone(&context), Arc::clone(&committer));
        let worker = Worker::new(Arc::clone(&requests));
        Self {
            context,
            hooks,
            logs,
            snapshots,
            relocation,
            discarder,
            committer,
            flusher,
            file_data,
            reserver,
            dropper,
            requests,
            worker,
        }
    }

    /// Registers the hooks of the crates above, once, and starts to commit in the background.
    ///
    /// # Errors
    /// [`Error::NoThread`] if the background thread cannot be started.
    ///
    /// # Panics
    /// If hooks were registered before.
    pub fn register(self: &Arc<Self>, hooks: Vec<Arc<dyn TransactionHooks>>) -> Result<()> {
        self.hooks.register(hooks);
        let TransactionOptions { only_asked, commit_seconds, .. } = self.context.options;
        if only_asked {
            return Ok(());
        }
        let interval = (commit_seconds > 0).then(|| Duration::from_secs(commit_seconds));
        // The thread holds a reference only while it works, so that an unused manager is dropped.
        let manager = Arc::downgrade(self);
        let run = move |task| {
            let Some(manager) = manager.upgrade() else { return ControlFlow::Break(()) };
            // The next change returns the failure.
            let _failed = match task {
                Task::Merge => manager.merge_most(),
                Task::Commit(cause) => manager.committer.commit(cause),
            };
            ControlFlow::Continue(())
        };
        self.worker.start(interval, run).map_err(Error::NoThread)
    }

    /// Commits, and opens the image to the next writer. No other thread uses the manager any more.
    pub fn close(&self) -> Result<()> {
        self.volume().mark_closing();
        self.worker.stop();
        self.commit()
    }
}

/// Access to what transactions change.
impl TransactionManager {
    /// The trees.
    pub fn tree_roots(&self) -> &Arc<TreeRoots> {
        &self.context.tree_roots
    }

    /// The volume below.
    pub fn volume(&self) -> &Arc<Volume> {
        self.context.volume()
    }

    /// The block groups and reservations.
    pub fn space(&self) -> &Space {
        &self.context.space
    }

    /// Returns true if the extent tree has a tree block at this address that transaction
    /// `generation` wrote, as of the transaction before the running one: a block that is listed
    /// does not become free while the caller is in the running one.
    pub fn lists_block(&self, logical: Logical, level: u8, generation: u64) -> Result<bool> {
        refs::lists_block(self.tree_roots(), logical, level, generation)
    }

    /// Returns true if a range lies in one extent, as of the same transaction.
    pub fn lists_range(&self, logical: Logical, len: u64) -> Result<bool> {
        refs::lists_range(self.tree_roots(), logical, len)
    }

    /// Returns the largest steps since the last call.
    pub fn take_high_water(&self) -> HighWaterRise {
        self.context.high_water.take()
    }
}

/// Joining transactions, and their failure.
impl TransactionManager {
    /// The number of the running transaction.
    pub fn generation(&self) -> u64 {
        self.context.state.generation()
    }

    /// Joins the running transaction; waits while it is being closed.
    #[track_caller]
    pub fn start(&self, kind: HandleKind) -> Result<Handle<'_>> {
        Handle::join(&self.context, kind)
    }

    /// Ends all writing, for this reason.
    pub fn fail(&self, why: &str) {
        self.context.fail(why);
    }

    /// Ends all writing at once, like a power cut: writes in flight may still reach the device, and
    /// no write begins after it.
    pub fn shut_down(&self) {
        self.context.shut_down();
    }

    /// Returns an error if something failed.
    pub fn check(&self) -> Result<()> {
        self.context.check()
    }

    /// Registers a callback that runs once if a failure after this call ends all writing; not on a
    /// shutdown. It may run with locks held, so it must only pass the error on. Panics if called
    /// twice.
    pub fn on_failure(&self, callback: impl Fn(Error) + Send + Sync + 'static) {
        self.context.state.on_failure(move |failed| callback(failed.into()));
    }
}

/// Merging and committing, by `DelayedFlusher` and `Committer`.
impl TransactionManager {
    /// Merges changes that are delayed in memory into the trees; releases what was reserved for
    /// them. If too much memory is still used that only a commit frees, a commit is requested, or
    /// even awaited.
    pub fn merge_pending(&self) -> Result<()> {
        self.flusher.merge(FlushScope::All)
    }

    /// Like [`TransactionManager::merge_pending`], except for changes that are better merged with
    /// more.
    pub fn merge_most(&self) -> Result<()> {
        self.flusher.merge(FlushScope::Most)
    }

    /// Requests a merge soon, without waiting.
    pub fn request_merge(&self) {
        self.requests.request_merge();
    }

    /// Makes all changes before the call durable. The caller is in no transaction. If nothing
    /// changed, nothing is written.
    #[track_caller]
    pub fn commit(&self) -> Result<()> {
        self.committer.commit(CommitTrigger::Asked)
    }

    /// Returns true if the running transaction has changes.
    pub fn has_changes(&self) -> bool {
        !self.committer.is_clean()
    }

    /// Like [`TransactionManager::commit`], for a sync, of a transaction that was running when the
    /// caller was in it; if it is durable by now, nothing is done.
    #[track_caller]
    pub fn commit_transaction(&self, generation: u64) -> Result<()> {
        self.committer.commit_transaction(generation)
    }

    /// Like [`TransactionManager::commit_transaction`]; calls `unblocked` as soon as the next
    /// transaction runs, before the blocks are written, unless there is a failure before that.
    #[track_caller]
    pub fn commit_transaction_with(&self, generation: u64, unblocked: impl FnOnce()) -> Result<()> {
        self.committer.commit_transaction_with(generation, unblocked)
    }

    /// Has the commit of the handle's transaction make a snapshot, and then add its entry. The
    /// snapshot has all changes of its source that are made in this transaction, except for its own
    /// entry and those of snapshots that the commit makes after it.
    pub fn snapshot_at_commit(&self, _handle: &Handle<'_>, snapshot: NewSnapshot) {
        self.snapshots.add(snapshot);
    }

    /// Returns the number of commits, by cause.
    pub fn commits(&self) -> Commits {
        self.committer.commits()
    }

    /// Waits until a transaction before the running one is durable.
    #[track_caller]
    pub fn wait_durable(&self, generation: u64) -> Result<()> {
        Ok(self.context.state.wait_durable(generation)?)
    }

    /// Waits until all transactions before the running one are completed: what they freed is
    /// discarded on the device, if that is enabled, and free.
    #[track_caller]
    pub fn wait_completed(&self) -> Result<()> {
        Ok(self.context.state.wait_completed(self.generation() - 1)?)
    }

    /// Returns the counters of discards: see [`TransactionOptions::discard`].
    pub fn discards(&self) -> Discards {
        self.discarder.discards()
    }
}

/// Logs, by `SubvolumeLogs`.
impl TransactionManager {
    /// Locks the logs of the handle's transaction for changes. The error is the reason why the
    /// transaction must be committed instead.
    pub fn logs<'a>(&'a self, handle: &'a Handle<'a>) -> Result<LogWriter<'a>, FullCommitReason> {
        self.logs.writer(handle)
    }

    /// Returns true if the filesystem behaves as before this seed.
    #[cfg(feature = "experiments")]
    pub fn runs(&self, experiment: crate::Experiment) -> bool {
        self.context.runs(experiment)
    }

    /// Marks the handle's transaction: its logs are not used any more, and a sync commits it. Only
    /// the first reason of a transaction is counted.
    pub fn require_commit(&self, _handle: &Handle<'_>, reason: FullCommitReason) {
        self.logs.mark(reason);
    }

    /// Returns the reason why the handle's transaction must be committed instead of logged, if
    /// there is one so far.
    pub fn check_loggable(&self, _handle: &Handle<'_>) -> Result<(), FullCommitReason> {
        self.logs.check()
    }

    /// Waits until a log commit is durable; writes it if no other thread does. Data that was
    /// written before the call of [`LogWriter::log_transid`] is then durable, too, and so is the
    /// data in flight of this caller, which registered it as `pending_io`. In any case, all of that
    /// data has completed on return.
    ///
    /// An error means that the log commit is not durable, and that the transaction must be
    /// committed.
    pub fn sync_log(
        &self,
        handle: &Handle<'_>,
        log_transid: LogTransId,
        pending_io: Option<PendingIoToken<'_>>,
        member: &mut dyn LogSyncer,
    ) -> Result<(), LogFailure> {
        log::sync(&self.logs, handle, log_transid, pending_io, member)
    }

    /// Returns the counters of logs since the filesystem was opened.
    pub fn log_stats(&self) -> LogStats {
        self.logs.stats()
    }
}

/// Reservations, by `SpaceReserver`.
impl TransactionManager {
    /// Reserves space for changes of `items` items; waits for space if that helps.
    pub fn reserve(&self, items: u64) -> Result<Reservation> {
        self.reserver.reserve(items, ReservePolicy::Normal)
    }

    /// Like [`TransactionManager::reserve`], for a change that frees space in the end: it may use
    /// the space that is kept for that.
    pub fn reserve_for_removal(&self, items: u64) -> Result<Reservation> {
        self.reserver.reserve(items, ReservePolicy::Steal)
    }

    /// Like [`TransactionManager::reserve`], for a replay of logs before the filesystem is used: if
    /// its commit then finds no space, the logs are as they were.
    pub fn reserve_for_replay(&self, items: u64) -> Result<Reservation> {
        self.reserver.reserve(items, ReservePolicy::Replay)
    }

    /// Like [`TransactionManager::reserve_for_removal`], for a change that drops `references`
    /// references when it is merged; `None` if there is not enough space at once, including what
    /// the next commit takes for these.
    pub fn try_reserve_for_extents(&self, items: u64, references: u64) -> Option<Reservation> {
        self.context.reserve_now(self.context.bytes_for(items), references, ReservePolicy::Steal)
    }

    /// Like [`TransactionManager::reserve`], for a change that adds or drops `references`
    /// references of extents; `None` if there is not enough space at once, including what the next
    /// commit takes for these. It waits for nothing, so the caller may hold locks of files.
    pub fn try_reserve_for_references(&self, items: u64, references: u64) -> Option<Reservation> {
        self.context.reserve_now(self.context.bytes_for(items), references, ReservePolicy::Normal)
    }

    /// Reserves `bytes` bytes for data, whole sectors; reads and commits if that helps. Writing
    /// back data for which others hold reservations is left to the caller.
    pub fn reserve_data(&self, bytes: u64) -> Result<Reservation> {
        self.reserver.reserve_data(bytes)
    }
}

/// Deleted subvolumes, by `TreeDropper`.
impl TransactionManager {
    /// Returns the deleted subvolumes whose trees are not dropped yet, ascending: their root items
    /// have no references.
    pub fn dead_roots(&self) -> Result<Vec<TreeId>> {
        drop_tree::dead_roots(self.tree_roots())
    }

    /// Drops a part of the tree of a deleted subvolume: some hundred references, or fewer if space
    /// is short. Continues where the last step ended, in this mount or an earlier one, or in
    /// Linux. The caller is in no transaction and holds no lock; it may wait for a commit. No
    /// thread changes the tree or reads it any more.
    ///
    /// The step is durable with the next commit: after a crash before that, the tree is as it was
    /// before the step, and [`Self::dead_roots`] returns it. The space is free after the commit.
    ///
    /// # Errors
    /// [`Error::NoTree`] if there is no such tree; an error of reading, after which the same step
    /// can be tried again.
    ///
    /// # Panics
    /// If the root item has references, or if another thread is in a step of the same tree.
    pub fn drop_tree_step(&self, id: TreeId) -> Result<DropProgress> {
        self.drop_tree_step_of(id, STEP_REFERENCES)
    }

    /// Like [`Self::drop_tree_step`], with the number of references to drop: at least those of one
    /// block.
    pub fn drop_tree_step_of(&self, id: TreeId, references: u64) -> Result<DropProgress> {
        self.dropper.step(id, &self.reserver, references)
    }
}

/// File data, by `FileData`.
impl TransactionManager {
    /// Allocates at most `len_max` and at least `len_min` bytes of data, in whole sectors: behind
    /// the last allocation, if there is space, so that sequential data is contiguous and fills a
    /// block group before it begins another. The caller counts it ([`Handle::allocated_data`]) or
    /// gives it back ([`TransactionManager::give_back_data`]).
    ///
    /// The caller is in no transaction, and has reserved `len_max` bytes
    /// ([`TransactionManager::reserve_data`]), of which it then releases what it got: until then
    /// that counts twice. With a reservation, there is always a free sector.
    pub fn allocate_data(&self, len_max: u64, len_min: u64) -> Result<(Logical, u64)> {
        self.file_data.allocate(len_max, len_min)
    }

    /// Allocates `len` bytes in one piece, if that takes none of the space that others may need for
    /// chunks. The caller is in no transaction, and has a reservation.
    pub fn allocate_whole_data(&self, len: u64) -> Result<(Logical, u64)> {
        self.file_data.allocate_whole(len)
    }

    /// Frees space, all or a part of what was allocated, that was never counted. No write to it is
    /// in flight any more.
    pub fn give_back_data(&self, logical: Logical, len: u64) {
        self.file_data.give_back(logical, len);
    }

    /// Frees space that was taken because a pending log refers to it, and that was never counted: a
    /// replay that is interrupted starts again with that log. So it is free, and discarded on the
    /// device, once the superblock is durable that no longer leads to the log.
    pub fn give_back_logged_data(&self, logical: Logical, len: u64) {
        self.file_data.give_back_logged(logical, len);
    }

    /// Discards the free ranges of at least `len_min` bytes that lie in `range`, in logical
    /// addresses, and the space of the device that no chunk takes. Returns the number of bytes.
    /// The caller is in no transaction. Space that is freed later is not discarded.
    pub fn trim(&self, range: &Range<u64>, len_min: u64) -> Result<u64> {
        self.check()?;
        self.space().trim(self.tree_roots(), range, len_min)
    }

    /// Sets the size of the device in the handle's transaction, whose commit makes it durable;
    /// the device is no smaller. New space can be used at once. Returns false, without effect, if
    /// chunks take space beyond it.
    pub fn set_device_size(&self, handle: &Handle<'_>, bytes: u64) -> bool {
        let is_set = self.space().set_device_len(bytes);
        if is_set {
            self.volume().set_device_size(bytes);
            // Any change makes a commit write the superblock.
            handle.subvolume_changed(TreeId::FS);
        }
        is_set
    }

    /// Returns the size of the device, and of the next commit's superblock.
    pub fn device_size(&self) -> u64 {
        self.space().device_len()
    }

    /// Relocates all block groups that take space of the device beyond `len`, and removes them. No
    /// chunk is made there until the size is set, or [`TransactionManager::allow_all_chunks`] is
    /// called. The caller is in no transaction, has written all data, and is the only one that
    /// relocates.
    pub fn relocate_beyond(&self, len: u64) -> Result<()> {
        let relocator = GroupRelocator {
            context: &self.context,
            committer: &self.committer,
            file_data: &self.file_data,
            reserver: &self.reserver,
            pending: &self.relocation,
        };
        self.space().set_limit(len);
        let relocate_all = || {
            while let Some(&start) = self.space().groups_beyond(len).last() {
                self.relocation.set_left(self.space().used_beyond(len));
                relocator.relocate(start)?;
            }
            Ok(())
        };
        let relocated = relocate_all();
        self.relocation.set_left(0);
        relocated
    }

    /// Returns the counters of relocations.
    pub fn relocation_stats(&self) -> RelocationStats {
        self.relocation.stats()
    }

    /// Returns the present epoch of the addresses of data; `None` while data is being relocated. An
    /// address that was looked up outside of a transaction may be used, to read or under a handle,
    /// if the epoch is the same afterwards. Under a handle there is one epoch.
    pub fn address_epoch(&self) -> Option<AddressEpoch> {
        self.relocation.epoch()
    }

    /// Waits while data is being relocated. The caller is in no transaction.
    pub fn wait_for_epoch(&self) -> Result<()> {
        self.relocation.wait_for_epoch(&self.context)
    }

    /// Lets chunks be made up to the end of the device again.
    pub fn allow_all_chunks(&self) {
        self.space().clear_limit();
    }

    /// Removes empty block groups, as a lack of space does; on return their space on the device is
    /// free. The caller is in no transaction.
    pub fn remove_empty_groups(&self) -> Result<()> {
        self.committer.commit_for_space().map(drop)
    }

    /// Adds the checksums of consecutive sectors from `logical` on, in stored form. They will be in
    /// the checksum tree when the transaction is committed.
    pub fn add_checksums(&self, _handle: &Handle<'_>, logical: Logical, stored: &[u8]) {
        self.file_data.add_checksums(logical, stored);
    }

    /// Calls `see` with the checksums of `sectors` sectors from `logical` on that are not in their
    /// tree yet: the index of the sector, and the checksum in stored form. A caller that finds none
    /// looks into the tree after that, not before.
    pub fn pending_checksums(&self, logical: Logical, sectors: u64, see: impl FnMut(u64, &[u8])) {
        self.context.checksums.visit(logical, sectors, see);
    }

    /// Holds a counted extent, so that it may be overwritten; `None` if it has other references, or
    /// may have. It may be freed meanwhile, but is not allocated again before the guard is dropped.
    /// The caller is in no transaction.
    pub fn hold_if_exclusive(&self, reference: &FileExtentRef) -> Result<Option<NocowGuard>> {
        self.file_data.hold_if_exclusive(reference)
    }
}
