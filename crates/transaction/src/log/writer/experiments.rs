//! The experiments S0 and S2 of docs/seeds.md.
//!
//! 1. S0: a thread waits, before it locks the logs, until the previous superblock is durable. It is
//!    in the running transaction meanwhile, as the leader of a log commit is at its end.
//! 2. S2: the checksums of each extent are removed from the log and added again, in two changes of
//!    the tree, while their range is locked. What the log has of them is not tracked in memory.

use userbtrfs_btree::{Cursor, ReadAhead, Tree};
use userbtrfs_format::{Key, Logical, TreeId};
use userbtrfs_sync::Arc;

use super::{LogWriter, SubvolumeLogs};
use crate::checksums::{self, Form};
use crate::commit::Handle;
use crate::editor::{Changes, EditItems, ItemVisitor, Items};
use crate::error::Result;
use crate::experiment::Experiment;
use crate::log::full_commit::FullCommitReason;

impl SubvolumeLogs {
    /// In S0, waits until the superblock of the previous transaction is durable.
    pub(super) fn wait_for_previous(&self, handle: &Handle<'_>) -> Result<(), FullCommitReason> {
        if !self.context.runs(Experiment::S0) {
            return Ok(());
        }
        let durable = self.context.state.wait_durable(handle.generation() - 1);
        durable.map_err(|_| self.mark(FullCommitReason::Failed))
    }
}

impl LogWriter<'_> {
    /// Returns true in S2.
    pub(super) fn replaces_checksums(&self) -> bool {
        self.logs.context.runs(Experiment::S2)
    }

    /// Locks a range of checksums, removes those that the log has of it, and adds these.
    pub(super) fn replace_checksums(
        &mut self,
        subvolume: TreeId,
        logical: Logical,
        stored: &[u8],
        form: Form,
    ) -> Result<(), FullCommitReason> {
        let logs = self.logs;
        let range = logical.0..form.end(logical.0, stored.len());
        let _locked = logs.locked_checksums.lock(range);
        let tree = self.log(subvolume).map(|log| Arc::clone(&log.tree));
        let replaced = tree.and_then(|tree| {
            let mut items = LogItems { writer: self, tree: &tree };
            checksums::replace_in(&mut items, logical.0, stored, form)
        });
        replaced.map_err(|error| logs.mark((&error).into()))
    }
}

/// The items of a log.
struct LogItems<'a, 'w> {
    writer: &'a LogWriter<'w>,
    tree: &'a Tree,
}

impl Items for LogItems<'_, '_> {
    fn visit(&self, from: &Key, see: &mut ItemVisitor<'_>) -> Result<()> {
        let store = self.writer.logs.context.tree_roots.store();
        let mut cursor = Cursor::seek_back(store, self.tree, from, ReadAhead::Off)?;
        while let Some(item) = cursor.item() {
            if see(item.key, item.data).is_break() {
                break;
            }
            cursor.advance()?;
        }
        Ok(())
    }
}

impl EditItems for LogItems<'_, '_> {
    fn apply(&mut self, changes: Changes) -> Result<()> {
        self.writer.change(self.tree, &mut changes.into_edits())
    }
}
