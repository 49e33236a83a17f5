//! The commit of a transaction, stage by stage.
//!
//! 1. The commit waits for the previous transaction, and for the threads of this one that wait for
//!    the device; then it shuts out operations: no change begins any more, and the open ones end.
//! 2. The logs of the transaction are dropped, since the commit contains all that they do. All
//!    changes that are delayed in memory are merged into the trees.
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
use userbtrfs_format::{Superblock, TreeId};

use super::space_items::SpaceItemWriter;
use super::state::{Commit, CommitDoing, CommitRole, Open};
use super::{CommitTrigger, Commits, FlushScope, Handle, quotas, roots, superblock};
use crate::editor::Editor;
use crate::error::Result;
use crate::manager::TransactionManager;
use crate::space::Pinned;

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

impl TransactionManager {
    /// Makes all changes before the call durable. The caller is in no transaction. If nothing
    /// changed, nothing is written.
    #[track_caller]
    pub fn commit(&self) -> Result<()> {
        self.commit_for(CommitTrigger::Asked)
    }

    /// Like [`TransactionManager::commit`], for another cause than a caller's request.
    #[track_caller]
    pub(crate) fn commit_for(&self, cause: CommitTrigger) -> Result<()> {
        self.commit_running(cause).map(drop)
    }

    /// Returns the number of commits, by cause.
    pub fn commits(&self) -> Commits {
        self.commits.get()
    }

    /// Like [`TransactionManager::commit`], for a sync, of a transaction that was running when the
    /// caller was in it; if it is durable by now, nothing is done.
    #[track_caller]
    pub fn commit_transaction(&self, generation: u64) -> Result<()> {
        self.transaction_state.check()?;
        self.commit_generation(generation, CommitTrigger::Sync).map(drop)
    }

    /// Like [`TransactionManager::commit`]; on return, what the transaction freed is free. Empty
    /// block groups are removed, too. Returns true if there was anything to commit.
    #[track_caller]
    pub(crate) fn commit_for_space(&self) -> Result<bool> {
        self.transaction_state.check()?;
        if self.options.only_asked {
            return Ok(false);
        }
        let before = self.transaction_state.generation();
        // Space that a commit left pinned for a write in place can be freed though nothing changed.
        let frees = || self.space.has_pinned() || !self.space.empty_groups().is_empty();
        let generation = match self.is_clean() && frees() {
            true => self.commit_generation(before, CommitTrigger::Space)?,
            false => self.commit_running(CommitTrigger::Space)?,
        };
        self.transaction_state.wait_completed(generation)?;
        Ok(generation == before)
    }

    /// Waits until a transaction before the running one is durable.
    #[track_caller]
    pub fn wait_durable(&self, generation: u64) -> Result<()> {
        Ok(self.transaction_state.wait_durable(generation)?)
    }

    /// Waits until all transactions before the running one are completed: what they freed is
    /// discarded on the device, if that is enabled, and free.
    #[track_caller]
    pub fn wait_completed(&self) -> Result<()> {
        Ok(self.transaction_state.wait_completed(self.transaction_state.generation() - 1)?)
    }

    /// Commits the running transaction if it has changes; returns the transaction that is durable
    /// then.
    #[track_caller]
    fn commit_running(&self, cause: CommitTrigger) -> Result<u64> {
        self.transaction_state.check()?;
        let generation = self.transaction_state.generation();
        // A transaction that is being committed is clean before it is durable.
        if self.is_clean() && self.transaction_state.has_no_leader(generation) {
            // Earlier changes may still be in flight.
            self.transaction_state.wait_durable(generation - 1)?;
            return Ok(generation - 1);
        }
        self.commit_generation(generation, cause)
    }

    #[track_caller]
    fn commit_generation(&self, generation: u64, cause: CommitTrigger) -> Result<u64> {
        match self.transaction_state.begin_commit(generation)? {
            CommitRole::Lead(commit) => {
                self.commits.count(cause);
                self.lead(commit)?;
            }
            CommitRole::Joined => self.transaction_state.wait_durable(generation)?,
        }
        Ok(generation)
    }

