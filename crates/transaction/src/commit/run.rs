//! The commit of a transaction, stage by stage.
//!
//! 1. The commit waits for the previous transaction, and for the threads of this one that wait for
//!    the device; then it shuts out operations: no change begins any more, and the open ones end.
//! 2. The logs of the transaction are dropped, since the commit contains all that they do. All
//!    changes that are delayed in memory are merged into the trees. Then snapshots are made, and
//!    their entries are merged.
//! 3. References, block groups, chunks and root items are written into their trees, repeatedly
//!    until nothing is left to write. No block is written to the device meanwhile: it would have to
//!    be copied for the next round. Leaves that were written before, to free memory, are where no
//!    superblock leads to yet.
//! 4. The superblock is made; the transaction is handed over, and the next one runs. Nothing of
//!    this one changes any more: its blocks are of an earlier generation now.
//! 5. The blocks are written, a flush makes them durable, then the superblock is written: first the
//!    primary copy, durable at once.
//! 6. The space that only the previous superblock led to is discarded on the device, if that is
//!    enabled, and then freed.
//!
//! Any failure ends all writing. Before the superblock of stage 5 is written, the device has the
//! previous transaction; after that, this one.

use userbtrfs_btree::DirtyList;
use userbtrfs_device::CrashPoint;
use userbtrfs_format::{Superblock, TreeId};
use userbtrfs_sync::Arc;

use super::handle::Handle;
use super::hooks::{FlushScope, Hooks};
use super::space_items::SpaceItemWriter;
use super::state::{Commit, CommitDoing, CommitRole, Open};
use super::trigger::{CommitCounts, CommitTrigger, Commits};
use super::{quotas, roots, space_cache, superblock};
use crate::context::TransactionContext;
use crate::editor::Editor;
use crate::error::Result;
use crate::log::SubvolumeLogs;
use crate::relocate::PendingRelocation;
use crate::space::Pinned;
use crate::space::discard::Discarder;
use crate::subvolume::{self, PendingSnapshots};

/// The number of rounds after which a commit that still finds changes to write is taken for
/// endless.
const ROUNDS_MAX: usize = 64;

/// A transaction with its final contents.
struct CommittedTransaction {
    superblock: Superblock,
    nodes: DirtyList,
    /// The space that only the previous superblock leads to.
    pinned: Pinned,
}

/// Commits transactions.
pub(crate) struct Committer {
    pub(crate) context: Arc<TransactionContext>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) logs: Arc<SubvolumeLogs>,
    pub(crate) snapshots: Arc<PendingSnapshots>,
    pub(crate) relocation: Arc<PendingRelocation>,
    pub(crate) discarder: Arc<Discarder>,
    pub(crate) counts: CommitCounts,
}

impl Committer {
    /// Makes all changes before the call durable. The caller is in no transaction. If nothing
    /// changed, nothing is written.
    #[track_caller]
    pub(crate) fn commit(&self, cause: CommitTrigger) -> Result<()> {
        self.commit_running(cause).map(drop)
    }

    /// Returns the number of commits, by cause.
    pub(crate) fn commits(&self) -> Commits {
        self.counts.get()
    }

    /// Like [`Self::commit`], for a sync, of a transaction that was running when the caller was in
    /// it; if it is durable by now, nothing is done.
    #[track_caller]
    pub(crate) fn commit_transaction(&self, generation: u64) -> Result<()> {
        self.commit_transaction_with(generation, || ())
    }

    /// Like [`Self::commit_transaction`]; calls `unblocked` as soon as the next transaction runs,
    /// unless there is a failure before that.
    #[track_caller]
    pub(crate) fn commit_transaction_with(
        &self,
        generation: u64,
        unblocked: impl FnOnce(),
    ) -> Result<()> {
        self.context.state.check()?;
        self.commit_generation_with(generation, CommitTrigger::Sync, unblocked).map(drop)
    }

    /// Like [`Self::commit`]; on return, what the transaction freed is free. Empty block groups are
    /// removed, too. Returns true if there was anything to commit.
    #[track_caller]
    pub(crate) fn commit_for_space(&self) -> Result<bool> {
        self.context.state.check()?;
        if self.context.options.only_asked { Ok(false) } else { self.commit_and_free() }
    }

    /// Like [`Self::commit_for_space`], for a caller that asks for the commit.
    #[track_caller]
    pub(crate) fn commit_and_free(&self) -> Result<bool> {
        let before = self.context.state.generation();
        // Space that a commit left pinned for a write in place can be freed though nothing changed.
        let frees =
            || self.context.space.has_pinned() || !self.context.space.empty_groups().is_empty();
        let generation = if self.is_clean() && frees() {
            self.commit_generation(before, CommitTrigger::Space)?
        } else {
            self.commit_running(CommitTrigger::Space)?
        };
        self.context.state.wait_completed(generation)?;
        Ok(generation == before)
    }

    /// Commits the running transaction if it has changes; returns the transaction that is durable
    /// then.
    #[track_caller]
    fn commit_running(&self, cause: CommitTrigger) -> Result<u64> {
        self.context.state.check()?;
        let generation = self.context.state.generation();
        // A transaction that is being committed is clean before it is durable.
        if self.is_clean() && self.context.state.has_no_leader(generation) {
            // Earlier changes may still be in flight.
            self.context.state.wait_durable(generation - 1)?;
            return Ok(generation - 1);
        }
        self.commit_generation(generation, cause)
    }

    /// Commits a transaction that was running when the caller was in it.
    #[track_caller]
    pub(crate) fn commit_generation(&self, generation: u64, cause: CommitTrigger) -> Result<u64> {
        self.commit_generation_with(generation, cause, || ())
    }

