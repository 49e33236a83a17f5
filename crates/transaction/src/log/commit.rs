//! Writes a group of changes of logs.
//!
//! 1. Under the lock of the logs the leader completes its group and closes it; it updates the tree
//!    of the log roots to lead to each log as it is, and seals the nodes: later changes of a log
//!    copy them.
//! 2. Then the nodes are written, in any order, while data that the group refers to, of the leader
//!    and of other threads, is in flight. When all of it has completed, a flush makes it durable,
//!    with all that was written before; then the previous superblock must be durable; then that of
//!    the log is written.
//! 3. The leader holds a handle of the transaction throughout: so neither can the commit unblock
//!    the next transaction, nor does another thread write a superblock after the previous one.
//! 4. Nothing is retried: a failure marks the transaction. If data that a group refers to failed,
//!    the superblock is not written. A failed flush or superblock write ends all writing: the error
//!    may concern the writes of other threads, and the device reports it only once.
//! 5. Data is recorded in its file while its owner holds a handle of the transaction: the commit
//!    has all that a log refers to.

use userbtrfs_btree::{DirtyList, ItemEdit, Root};
use userbtrfs_format::{ItemKind, Key, Logical, RootFlags, RootInode, RootItem, TreeId};
use userbtrfs_sync::{Arc, thread};
use userbtrfs_volume::Slice;

use super::commits::{JoinOutcome, LogCommitLeader, PendingIo};
use super::stats::count;
use super::{FullCommitReason, LogFailure, LogTransId, LogWriter, SubvolumeLog, SubvolumeLogs};
use crate::commit::Handle;
use crate::error::Result;
use crate::manager::TransactionManager;

/// The nodes of a group, sealed for writing.
struct Sealed {
    list: DirtyList,
    nodes: Vec<(Logical, Slice)>,
    /// The root of the tree of the log roots; `None` if there is no log.
    root: Option<Root>,
}

/// A caller that syncs a group.
pub trait LogSyncer {
    /// Makes the last changes to the logs before the group that this caller leads is closed. The
    /// error is the reason why the transaction must be committed.
    fn complete(&mut self, writer: &mut LogWriter<'_>) -> Result<(), FullCommitReason>;

    /// Waits for the data in flight of this caller that its group refers to, and records it in its
    /// file, in the handle's transaction; later calls only return the same result. An error means
    /// that the log must not become durable: the transaction is marked.
    fn finish_io(&mut self, handle: &Handle<'_>) -> Result<(), FullCommitReason>;

    /// Reports that the time since the last report was spent waiting for `what`.
    fn waited(&mut self, what: LogSyncPhase);
}

/// A phase of a log sync, named after what the caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSyncPhase {
    /// The device: its data, the nodes, the flush, the superblock.
    Device,
    /// Other threads: those that write the group, or the one before, or data that the group refers
    /// to.
    Writers,
    /// The superblock of the previous transaction.
    Commit,
}

/// A caller without data in flight.
impl LogSyncer for () {
    fn complete(&mut self, _writer: &mut LogWriter<'_>) -> Result<(), FullCommitReason> {
        Ok(())
    }

    fn finish_io(&mut self, _handle: &Handle<'_>) -> Result<(), FullCommitReason> {
        Ok(())
    }

    fn waited(&mut self, _what: LogSyncPhase) {}
}

/// Data in flight that a group refers to.
#[must_use = "the group fails without it"]
pub struct PendingIoToken<'a>(pub(super) PendingIo<'a, LogFailure>);

/// A caller that syncs, and its pending I/O.
struct SyncingMember<'a> {
    pending_io: Option<PendingIoToken<'a>>,
    member: &'a mut dyn LogSyncer,
}

impl SyncingMember<'_> {
    /// Waits for the caller's data, and ends the pending I/O with the result.
    fn finish_io(&mut self, handle: &Handle<'_>) -> Result<(), LogFailure> {
        let finished = self.member.finish_io(handle).map_err(LogFailure::from);
        if let Some(PendingIoToken(pending_io)) = self.pending_io.take() {
            pending_io.end(finished.clone());
        }
        finished
    }
}

impl TransactionManager {
    /// Waits until a group is durable; writes it if no other thread does. Data that was written
    /// before the call of [`LogWriter::group`] is then durable, too, and so is the data in flight
    /// of this caller, which registered it as `pending_io`. In any case, all of that data has
    /// completed on return.
    ///
    /// An error means that the group is not durable, and that the transaction must be committed.
    pub fn sync_log(
        &self,
        handle: &Handle<'_>,
        group: LogTransId,
        pending_io: Option<PendingIoToken<'_>>,
        member: &mut dyn LogSyncer,
    ) -> Result<(), LogFailure> {
        let mut member = SyncingMember { pending_io, member };
        let synced = match group.transaction == handle.generation() {
            true => self.sync_group(handle, group, &mut member),
            // It becomes durable with its transaction.
            false => {
                self.transaction_state.wait_durable(group.transaction).map_err(LogFailure::from)
            }
        };
        // Not done yet if the group was given up before.
        let finished = member.finish_io(handle);
        synced.and(finished)
    }