    /// Returns true if the running transaction has changed nothing.
    fn is_clean(&self) -> bool {
        self.hooks().all(|hook| hook.is_clean())
            && self.changed.lock().is_empty()
            && self.refs.is_empty()
            && self.checksums.bytes() == 0
            && self.logs.is_empty()
    }

    fn lead(&self, commit: Commit<'_, Open>) -> Result<()> {
        self.stages(commit).inspect_err(|error| self.fail(&error.to_string()))
    }

    fn stages(&self, commit: Commit<'_, Open>) -> Result<()> {
        let commit = commit.exclude_writing()?.exclude_operations()?.exclude_finish()?;
        let last = self.fail_on_error(|| self.finish_trees(&commit))?;
        let commit = commit.unblock()?;
        self.fail_on_error(|| self.write_out(&last))?;
        self.tree_roots.store().written(last.nodes);
        let commit = commit.durable()?;
        let pinned = self.space.without_held(last.pinned);
        self.discard(&pinned);
        self.space.unpin(pinned);
        commit.complete();
        Ok(())
    }

    /// Runs a part of a commit, or of a log commit; if it fails, that is the reason why nothing is
    /// written any more. The error is recorded before the `Commit` drops: dropping it unfinished
    /// would record a less specific one.
    pub(crate) fn fail_on_error<R>(&self, part: impl FnOnce() -> Result<R>) -> Result<R> {
        part().inspect_err(|error| self.fail(&error.to_string()))
    }

    /// Stages 2 to 4, except for `unblock`.
    fn finish_trees(&self, commit: &Commit<'_, CommitDoing>) -> Result<CommittedTransaction> {
        self.drop_logs()?;
        // No thread is moving an extent from one file to another now.
        self.refs.unreferenced_new_data().iter().for_each(|range| self.checksums.forget(range));
        self.merge(&Handle::new(self, commit.transaction_guard()), FlushScope::All)?;
        self.write_space_and_roots(commit)?;
        let superblock = superblock::next(self, commit.generation())?;
        let nodes = self.tree_roots.store().dirty_nodes();
        assert_eq!(self.checksums.bytes(), 0, "checksums are in the tree with their transaction");
        let pinned = self.space.take_pinned();
        self.refs.end_transaction();
        Ok(CommittedTransaction { superblock, nodes, pinned })
    }

    /// Stage 3.
    fn write_space_and_roots(&self, commit: &Commit<'_, CommitDoing>) -> Result<()> {
        let space_items = SpaceItemWriter::new(self, commit.generation());
        space_items.rebuild_free_space_tree()?;
        quotas::mark(&space_items.editor)?;
        space_items.run_references()?;
        space_items.remove_empty_groups()?;
        for _ in 0..ROUNDS_MAX {
            space_items.run_references()?;
            let groups = space_items.write_groups()?;
            let roots = self.write_roots(space_items.editor)?;
            if groups > 0 || roots > 0 || !self.refs.is_empty() {
                continue;
            }
            if self.tree_roots.roots().root().generation == commit.generation() {
                return Ok(());
            }
            // Nothing changed after all. But the root in a superblock must be of its generation.
            self.changed.lock().change(TreeId::EXTENT);
        }
        unreachable!("a block is copied once in a transaction, so the rounds end")
    }

    fn write_roots(&self, editor: Editor<'_>) -> Result<usize> {
        roots::write(&editor, &self.changed, &self.space)
    }

    fn write_nodes(&self, nodes: &DirtyList) -> Result<()> {
        let mut failed = None;
        // While some blocks are written the next are sealed.
        let sealed = self.tree_roots.store().seal(nodes);
        let blocks = sealed.map_while(|sealed| sealed.map_err(|error| failed = Some(error)).ok());
        let written = self.volume().write_blocks(blocks);
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(written?),
        }
    }

    /// Stage 5.
    fn write_out(&self, last: &CommittedTransaction) -> Result<()> {
        self.write_nodes(&last.nodes)?;
        self.volume().flush()?;
        self.transaction_state.check()?;
        Ok(self.volume().write_superblock(&last.superblock)?)
    }
}