    #[track_caller]
    fn commit_generation_with(
        &self,
        generation: u64,
        cause: CommitTrigger,
        unblocked: impl FnOnce(),
    ) -> Result<u64> {
        match self.context.state.begin_commit(generation)? {
            CommitRole::Lead(commit) => {
                self.counts.count(cause);
                self.context.fail_on_error(|| self.stages(commit, unblocked))?;
            }
            CommitRole::Joined => {
                self.context.state.wait_unblocked(generation)?;
                unblocked();
                self.context.state.wait_durable(generation)?;
            }
        }
        Ok(generation)
    }

    /// Returns true if the running transaction has changed nothing.
    pub(crate) fn is_clean(&self) -> bool {
        self.hooks.is_clean()
            && self.context.changed.lock().is_empty()
            && self.context.refs.is_empty()
            && self.snapshots.is_empty()
            && self.relocation.is_empty()
            && self.context.checksums.bytes() == 0
            && self.logs.is_empty()
    }

    fn stages(&self, commit: Commit<'_, Open>, unblocked: impl FnOnce()) -> Result<()> {
        let commit = commit.exclude_writing()?.exclude_operations()?.exclude_finish()?;
        let last = self.context.fail_on_error(|| self.finish_trees(&commit))?;
        let commit = commit.unblock()?;
        unblocked();
        self.crash_point(CrashPoint::CommitUnblocked);
        self.context.fail_on_error(|| self.write_out(&last))?;
        self.crash_point(CrashPoint::CommitAfterSuperblock);
        self.context.tree_roots.store().written(last.nodes);
        let commit = commit.durable()?;
        let pinned = self.context.space.without_held(last.pinned);
        self.discarder.discard(&pinned);
        self.crash_point(CrashPoint::CommitDiscarded);
        self.context.space.unpin(pinned);
        commit.complete();
        self.crash_point(CrashPoint::CommitCompleted);
        Ok(())
    }

    /// Stages 2 to 4, except for `unblock`.
    fn finish_trees(&self, commit: &Commit<'_, CommitDoing>) -> Result<CommittedTransaction> {
        self.logs.drop_all()?;
        self.crash_point(CrashPoint::CommitLogsDropped);
        // No thread is moving an extent from one file to another now.
        self.context
            .refs
            .unreferenced_new_data()
            .iter()
            .for_each(|range| self.context.checksums.forget(range));
        let handle = Handle::new(&self.context, commit.transaction_guard());
        let merge = |handle: &Handle<'_>| self.hooks.merge(handle, FlushScope::All);
        merge(&handle)?;
        self.crash_point(CrashPoint::CommitItemsFlushed);
        subvolume::create_pending(&self.snapshots, &handle, merge)?;
        space_cache::remove(&handle)?;
        drop(handle);
        self.write_space_and_roots(commit)?;
        self.crash_point(CrashPoint::CommitTreesFinal);
        let superblock = superblock::next(&self.context, commit.generation())?;
        let nodes = self.context.tree_roots.store().dirty_nodes();
        assert_eq!(
            self.context.checksums.bytes(),
            0,
            "checksums are in the tree with their transaction"
        );
        let pinned = self.context.space.take_pinned();
        self.context.refs.end_transaction();
        Ok(CommittedTransaction { superblock, nodes, pinned })
    }

    /// Stage 3.
    fn write_space_and_roots(&self, commit: &Commit<'_, CommitDoing>) -> Result<()> {
        let space_items = SpaceItemWriter::new(&self.context, commit.generation());
        space_items.rebuild_free_space_tree()?;
        quotas::mark(&space_items.editor)?;
        space_items.write_device_size()?;
        space_items.run_references()?;
        self.crash_point(CrashPoint::CommitRefsRun);
        if let Some(_moving) = self.relocation.run(&self.context, &space_items.editor)? {
            space_items.run_references()?;
        }
        space_items.remove_empty_groups()?;
        for _ in 0..ROUNDS_MAX {
            space_items.run_references()?;
            let groups = space_items.write_groups()?;
            let roots = self.write_roots(space_items.editor)?;
            if groups > 0 || roots > 0 || !self.context.refs.is_empty() {
                continue;
            }
            if self.context.tree_roots.roots().root().generation == commit.generation() {
                return Ok(());
            }
            // Nothing changed after all. But the root in a superblock must be of its generation.
            self.context.changed.lock().change(TreeId::EXTENT);
        }
        unreachable!("a block is copied once in a transaction, so the rounds end")
    }

    fn write_roots(&self, editor: Editor<'_>) -> Result<usize> {
        roots::write(&editor, &self.context.changed, &self.context.space)
    }

    fn write_nodes(&self, nodes: &DirtyList) -> Result<()> {
        let mut failed = None;
        // While some blocks are written the next are sealed.
        let sealed = self.context.tree_roots.store().seal(nodes);
        let blocks = sealed.map_while(|sealed| sealed.map_err(|error| failed = Some(error)).ok());
        let written = self.context.volume().write_blocks(blocks);
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(written?),
        }
    }

    fn crash_point(&self, point: CrashPoint) {
        self.context.volume().crash_point(point);
    }

    /// Stage 5.
    fn write_out(&self, last: &CommittedTransaction) -> Result<()> {
        self.write_nodes(&last.nodes)?;
        self.crash_point(CrashPoint::CommitNodesWritten);
        self.context.volume().flush()?;
        self.context.state.check()?;
        self.crash_point(CrashPoint::CommitBeforeSuperblock);
        Ok(self.context.volume().write_superblock(&last.superblock)?)
    }
}
