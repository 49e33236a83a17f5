//! The experiments S1 and S3 of docs/seeds.md.
//!
//! 1. S1: the log commit of a new name is written like that of an fsync: with the inode as one that
//!    must merely exist. If it cannot be logged, the transaction is committed; so it is after an
//!    exchange of names, since an fsync of the directory would commit
//!    ([`FullCommitReason::NameMoved`]).
//! 2. S3: the delayed items of a file are in its subvolume tree before the file is logged, like
//!    those of a flush. The log has what is in memory all the same, but more of it: see
//!    [`InodeLogger::state_as_known`].

use userbtrfs_btree::{Cursor, ReadAhead};
use userbtrfs_format::{FileExtent, FileKind, ItemKind, Key};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{Experiment, FullCommitReason, Handle, RangeSet};

use super::{Log, SyncPlan, Waiting};
use crate::error::{InodeId, Result};
use crate::inode::{Inode, LogMode, PreviousLogState, flush_inode};
use crate::log::collect::{InodeLogger, LogResult, LoggedInode};
use crate::units::sector_end;

impl Log {
    /// Returns whether a rename or link may write the log: in S1.
    pub(crate) fn writes_new_names(&self) -> bool {
        self.transactions.runs(Experiment::S1)
    }

    /// Makes a new name of an inode durable if the inode, or one of these directories, is in
    /// the log of the running transaction.
    pub(crate) fn sync_new_name(
        &self,
        inode: InodeId,
        dirs: &[InodeId],
        exchanges: bool,
    ) -> Result<()> {
        let waiting = Waiting { nodes: &self.nodes, data: None, clock: self.fsync_tracer.clock() };
        self.sync_planned(inode, waiting, |log, handle, _| {
            match log.log_new_name(handle, inode, dirs) {
                SyncPlan::Log(_) if exchanges => SyncPlan::Commit(FullCommitReason::NameMoved),
                plan => plan,
            }
        })
    }

    fn log_new_name<'a>(
        &'a self,
        handle: &'a Handle<'a>,
        inode: InodeId,
        dirs: &[InodeId],
    ) -> SyncPlan<'a> {
        let running = handle.generation();
        let log_tracker = self.nodes.log_tracker();
        let mut ids = dirs.iter().chain([&inode]);
        if !ids.any(|id| log_tracker.logged(running, *id).is_some()) {
            return SyncPlan::Wait(0);
        }
        if self.nodes.is_deleted(inode.subvolume) {
            return SyncPlan::Commit(FullCommitReason::Subvolume);
        }
        let logged = self.transactions.logs(handle).and_then(|mut writer| {
            let logger = InodeLogger::new(&self.nodes, &mut writer, inode.subvolume);
            logger.run_existence(inode.number)
        });
        logged.map_or_else(SyncPlan::Commit, SyncPlan::Log)
    }

    /// In S3, puts the delayed items of a file into its subvolume tree.
    pub(super) fn flush_before_logging(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
    ) -> LogResult<()> {
        if inode.kind() != FileKind::Regular || !self.transactions.runs(Experiment::S3) {
            return Ok(());
        }
        flush_inode(&self.nodes, handle, inode).map_err(|_| FullCommitReason::Failed)
    }
}

impl<'w> InodeLogger<'_, 'w> {
    /// Logs an inode as one that must merely exist.
    fn run_existence(mut self, number: u64) -> LogResult<LoggedInode<'w>> {
        self.todo.push_back((number, LogMode::Exists));
        self.finish().inspect_err(|reason| self.writer.force_full_commit(*reason))?;
        Ok(self.as_logged(None))
    }

    /// Returns the state by which an inode is logged. In S3 it is that of a file of which the log
    /// may have any item, all out of date: so the log is searched for items to replace, and all
    /// names and extended attributes are logged.
    pub(in crate::log) fn state_as_known(
        &self,
        inode: &Inode,
        before: PreviousLogState,
    ) -> PreviousLogState {
        if !self.logs_whole_leaf(inode) {
            return before;
        }
        let logged =
            before.logged.or_else(|| self.nodes.log_tracker().logged(self.running, inode.id()));
        PreviousLogState { logged, was_stale: true, xattrs_changed: true, ..before }
    }

    fn logs_whole_leaf(&self, inode: &Inode) -> bool {
        let runs = |transactions: &Arc<userbtrfs_transaction::TransactionManager>| {
            transactions.runs(Experiment::S3)
        };
        inode.kind() == FileKind::Regular && self.nodes.transactions().is_ok_and(runs)
    }

    /// In S3, adds the ranges of all extents of a file whose items are in the leaf of its inode
    /// item.
    pub(in crate::log) fn add_extents_of_leaf(
        &self,
        inode: &Inode,
        ranges: &mut RangeSet,
    ) -> LogResult<()> {
        if !self.logs_whole_leaf(inode) {
            return Ok(());
        }
        let store = self.nodes.tree_roots().store();
        let number = inode.id().number;
        let first = Key::new(number, ItemKind::INODE_ITEM, 0);
        let cursor = Cursor::seek(store, inode.tree(), &first, ReadAhead::Off);
        let cursor = cursor.map_err(|_| FullCommitReason::Failed)?;
        let Some((leaf, slot)) = cursor.leaf() else { return Ok(()) };
        for item in (slot..leaf.len()).map(|slot| leaf.item(slot)) {
            if item.key.objectid == number && item.key.kind == ItemKind::EXTENT_DATA {
                let start = item.key.offset;
                let extent = FileExtent::parse(start, item.data).expect("verified with its block");
                ranges.insert(start..sector_end(start.saturating_add(extent.file_bytes())));
            }
        }
        Ok(())
    }
}