    fn sync_group(
        &self,
        handle: &Handle<'_>,
        group: LogTransId,
        member: &mut SyncingMember<'_>,
    ) -> Result<(), LogFailure> {
        let SubvolumeLogs { groups, counts, .. } = &self.logs;
        let leads = groups.try_lead(group.number).map(|lead| Ok(JoinOutcome::Lead(lead)));
        match leads.unwrap_or_else(|| self.join_group(handle, group, member))? {
            JoinOutcome::Ended(end) => {
                count(&counts.shared, 1);
                end
            }
            JoinOutcome::Lead(lead) => {
                count(&counts.waits_for_group, u64::from(lead.has_waited()));
                let written = self.write_group(handle, &lead, member);
                if let Err(failure) = &written {
                    self.logs.mark(failure.reason());
                }
                lead.end(written.clone());
                written
            }
        }
    }

    /// Waits for a group that another thread writes, or for the one before it.
    fn join_group(
        &self,
        handle: &Handle<'_>,
        group: LogTransId,
        member: &mut SyncingMember<'_>,
    ) -> Result<JoinOutcome<'_, LogFailure>, LogFailure> {
        let finished = member.finish_io(handle);
        member.member.waited(LogSyncPhase::Device);
        finished?;
        let role = self.logs.groups.join(group.number);
        member.member.waited(LogSyncPhase::Writers);
        Ok(role)
    }

    fn write_group(
        &self,
        handle: &Handle<'_>,
        lead: &LogCommitLeader<'_, LogFailure>,
        member: &mut SyncingMember<'_>,
    ) -> Result<(), LogFailure> {
        let before = handle.generation() - 1;
        if lead.is_shared() {
            // Other threads may be about to sync, but lack a processor: each that joins this group
            // does not need one of its own.
            thread::yield_now();
        }
        let Sealed { list, nodes, root } = self.seal_group(handle, lead, member.member)?;
        let count_nodes = nodes.len() as u64;
        let in_flight = self.volume().submit_data(nodes);
        let finished = member.finish_io(handle);
        let written = self.volume().wait_writes(in_flight);
        member.member.waited(LogSyncPhase::Device);
        written.into_iter().collect::<Result<(), _>>()?;
        finished?;
        lead.gather()?;
        member.member.waited(LogSyncPhase::Writers);
        self.fail_on_error(|| Ok(self.volume().flush()?))?;
        member.member.waited(LogSyncPhase::Device);
        self.wait_for_superblock(before)?;
        member.member.waited(LogSyncPhase::Commit);
        self.fail_on_error(|| Ok(self.volume().check_durable()?))?;
        self.logs.check()?;
        if let Some(root) = root.filter(|_| count_nodes > 0) {
            let write = || self.volume().write_log_superblock(root.logical, root.level);
            self.fail_on_error(|| Ok(write()?))?;
            self.logs.blocks.superblock_is_durable();
        }
        member.member.waited(LogSyncPhase::Device);
        self.tree_roots.store().written(list);
        self.count_group(count_nodes);
        Ok(())
    }

    /// Waits until the superblock of the previous transaction is durable; fails if a commit failed.
    fn wait_for_superblock(&self, before: u64) -> Result<(), LogFailure> {
        if !self.transaction_state.is_durable(before) {
            count(&self.logs.counts.waits_for_commit, 1);
            self.transaction_state.wait_durable(before)?;
        }
        Ok(self.transaction_state.check()?)
    }

    fn count_group(&self, nodes: u64) {
        let counts = &self.logs.counts;
        count(&counts.groups, 1);
        count(&counts.nodes, nodes);
        count(&counts.bytes, nodes * u64::from(self.volume().geometry().nodesize));
    }

    /// Closes a group, and seals its nodes for writing.
    fn seal_group(
        &self,
        handle: &Handle<'_>,
        lead: &LogCommitLeader<'_, LogFailure>,
        leader: &mut dyn LogSyncer,
    ) -> Result<Sealed, LogFailure> {
        let mut writer = self.logs(handle)?;
        leader.complete(&mut writer)?;
        let listed = writer.list_roots();
        listed.map_err(|error| LogFailure::Commit((&error).into()))?;
        // Checked now that the last node that the superblock leads to is allocated.
        if self.space.draws_on_new_groups() {
            return Err(FullCommitReason::NewBlockGroup.into());
        }
        let store = self.tree_roots.store();
        let list = store.dirty_at(self.logs.blocks.seal());
        let sealed = store.seal(&list).map(|sealed| {
            let (logical, node) = sealed?;
            Ok((logical, node.into()))
        });
        let nodes = sealed.collect::<Result<_>>()?;
        lead.close();
        Ok(Sealed { list, nodes, root: writer.trees.roots.as_ref().map(|tree| tree.root()) })
    }
}

impl LogWriter<'_> {
    /// Updates the tree of the log roots to lead to each log as it is.
    fn list_roots(&mut self) -> Result<()> {
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
