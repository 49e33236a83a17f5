//! The directories that are logged with an inode whose names changed, and those that are not.
//!
//! 1. As in Linux, the fsync of a committed inode that gained or lost a name in this transaction
//!    keeps all earlier changes in the directories of its committed names: each of them is logged
//!    as a whole.
//! 2. As in Linux, the transaction is committed instead, which keeps all earlier changes, if a
//!    directory would be logged as a whole that moved to another directory, that an inode left for
//!    another directory (as defined by rule 6 of `inode/log_state/tracker`), or in which files that
//!    the log does not have took each other's committed names in a cycle.

use std::collections::BTreeSet;

use userbtrfs_format::FileKind;
use userbtrfs_transaction::FullCommitReason;

use super::collect::{InodeLogger, LogResult};
use crate::inode::dir;
use crate::inode::{Inode, Link, LogMode, LoggedState, NamesToLog, PreviousLogState};

impl InodeLogger<'_, '_> {
    /// Returns an error if a full commit is needed instead of logging an inode as a whole.
    pub(super) fn check_loggable(&self, inode: &Inode) -> LogResult<()> {
        let is_dir = inode.kind() == FileKind::Directory;
        if is_dir && self.nodes.log_tracker().needs_commit(self.running, inode.id()) {
            return Err(FullCommitReason::NameMoved);
        }
        Ok(())
    }

    /// Queues each directory in which a committed inode has, or had, a committed name to be logged
    /// as a whole, if the inode gained or lost a name.
    pub(super) fn log_parents(
        &mut self,
        inode: &Inode,
        before: &PreviousLogState,
    ) -> LogResult<()> {
        let is_unchanged =
            |logged: LoggedState| logged.mode == LogMode::All && !logged.names_changed;
        if inode.kind() == FileKind::Directory
            || inode.item().generation == self.running
            || !before.was_stale && before.logged.is_some_and(is_unchanged)
        {
            return Ok(());
        }
        let (names, lost) = match self.named.take() {
            Some((number, names, lost)) if number == inode.id().number => (names, lost),
            _ => {
                let named = dir::names_to_log(self.nodes, inode, self.running);
                let NamesToLog { names, lost, .. } = named.map_err(|_| FullCommitReason::Failed)?;
                (names, lost)
            }
        };
        let mut is_changed = self.nodes.log_tracker().lost_any(self.running, inode.id())?;
        let mut dirs: BTreeSet<_> =
            lost.iter().filter(|lost| lost.committed).map(|lost| lost.dir).collect();
        for (Link { dir, index, .. }, _) in names {
            let Some(parent) = self.inode(dir)? else { continue };
            if parent.first_added(self.running).is_none_or(|first| index < first) {
                dirs.insert(dir);
            } else {
                is_changed = true;
            }
        }
        if !is_changed {
            return Ok(());
        }
        let log_tracker = self.nodes.log_tracker();
        log_tracker.note_changed_names(self.running, inode.id());
        // This includes deleted directories.
        if dirs.iter().any(|dir| log_tracker.needs_commit(self.running, self.id(*dir))) {
            return Err(FullCommitReason::NameMoved);
        }
        self.todo.extend(dirs.into_iter().map(|dir| (dir, LogMode::All)));
        Ok(())
    }
    /// Returns an error if a full commit is needed instead of logging these new entries of a
    /// directory, each the hash of a name and a file.
    pub(super) fn check_names(&self, dir: &Inode, names: &[(u32, u64)]) -> LogResult<()> {
        if self.nodes.log_tracker().is_circle(self.running, dir.id(), names) {
            Err(FullCommitReason::NameMoved)
        } else {
            Ok(())
        }
    }
}
